// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import LoopTestSupport
import Testing

/// A foreign proxy: pproxy, from PyPI.
private final class RealProxy {
  private let process = Process()
  let port: UInt16

  init(_ kinds: String, login: String? = nil) throws {
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    Descriptor.close(listener)
    self.port = port
    process.executableURL = Checkout.folder.appending(path: ".build/python/bin/python")
    let address = "\(kinds)://127.0.0.1:\(port)" + (login.map { "#\($0)" } ?? "")
    process.arguments = ["-W", "ignore", "-m", "pproxy", "-l", address]
    (process.standardOutput, process.standardError) = (FileHandle.nullDevice, FileHandle.nullDevice)
    try process.run()
  }

  deinit {
    // One that did not begin has the number 0, which means this process and all beside it.
    guard process.isRunning else { return }
    // Threads of the test runner block signals, and children inherit that: SIGTERM would not reach it.
    kill(process.processIdentifier, SIGKILL)
    process.waitUntilExit()
  }

  /// Whether it listens.
  func isUp(_ loop: EventLoop) throws -> Bool {
    var patience = Patience()
    while true {
      if case .success(let socket) = try loop.connected("127.0.0.1", port, nil) {
        Descriptor.close(socket)
        return true
      }
      if patience.isOver() { return false }
      usleep(50_000)
    }
  }
}

extension ConnectionTests {
  @Suite struct RealProxies {
    @Test(arguments: [
      // pproxy knows no 4a: see ConnectionTests.
      ("http", "127.0.0.1"), ("http", "localhost"), ("socks4", "127.0.0.1"), ("socks5", "127.0.0.1"),
      ("socks5h", "localhost"),
    ])
    func `a server is reached through each kind of proxy`(_ kind: String, _ host: String) throws {
      let loop = EventLoop()
      let server = try LoopServer.echo(on: loop)
      defer { server.stop() }
      let proxy = try RealProxy("http+socks4+socks5")
      #expect(try proxy.isUp(loop))
      let socket = try loop.connected(host, server.port, "\(kind)://127.0.0.1:\(proxy.port)").get()
      #expect(loop.echoes(socket))
    }

    @Test(arguments: ["http", "socks5", "socks5h"])
    func `the user and the password are sent, and the proxy accepts only the right ones`(_ kind: String) throws {
      let loop = EventLoop()
      let server = try LoopServer.echo(on: loop)
      defer { server.stop() }
      let proxy = try RealProxy("http+socks5", login: "me:p:a@ss")
      #expect(try proxy.isUp(loop))
      let place = "127.0.0.1:\(proxy.port)"
      // In this order, because pproxy remembers a client that it has once accepted.
      let wrong = try loop.words("\(kind)://me:hush@\(place)")
      let none = try loop.words("\(kind)://\(place)")
      // With SOCKS it closes the connection without an answer.
      let isSilent = kind != "http"
      let ends = "ended the connection without an answer"
      #expect(
        wrong.hasSuffix("the proxy \(kind)://\(place) \(isSilent ? ends : "does not accept the user and password")"),
        "\(wrong)")
      #expect(
        none.hasSuffix("the proxy \(kind)://\(place) \(isSilent ? ends : "requires a user and a password")"), "\(none)")
      let socket = try loop.connected("127.0.0.1", server.port, "\(kind)://me:p%3Aa%40ss@\(place)").get()
      #expect(loop.echoes(socket))
    }

    @Test func `a refusal by the server is reported with the proxy's name`() throws {
      let loop = EventLoop()
      let proxy = try RealProxy("http")
      #expect(try proxy.isUp(loop))
      let words = try loop.words("http://127.0.0.1:\(proxy.port)")
      #expect(words.hasPrefix("127.0.0.1 port 9: the proxy http://127.0.0.1:\(proxy.port)"), "\(words)")
    }
  }
}
