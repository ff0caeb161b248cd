// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Glibc
import HTTP
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// `[web]` of the daemon: signing in with the password, the stored data, and attacks from the network.
  @Suite struct NetworkPages {
    private final class Network {
      let rig: Rig
      let browser: Browser

      init(web: String = "") throws {
        rig = try Rig()
        let (descriptor, port) = try LoopbackSocket.listen(on: 0)
        close(descriptor)
        browser = Browser(port: port, way: "password")
        rig.writeGatewayConfiguration(
          extra: """
            [web]
            listen = "127.0.0.1:\(port)"
            pages = "\(PagesHost.pages)"
            \(web)
            """)
        try rig.startRadio(["--contacts", "3"])
        try rig.startGateway()
        try rig.waitForSync()
      }

      func command(_ arguments: [String], input: String? = nil) throws -> (code: Int32, lines: [String]) {
        let program = try Program.own("meshpost", arguments + ["--socket", rig.socket])
        if let input { program.write(input) }
        program.endInput()
        return (try program.ended(), program.lines)
      }

      func setPassword(_ password: String) throws {
        let set = try command(["web", "password"], input: password)
        #expect(set.code == 0 && set.lines.first?.contains("password set") == true, "\(set)")
      }

      func restart() throws {
        rig.gateway?.kill9()
        try rig.startGateway()
        try untilTrue("the pages to be there again") { browser.ask("GET", "/session")?.status == 200 }
      }

      var web: JSONValue? { get throws { try rig.status()?["web"] } }
    }

    @Test func `a password signs in, sessions survive a restart of the daemon, and end with the password`() throws {
      let network = try Network()
      let browser = network.browser
      #expect(try network.web?["has_password"]?.bool == false)
      #expect(browser.signIn(with: "whatever it is")?.status == 503)
      try network.setPassword("correct horse")
      #expect(browser.signIn(with: "wrong horse")?.status == 403)
      try network.rig.gateway?.line(with: "pages: login refused from 127.0.0.1")
      let signedIn = try #require(browser.signIn(with: "correct horse"))
      #expect(signedIn.status == 200)
      let set = signedIn.headers["Set-Cookie"] ?? ""
      for word in ["HttpOnly", "SameSite=Strict", "Max-Age=", "Path=/"] { #expect(set.contains(word), "\(set)") }
      #expect(!set.contains("Secure"))
      #expect(
        browser.ask("GET", "/v1/status")?.headers["Content-Security-Policy"]?.contains("default-src 'none'") == true)
      #expect(try network.web?["sessions"]?.integer == 1)
      try network.restart()
      #expect(browser.ask("GET", "/v1/status")?.status == 200)
      // The stored data gives no access to the pages.
      let file = network.rig.scratch.location("gw.db.web")
      let kept = try String(contentsOfFile: file, encoding: .utf8)
      #expect(!kept.contains("horse") && !kept.contains(browser.cookie?.components(separatedBy: "=")[1] ?? "?"))
      var facts = stat()
      #expect(stat(file, &facts) == 0 && facts.st_mode & 0o077 == 0)
      try network.setPassword("another horse")
      #expect(browser.ask("GET", "/v1/status")?.status == 401)
      #expect(browser.signIn(with: "correct horse")?.status == 403)
      #expect(browser.signIn(with: "another horse")?.status == 200)
      #expect(try network.command(["web", "password", "--remove"]).code == 0)
      #expect(browser.ask("GET", "/v1/status")?.status == 401)
      #expect(try network.command(["web", "password"], input: "short").code == EX_USAGE)
    }

    @Test func `a file of sessions that others can read is not used, and status and doctor say so`() throws {
      let network = try Network()
      try network.setPassword("correct horse")
      let file = network.rig.scratch.location("gw.db.web")
      #expect(chmod(file, 0o644) == 0)
      try network.restart()
      #expect(network.browser.signIn(with: "correct horse")?.status == 503)
      let error = try network.web?["error"]?.string ?? ""
      #expect(error.contains("gw.db.web can be read by others"), "\(error)")
      let doctor = try network.command(["doctor"]).lines
      #expect(doctor.contains { $0.contains("gw.db.web can be read by others") }, "\(doctor)")
      try network.setPassword("another horse")
      #expect(network.browser.signIn(with: "another horse")?.status == 200)
    }

    @Test func `a live stream ends with its session, and messages go both ways`() throws {
      let network = try Network()
      let (browser, rig) = (network.browser, network.rig)
      try network.setPassword("correct horse")
      #expect(browser.signIn(with: "correct horse")?.status == 200)
      let other = Browser(port: browser.port, way: "password")
      #expect(other.signIn(with: "correct horse")?.status == 200)
      rig.radio?.write("chan r1 0 up from the valley")
      let rows = try browser.follow(after: "0") { $0.contains { $0.contains("up from the valley") } }
      #expect(rows.contains { $0.hasPrefix("event: message") && $0.contains("up from the valley") })
      let body = "{\"to\":\"r1\",\"text\":\"down again\",\"id\":\"0123456789abcdef0123456789abcdef\"}"
      #expect(browser.ask("POST", "/v1/send", body)?.status == 202)
      // Signing out ends the stream; it does not end by itself.
      var isSignedOut = false
      _ = try browser.follow(after: nil) { pieces in
        if !isSignedOut, pieces.contains(where: { $0.hasPrefix("event: hello") }) {
          isSignedOut = true
          let out = Browser(port: browser.port, way: "password")
          out.cookie = browser.cookie
          #expect(out.ask("DELETE", "/session")?.status == 200)
        }
        return false
      }
      #expect(isSignedOut)
      #expect(browser.ask("GET", "/v1/status")?.status == 401)
      #expect(other.ask("GET", "/v1/status")?.status == 200)
    }

    @Test func `requests of other sites, other names, for secrets, and with large bodies are refused`() throws {
      let network = try Network(web: #"names = ["hilltop.example.org"]"#)
      let browser = network.browser
      try network.setPassword("correct horse")
      #expect(browser.signIn(with: "correct horse")?.status == 200)
      func status(_ host: String) throws -> Int? {
        let socket = try LoopbackPort.connect(browser.port)
        defer { close(socket) }
        let head = "GET /v1/status HTTP/1.1\r\nHost: \(host)\r\nCookie: \(browser.cookie ?? "")\r\n\r\n"
        #expect(head.withCString { write(socket, $0, strlen($0)) } > 0)
        var answer = [UInt8](repeating: 0, count: 64)
        let count = read(socket, &answer, answer.count)
        let words = String(decoding: answer.prefix(max(0, count)), as: UTF8.self).split(separator: " ")
        return words.count > 1 ? Int(words[1]) : nil
      }
      let name = ProcessInfo.processInfo.hostName.components(separatedBy: ".")[0]
      for host in ["127.0.0.1:\(browser.port)", "localhost", "hilltop.example.org", "\(name).local", "[::1]:8080"] {
        #expect(try status(host) == 200, "\(host)")
      }
      for host in ["evil.example", "hilltop.example.org.evil.example", "127.0.0.1.evil.example", "2130706433", ""] {
        #expect(try status(host) == 403, "\(host)")
      }
      #expect(browser.ask("GET", "/v1/status", headers: ["Origin": "http://evil.example"])?.status == 403)
      #expect(browser.ask("POST", "/v1/sync", "{}", headers: ["Sec-Fetch-Site": "same-site"])?.status == 403)
      for path in ["/v1/web/password", "/v1/upstreams/add", "/v1/radio/private-key", "/v1/radio/pair"] {
        #expect(browser.ask("POST", path, "{}")?.status == 403, "\(path)")
      }
      for path in ["/v1/backup", "/v1/frames", "/v1/radio/backup", "/v1/report", "/metrics"] {
        #expect(browser.ask("GET", path)?.body.starts(with: Array("{\"error\"".utf8)) ?? false || path == "/metrics")
      }
      let large = String(repeating: "x", count: 70_000)
      #expect(browser.ask("POST", "/session", large, signedIn: false)?.status == 413)
      // Through a TLS proxy on this machine.
      let secure = browser.ask(
        "POST", "/session", #"{"password":"correct horse"}"#,
        headers: [
          "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9", "Origin": "https://127.0.0.1:\(browser.port)",
        ],
        signedIn: false)
      #expect(secure?.headers["Set-Cookie"]?.contains("Secure") == true)
      try network.rig.gateway?.line(with: "pages: signed in from 203.0.113.9")
    }

    @Test func `an address with wrong passwords waits, and another address signs in`() throws {
      let network = try Network()
      let browser = network.browser
      try network.setPassword("correct horse")
      var statuses: [Int] = []
      for number in 0..<8 { statuses.append(browser.signIn(with: "guess \(number)")?.status ?? 0) }
      #expect(statuses.prefix(6).allSatisfy { $0 == 403 } && statuses.last == 429, "\(statuses)")
      #expect(browser.signIn(with: "correct horse")?.status == 429)
      let elsewhere = browser.ask(
        "POST", "/session", #"{"password":"correct horse"}"#, headers: ["X-Forwarded-For": "203.0.113.9"],
        signedIn: false)
      #expect(elsewhere?.status == 200)
    }

    @Test func `silent connections block nobody, and an address that is not allowed is not answered`() throws {
      let network = try Network()
      try network.setPassword("correct horse")
      let browser = network.browser
      var sockets: [Int32] = []
      defer { for socket in sockets { close(socket) } }
      for _ in 0..<100 { sockets.append(try LoopbackPort.connect(browser.port)) }
      for socket in sockets {
        _ = "POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le".withCString { write(socket, $0, strlen($0)) }
      }
      #expect(browser.signIn(with: "correct horse")?.status == 200)
      #expect(try network.rig.status() != nil)
      let stranger = try Network(web: #"allow_from = ["192.0.2.0/24"]"#)
      #expect(stranger.browser.ask("GET", "/session") == nil)
      #expect(try stranger.web?["address"]?.string == "127.0.0.1:\(stranger.browser.port)")
    }

    @Test func `a port in use is tried again, and a reload starts and stops the pages`() throws {
      let network = try Network()
      let (browser, rig) = (network.browser, network.rig)
      #expect(browser.ask("GET", "/session")?.status == 200)
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write(
        "gw.toml", text.replacingOccurrences(of: "listen = \"127.0.0.1:\(browser.port)\"", with: ""))
      rig.gateway?.send(SIGHUP)
      try untilTrue("the pages to end") { browser.ask("GET", "/session") == nil }
      #expect(try network.web == nil)
      let (descriptor, _) = try LoopbackSocket.listen(on: browser.port)
      _ = rig.scratch.write("gw.toml", text)
      rig.gateway?.send(SIGHUP)
      try untilTrue("the status to say so") { try network.web?["error"]?.string?.contains("listen on") == true }
      let status = try network.command(["status"])
      #expect(status.lines.contains { $0.hasPrefix("pages     at http://") }, "\(status)")
      close(descriptor)
      try untilTrue("the pages to begin") { browser.ask("GET", "/session")?.status == 200 }
    }
  }
}
