// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Glibc
import LoopTestSupport

@testable import ProxyTunnel

/// A connection's received bytes, and its answers.
final class Talk {
  fileprivate(set) var heard: [UInt8] = []
  private let socket: Int32
  private let loop: EventLoop
  private(set) var isOpen = true

  fileprivate init(_ socket: Int32, on loop: EventLoop) {
    self.socket = socket
    self.loop = loop
  }

  func say(_ bytes: some Sequence<UInt8>) { if isOpen { _ = Descriptor.write(socket, Array(bytes)[...]) } }

  func close() {
    guard isOpen else { return }
    isOpen = false
    loop.unwatch(socket)
    Descriptor.close(socket)
  }
}

/// A server on 127.0.0.1, on the test's loop: an echo, or a scripted proxy.
final class LoopServer {
  let port: UInt16
  private(set) var talks: [Talk] = []
  private let loop: EventLoop
  private let acceptor: Acceptor

  var openTalks: Int { talks.count { $0.isOpen } }

  /// `react` is called for each new connection, and whenever bytes arrive on one.
  init(on loop: EventLoop, _ react: @escaping (Talk) -> Void) throws {
    self.loop = loop
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    self.port = port
    let acceptor = Acceptor(listener, name: "test", reserve: .serves, on: loop, log: Log(level: .error))
    self.acceptor = acceptor
    _ = loop.begin { [weak self] in
      // `try?`: it throws only when the server is stopped.
      while let socket = try? await acceptor.accept() { self?.begin(socket, react) }
    }
  }

  private func begin(_ socket: Int32, _ react: @escaping (Talk) -> Void) {
    let talk = Talk(socket, on: loop)
    talks.append(talk)
    loop.watch(socket, for: .readable) { [unowned talk] _ in
      switch Descriptor.read(socket) {
      case .bytes(let bytes):
        talk.heard += bytes
        react(talk)
      case .wouldBlock: break
      case .end, .failed: talk.close()
      }
    }
    react(talk)
  }

  /// A server that sends back what it receives.
  static func echo(on loop: EventLoop) throws -> LoopServer {
    try LoopServer(on: loop) { talk in
      talk.say(talk.heard)
      talk.heard = []
    }
  }

  func stop() {
    acceptor.stop()
    for talk in talks { talk.close() }
  }
}

extension EventLoop {
  /// Connects, and turns the loop until there is a result.
  func connected(
    _ host: String, _ port: UInt16, _ proxy: String?, within limit: Duration = .seconds(20)
  ) throws -> Result<Int32, Connector.Failure> {
    let proxy = try proxy.map { try TunnelSettings(parsing: $0) }
    var result: Result<Int32, Connector.Failure>?
    _ = begin {
      do throws(Connector.Failure) {
        result = .success(try await self.connect(host: host, port: port, through: proxy, timeout: limit))
      } catch {
        result = .failure(error)
      }
    }
    guard LoopTestSupport.turn(self, until: { result != nil }), let result else { throw TimedOut() }
    return result
  }

  /// The error text of an attempt that must fail.
  func words(
    _ proxy: String, to host: String = "127.0.0.1", within limit: Duration = .seconds(20)
  ) throws -> String {
    switch try connected(host, 9, proxy, within: limit) {
    case .success(let socket):
      Descriptor.close(socket)
      return "connected"
    case .failure(let failure): return failure.description
    }
  }

  /// Whether an echo arrives over the socket; closes the socket.
  func echoes(_ socket: Int32) -> Bool {
    defer { Descriptor.close(socket) }
    let flags = fcntl(socket, F_GETFL), ofDescriptor = fcntl(socket, F_GETFD)
    guard flags & O_NONBLOCK != 0, ofDescriptor & FD_CLOEXEC != 0 else { return false }
    let question = Array("over and out".utf8)
    guard Descriptor.write(socket, question[...]) == .wrote(question.count) else { return false }
    var heard: [UInt8] = []
    return LoopTestSupport.turn(self) {
      if case .bytes(let bytes) = Descriptor.read(socket) { heard += bytes }
      return heard == question
    }
  }
}

/// The open descriptors of the process.
func descriptorNames() throws -> [String] {
  try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { name in
    // `try?`: the descriptor of the folder itself is closed by now.
    (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(name)")).map { "\(name) \($0)" }
  }
}

extension [UInt8] {
  func ends(with other: some BidirectionalCollection<UInt8>) -> Bool { reversed().starts(with: other.reversed()) }
}
