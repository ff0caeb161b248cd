// SPDX-License-Identifier: MIT

import Foundation
import LoopTestSupport
import Testing
import Timing

@testable import EventLoop
@testable import ProxyTunnel

/// One test after the other: they count the descriptors of the process.
@Suite(.serialized) struct ConnectionTests {
  private static let connect = "HTTP/1.1 200 Connection established\r\n\r\n"

  /// An HTTP proxy that answers each request with this text.
  private func proxy(_ answer: String, closes: Bool = false, on loop: EventLoop) throws -> LoopServer {
    try LoopServer(on: loop) { talk in
      guard talk.heard.ends(with: "\r\n\r\n".utf8) else { return }
      talk.say(answer.utf8)
      if closes { talk.close() }
    }
  }

  @Test func `without a proxy the connection is direct`() throws {
    let loop = EventLoop()
    let server = try LoopServer.echo(on: loop)
    defer { server.stop() }
    #expect(loop.echoes(try loop.connected("localhost", server.port, nil).get()))
  }

  @Test func `an HTTP proxy gets the server's name in ASCII, and the credentials with the first request`() throws {
    let loop = EventLoop()
    let server = try proxy(Self.connect, on: loop)
    defer { server.stop() }
    let socket = try loop.connected("bücher.example", 443, "http://me:s%20s@127.0.0.1:\(server.port)").get()
    Descriptor.close(socket)
    let heard = String(decoding: server.talks[0].heard, as: UTF8.self)
    #expect(heard.hasPrefix("CONNECT xn--bcher-kva.example:443 HTTP/1.1\r\n"), "\(heard)")
    #expect(heard.contains("Proxy-Authorization: Basic bWU6cyBz\r\n"), "\(heard)")
  }

  @Test func `an IPv6 address is written in brackets`() throws {
    let loop = EventLoop()
    let server = try proxy(Self.connect, on: loop)
    defer { server.stop() }
    Descriptor.close(try loop.connected("2001:db8::1", 80, "http://127.0.0.1:\(server.port)").get())
    #expect(server.talks[0].heard.starts(with: "CONNECT [2001:db8::1]:80 HTTP/1.1\r\n".utf8))
  }

  @Test func `the server's first bytes behind the proxy's answer are not lost`() throws {
    let loop = EventLoop()
    let server = try proxy("HTTP/1.0 200 OK\r\nVia: x\r\n\r\nfirst words", on: loop)
    defer { server.stop() }
    let socket = try loop.connected("hub.example", 80, "http://127.0.0.1:\(server.port)").get()
    defer { Descriptor.close(socket) }
    #expect(Descriptor.read(socket) == .bytes(Array("first words".utf8)))
  }

  @Test func `SOCKS 5h leaves the name lookup to the proxy, and accepts an odd bound address in the answer`() throws {
    let loop = EventLoop()
    let server = try LoopServer(on: loop) { talk in
      if talk.heard.count == 3 || talk.heard.count == 4 { return talk.say([5, 0]) }
      guard talk.heard.count > 10 else { return }
      talk.say([5, 0, 0, 3, 3] + Array("a\u{0}b".utf8) + [0xFF, 0xFF])
    }
    defer { server.stop() }
    let socket = try loop.connected("bücher.example", 8883, "socks5h://127.0.0.1:\(server.port)").get()
    Descriptor.close(socket)
    let name = Array("xn--bcher-kva.example".utf8)
    #expect(server.talks[0].heard.ends(with: [5, 1, 0, 3, UInt8(name.count)] + name + [0x22, 0xB3]))
  }

  @Test func `SOCKS 4a leaves the name lookup to the proxy, and sends the user`() throws {
    let loop = EventLoop()
    let server = try LoopServer(on: loop) { talk in
      // The user and the name each end with a zero.
      if talk.heard.dropFirst(8).count(where: { $0 == 0 }) == 2 { talk.say([0, 90, 0, 0, 0, 0, 0, 0]) }
    }
    defer { server.stop() }
    let socket = try loop.connected("hub.example", 443, "socks4a://me@127.0.0.1:\(server.port)").get()
    Descriptor.close(socket)
    let heard = server.talks[0].heard
    #expect(heard.starts(with: [4, 1, 1, 187, 0, 0, 0]) && heard[7] != 0)
    #expect(heard.ends(with: Array("me\u{0}hub.example\u{0}".utf8)))
  }

  @Test(arguments: [
    (91, "has no connection to 127.0.0.1"), (92, "does not accept the user"), (93, "does not accept the user"),
  ])
  func `a refusal by a SOCKS 4 proxy is reported in plain words`(_ code: UInt8, _ words: String) throws {
    let loop = EventLoop()
    let server = try LoopServer(on: loop) { if $0.heard.count > 8 { $0.say([0, code, 0, 0, 0, 0, 0, 0]) } }
    defer { server.stop() }
    let told = try loop.words("socks4://me@127.0.0.1:\(server.port)")
    #expect(told.contains("the proxy socks4://127.0.0.1:\(server.port) \(words)"), "\(told)")
  }

  @Test(arguments: ["a b.example", "x/y", "me@host", "h?x", "h\r\nX: y", "", "[::1]"])
  func `an invalid host name is not sent to the proxy`(_ host: String) throws {
    let loop = EventLoop()
    let server = try proxy(Self.connect, on: loop)
    defer { server.stop() }
    #expect(try loop.words("http://127.0.0.1:\(server.port)", to: host).contains("invalid host name"))
    #expect(server.talks.isEmpty)
  }

  // MARK: Trouble

  @Test(arguments: [
    (
      "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0", "",
      "requires a user and a password"
    ),
    (
      "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0", "me:hush@",
      "does not accept the user and password"
    ),
    ("407 No way of doing it", "me:hush@", "does not accept the user and password"),
    ("407 NTLM\r\nProxy-Authenticate: NTLM", "me:hush@", "does not accept the user and password"),
    ("403 Forbidden\r\nContent-Length: 5\r\n\r\nhush!", "", "does not allow connections to 127.0.0.1 (403)"),
    ("502 Bad Gateway", "", "has no connection to 127.0.0.1 (502)"),
    ("504 Late", "", "has no connection to 127.0.0.1 (504)"),
    ("302 Found\r\nLocation: http://elsewhere/", "", "refuses to connect to 127.0.0.1 (302)"),
    ("500 Oh", "", "refuses to connect to 127.0.0.1 (500)"),
  ])
  func `a refusal by an HTTP proxy is reported in plain words`(_ answer: String, _ login: String, _ words: String)
    throws
  {
    let loop = EventLoop()
    let server = try proxy("HTTP/1.1 \(answer)\r\n\r\n", closes: true, on: loop)
    defer { server.stop() }
    let told = try loop.words("http://\(login)127.0.0.1:\(server.port)")
    #expect(told == "127.0.0.1 port 9: the proxy http://127.0.0.1:\(server.port) \(words)", "\(told)")
  }

  @Test(arguments: [
    (1, "has no connection to 127.0.0.1"), (2, "does not allow connections"), (3, "cannot reach the network"),
    (4, "cannot reach 127.0.0.1"), (5, "127.0.0.1 refuses the connection"), (6, "in time"), (7, "such an address"),
    (8, "such an address"), (99, "the proxy"),
  ])
  func `a refusal by a SOCKS 5 proxy is reported in plain words`(_ code: UInt8, _ words: String) throws {
    let loop = EventLoop()
    let server = try LoopServer(on: loop) { talk in
      if talk.heard.count > 8 {
        talk.say([5, code, 0, 1, 0, 0, 0, 0, 0, 0])
      } else if !talk.heard.isEmpty {
        talk.say([5, 0])
      }
    }
    defer { server.stop() }
    let told = try loop.words("socks5://127.0.0.1:\(server.port)")
    #expect(told.contains("the proxy socks5://127.0.0.1:\(server.port)") && told.contains(words), "\(told)")
  }

  @Test(arguments: ["", "me:hush@"])
  func `a SOCKS proxy that rejects the credentials is reported`(_ login: String) throws {
    let loop = EventLoop()
    let server = try LoopServer(on: loop) { talk in
      switch talk.heard.first {
      case 5? where talk.heard.count > 4: talk.say([1, 1])
      case 5?: talk.say([5, talk.heard.contains(2) ? 2 : 0xFF])
      default: break
      }
    }
    defer { server.stop() }
    let told = try loop.words("socks5h://\(login)127.0.0.1:\(server.port)")
    let words = login.isEmpty ? "requires a user and a password" : "does not accept the user and password"
    #expect(told == "127.0.0.1 port 9: the proxy socks5h://127.0.0.1:\(server.port) \(words)", "\(told)")
  }

  @Test func `an unreachable proxy is distinguished from an unreachable server`() throws {
    let loop = EventLoop()
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    Descriptor.close(listener)
    for kind in ["http", "socks4", "socks4a", "socks5", "socks5h"] {
      let told = try loop.words("\(kind)://127.0.0.1:\(port)")
      #expect(
        told == "127.0.0.1 port 9: the proxy \(kind)://127.0.0.1:\(port) cannot be reached: Connection refused",
        "\(told)")
    }
    let nowhere = try loop.words("http://me:hush@proxy.invalid:8080")
    #expect(nowhere == "127.0.0.1 port 9: no address for the proxy http://proxy.invalid:8080", "\(nowhere)")
    let server = try LoopServer(on: loop) { if !$0.heard.isEmpty { $0.say([5, 0]) } }
    defer { server.stop() }
    let unknown = try loop.words("socks5://127.0.0.1:\(server.port)", to: "server.invalid")
    #expect(unknown.contains("server.invalid") && unknown.contains("looked up here"), "\(unknown)")
    #expect(TunnelWords(proxy: try TunnelSettings(parsing: "p:1"), host: "h").notInstalled.contains("libcurl4"))
  }

  @Test(arguments: ["http", "socks4", "socks5", "socks5h"])
  func `a proxy that closes at once or answers nonsense is reported`(_ kind: String) throws {
    let loop = EventLoop()
    for nonsense in ["", "\0\0\0\0\0\0\0\0\0\0\0\0", "SSH-2.0-nonsense\r\n", "\u{15}\u{3}\u{1}\0\u{2}\u{2}P"] {
      let server = try LoopServer(on: loop) { talk in
        if nonsense.isEmpty { return talk.close() }
        if !talk.heard.isEmpty {
          talk.say(nonsense.utf8)
          talk.close()
        }
      }
      defer { server.stop() }
      let told = try loop.words("\(kind)://127.0.0.1:\(server.port)")
      #expect(told.contains("the proxy \(kind)://127.0.0.1:\(server.port)"), "\(nonsense.debugDescription): \(told)")
    }
  }

  @Test(arguments: ["http", "socks4a", "socks5h"])
  func `a proxy that hangs, or sends a byte now and then, is given up after a time limit`(_ kind: String) throws {
    let loop = EventLoop()
    for isSlow in [false, true] {
      var timers: [LoopTimer] = []
      func drip(_ talk: Talk) {
        timers.append(
          loop.schedule(after: .milliseconds(50)) {
            talk.say("H".utf8)
            drip(talk)
          })
      }
      let server = try LoopServer(on: loop) { if isSlow, $0.heard.isEmpty, kind == "http" { drip($0) } }
      let began = loop.now
      let told = try loop.words("\(kind)://127.0.0.1:\(server.port)", within: .milliseconds(700))
      #expect(told.contains("has not connected to 127.0.0.1 in time"), "\(told)")
      #expect(loop.now - began < .seconds(30))
      for timer in timers { timer.cancel() }
      server.stop()
    }
  }

  /// A server that sends faster than curl reads: within one call curl would never finish.
  private static func flood(_ head: String) throws -> UInt16 {
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    Thread.detachNewThread {
      _ = fcntl(listener, F_SETFL, 0)
      let socket = accept(listener, nil, nil)
      close(listener)
      var bytes = [UInt8](repeating: 0, count: 1024)
      _ = read(socket, &bytes, bytes.count)
      _ = head.withCString { send(socket, $0, strlen($0), Int32(MSG_NOSIGNAL)) }
      let line = Array((String(repeating: "x: y\r\n", count: 2000)).utf8)
      while send(socket, line, line.count, Int32(MSG_NOSIGNAL)) > 0 {}
      close(socket)
    }
    return port
  }

  @Test(arguments: [
    "HTTP/1.1 200 OK\r\n", "HTTP/1.1 407 No\r\nContent-Length: 999999999999\r\n\r\n",
    "HTTP/1.1 407 No\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n",
    "HTTP/1.1 200 OK\r\nX: \(String(repeating: "y", count: 9000))",
  ])
  func `an endless answer of a proxy does not delay the failure`(_ head: String) throws {
    let loop = EventLoop()
    let began = loop.now
    let told = try loop.words("http://me:hush@127.0.0.1:\(try Self.flood(head))", within: .seconds(30))
    #expect(told.contains("the proxy http://127.0.0.1"), "\(told)")
    #expect(loop.now - began < .seconds(15), "\(told)")
  }

  // MARK: Nothing is left

  @Test func `a thousand cancelled attempts leave no descriptor, no watch and no timer`() throws {
    let loop = EventLoop()
    let silent = try LoopServer(on: loop) { _ in }
    let halfway = try LoopServer(on: loop) { talk in
      if talk.heard.first == 5 {
        talk.say([5, 0])
      } else if !talk.heard.isEmpty {
        talk.say("HTTP/1.1 200 OK\r\n".utf8)
      }
    }
    let willing = try LoopServer(on: loop) { talk in
      if talk.heard.ends(with: "\r\n\r\n".utf8) { talk.say(Self.connect.utf8) }
    }
    func places(_ i: Int) -> String {
      [
        "http://127.0.0.1:\(silent.port)", "socks5h://127.0.0.1:\(silent.port)", "http://127.0.0.1:\(halfway.port)",
        "socks5h://127.0.0.1:\(halfway.port)", "http://127.0.0.1:\(willing.port)", "http://localhost:\(willing.port)",
        // A look-up is a thread of curl, which ends with the resolver, so there must not be too many.
        i % 64 == 6 ? "http://proxy.invalid:1" : "http://127.0.0.1:2", "http://127.0.0.1:1",
      ][i % 8]
    }
    /// Cancels attempts after a varying number of turns.
    func run(_ attempts: Range<Int>) throws {
      for i in attempts {
        let proxy = try TunnelSettings(parsing: places(i))
        var isOver = false
        let task = loop.begin {
          do throws(Connector.Failure) {
            let socket = try await loop.connect(host: "hub.example", port: 80, through: proxy, timeout: .seconds(60))
            Descriptor.close(socket)
          } catch {
            // The error does not matter: the test checks what remains open.
          }
          isOver = true
        }
        for _ in 0..<(i / 8 % 9) { loop.turn(wait: false) }
        task.cancel()
        #expect(turn(loop) { isOver })
      }
      let servers = [silent, halfway, willing]
      #expect(turn(loop) { servers.allSatisfy { $0.openTalks == 0 } })
    }
    // Libraries that are loaded once remain.
    try run(0..<6)
    let before = try descriptorNames()
    let (watches, timers) = (loop.watchCount, loop.waitingTimers)
    try run(0..<1000)
    // Abandoned resolver threads end by themselves.
    let after = try settled(above: before.count)
    #expect(after.count <= before.count, "\(Set(after).subtracting(before))")
    #expect(loop.watchCount == watches)
    #expect(loop.waitingTimers == timers)
    for server in [silent, halfway, willing] { server.stop() }
  }

  /// The open descriptors, once their number has fallen to this, or does not fall any more.
  private func settled(above wanted: Int) throws -> [String] {
    var patience = Patience()
    while try descriptorNames().count > wanted, !patience.isOver() { usleep(50_000) }
    return try descriptorNames()
  }
}
