// SPDX-License-Identifier: MIT

import Deflate
import EventLoop
import Foundation
import Glibc
import HTTP
import JSON
import TestSupport
import Testing

/// Sends requests like a page in a browser.
class Browser {
  var port: UInt16
  /// The field in which `signIn` sends the secret or password.
  let way: String
  var cookie: String?

  init(port: UInt16, way: String) { (self.port, self.way) = (port, way) }

  var origin: String { "http://127.0.0.1:\(port)" }
  var endpoint: HTTPEndpoint { .tcp(host: "127.0.0.1", port: port, tls: false) }

  func ask(
    _ method: String, _ target: String, _ body: String = "", headers: [String: String] = [:], signedIn: Bool = true
  ) -> HTTPResponse? {
    var request = HTTPRequest(method, target, body: Array(body.utf8))
    if method != "GET" {
      if headers["Origin"] == nil { request.headers.add("Origin", origin) }
      if headers["Content-Type"] == nil { request.headers.add("Content-Type", "application/json") }
    }
    for (name, value) in headers where !value.isEmpty { request.headers.add(name, value) }
    if signedIn, let cookie { request.headers.add("Cookie", cookie) }
    return Rig.ask(endpoint, request)
  }

  func signIn(with given: String) -> HTTPResponse? {
    let response = ask("POST", "/session", "{\"\(way)\":\"\(given)\"}", signedIn: false)
    if let set = response?.headers["Set-Cookie"] { cookie = set.components(separatedBy: ";")[0] }
    return response
  }

  /// Stores the cookies of an answer, and keeps the others.
  func keep(_ response: HTTPResponse?) {
    for set in response?.headers.values(of: "Set-Cookie") ?? [] {
      let pair = set.components(separatedBy: ";")[0]
      let name = pair.components(separatedBy: "=")[0] + "="
      let others = (cookie?.components(separatedBy: "; ") ?? []).filter { !$0.hasPrefix(name) }
      cookie = (others + (set.contains("Max-Age=0") ? [] : [pair])).joined(separator: "; ")
    }
  }

  /// The first rows of the live stream, until `isEnough` is true or the stream has ended.
  func follow(after id: String?, until isEnough: @escaping ([String]) -> Bool) throws -> [String] {
    let loop = EventLoop()
    let client = HTTPClient(endpoint, on: loop)
    var request = HTTPRequest("GET", "/v1/live", headers: ["Cookie": cookie ?? ""])
    if let id { request.headers.add("Last-Event-ID", id) }
    var text = ""
    _ = loop.begin {
      // `try?`: the test ends the request.
      _ = try? await client.send(request, timeout: .seconds(60)) { piece in
        text += String(decoding: piece, as: UTF8.self)
        if isEnough(text.components(separatedBy: "\n\n")) { loop.stop() }
      }
      loop.stop()
    }
    loop.run()
    client.close()
    return text.components(separatedBy: "\n\n")
  }
}

/// A gateway, its pages by `meshpost web`, and a browser.
final class PagesHost: Browser {
  let rig: Rig
  let program: Program
  let secret: String

  init(_ rig: Rig, command: (([String]) throws -> Program)? = nil) throws {
    self.rig = rig
    let arguments = ["web", "--pages", Self.pages]
    program = try command?(arguments) ?? Program.own("meshpost", arguments + ["--socket", rig.socket])
    try program.line(with: "#secret=")
    let line = program.lines.first { $0.contains("#secret=") } ?? ""
    let parts = line.components(separatedBy: "/#secret=")
    secret = parts[1]
    super.init(port: try #require(UInt16(parts[0].components(separatedBy: ":").last ?? "")), way: "secret")
  }

  static let pages = Checkout.folder.appending(path: "Sources/Pages").path()

  func signIn(_ given: String? = nil) -> HTTPResponse? { signIn(with: given ?? secret) }
}

extension WholeProgramTests {
  /// `meshpost web` without a browser: signing in, refusals, and the permitted requests.
  @Suite struct WebHost {
    private func rig() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "3", "--nodes", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      return rig
    }

    private func json(_ response: HTTPResponse?) throws -> JSONValue {
      try JSONValue(parsing: response?.body ?? [])
    }

    @Test func `a secret works once, a session until it ends, and nobody else signs in`() throws {
      let host = try PagesHost(rig())
      #expect(try json(host.ask("GET", "/session"))["signed_in"]?.bool == false)
      #expect(host.ask("GET", "/v1/status")?.status == 401)
      #expect(host.signIn("nonsense")?.status == 403)
      let signedIn = try #require(host.signIn())
      #expect(signedIn.status == 200)
      let set = signedIn.headers["Set-Cookie"] ?? ""
      for word in ["HttpOnly", "SameSite=Strict", "Path=/"] { #expect(set.contains(word)) }
      #expect(host.ask("GET", "/v1/status")?.status == 200)
      let (secret, cookie) = (host.secret, host.cookie)
      #expect(host.signIn(secret)?.status == 403)
      try host.program.line(with: "For another browser")
      // Pages of other sites, other names, other kinds of requests.
      #expect(host.ask("GET", "/v1/status", headers: ["Origin": "http://evil.example"])?.status == 403)
      #expect(host.ask("GET", "/v1/status", headers: ["Sec-Fetch-Site": "cross-site"])?.status == 403)
      let send = "{\"to\":\"r1\",\"text\":\"x\"}"
      #expect(host.ask("POST", "/v1/send", send, headers: ["Origin": "http://127.0.0.1:1"])?.status == 403)
      #expect(host.ask("POST", "/v1/send", send, headers: ["Content-Type": "text/plain"])?.status == 403)
      for path in ["/v1/radio/private-key", "/v1/upstreams/add", "/v1/contacts/put"] {
        #expect(host.ask("POST", path, "{}")?.status == 403)
      }
      for path in ["/v1/frames", "/v1/backup", "/v1/radio/backup", "/metrics/../v1/backup"] {
        #expect([403, 404, 200].contains(host.ask("GET", path)?.status ?? 0))
        #expect(host.ask("GET", path)?.body.starts(with: Array("SQLite".utf8)) == false)
      }
      #expect(host.ask("DELETE", "/session")?.status == 200)
      host.cookie = cookie
      #expect(host.ask("GET", "/v1/status")?.status == 401)
    }

    @Test func `another user of the machine who tries secrets blocks nobody`() throws {
      let host = try PagesHost(rig())
      for number in 0..<30 { #expect(host.signIn("guess \(number)")?.status == 403) }
      #expect(host.signIn()?.status == 200)
    }

    @Test func `pages come from the folder with a strict policy, and unchanged files are not sent again`() throws {
      let host = try PagesHost(rig())
      let shell = try #require(host.ask("GET", "/conversations/channel:0011"))
      #expect(shell.status == 200)
      #expect(shell.headers["Content-Type"]?.hasPrefix("text/html") == true)
      let policy = shell.headers["Content-Security-Policy"] ?? ""
      #expect(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"))
      #expect(!policy.contains("unsafe") && !policy.contains("*"))
      let tag = try #require(shell.headers["ETag"])
      #expect(host.ask("GET", "/", headers: ["If-None-Match": tag])?.status == 304)
      #expect(host.ask("GET", "/pages/..%2f..%2fPackage.swift")?.status == 404)
      #expect(host.ask("POST", "/", "x")?.status == 405)
    }

    @Test func `long answers are compressed with gzip for clients that accept it`() throws {
      let host = try PagesHost(rig())
      #expect(host.signIn()?.status == 200)
      let short = try #require(host.ask("GET", "/session", headers: ["Accept-Encoding": "gzip"]))
      #expect(short.status == 200 && short.headers["Content-Encoding"] == nil)
      let status = try #require(host.ask("GET", "/v1/status"))
      #expect(status.headers["Content-Encoding"] == nil && status.body.count > 1024)
      let packed = try #require(host.ask("GET", "/v1/status", headers: ["Accept-Encoding": "gzip, br"]))
      #expect(packed.headers["Content-Encoding"] == "gzip" && packed.body.count < status.body.count)
      let unpacked = try Inflater.gunzip(packed.body, limit: 1 << 20)
      #expect(try JSONValue(parsing: unpacked)["gateway"] == JSONValue(parsing: status.body)["gateway"])
      // An answer in rows.
      let rows = try #require(host.ask("GET", "/v1/contacts"))
      let packedRows = try #require(host.ask("GET", "/v1/contacts", headers: ["Accept-Encoding": "gzip"]))
      #expect(rows.headers["Content-Encoding"] == nil && packedRows.headers["Content-Encoding"] == "gzip")
      #expect(try Inflater.gunzip(packedRows.body, limit: 1 << 20) == rows.body && !rows.body.isEmpty)
      let live = try host.follow(after: "0") { !$0.isEmpty }
      #expect(!live.isEmpty, "a stream is not held back")
    }

    @Test func `a live stream continues after its last event when the gateway was killed`() throws {
      let rig = try rig()
      let host = try PagesHost(rig)
      #expect(host.signIn()?.status == 200)
      rig.radio?.write("chan r1 0 before the kill")
      let before = try host.follow(after: "0") { $0.contains { $0.contains("before the kill") } }
      let id = try #require(
        before.first { $0.contains("before the kill") }?.components(separatedBy: "\n").first { $0.hasPrefix("id: ") })
      rig.gateway?.send(SIGKILL)
      _ = try rig.gateway?.ended()
      #expect(host.ask("GET", "/v1/status")?.status == 502)
      rig.radio?.write("chan r1 0 while it was away")
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the pages to reach it again") { host.ask("GET", "/v1/status")?.status == 200 }
      let after = try host.follow(after: String(id.dropFirst(4))) { $0.contains { $0.contains("while it was away") } }
      #expect(!after.contains { $0.contains("before the kill") })
      #expect(after.count { $0.hasPrefix("event: message") && $0.contains("while it was away") } == 1)
    }
  }
}
