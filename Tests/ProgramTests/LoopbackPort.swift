// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// Free loopback ports that the kernel does not assign by itself: they are below the ports of outgoing connections (32768 and up), so no other
/// program gets one before the intended program.
enum LoopbackPort {
  private static let range: Range<UInt16> = 21_000..<25_000

  /// A bound port; close the descriptor to release it for a program.
  static func take() throws -> (descriptor: Int32, port: UInt16) {
    for _ in 0..<200 {
      let port = UInt16.random(in: range)
      // `try?`: the port is in use; the next one is tried.
      if reserve(port), let free = try? LoopbackSocket.listen(on: port) { return free }
    }
    throw Program.Waited(description: "no free port between \(range.lowerBound) and \(range.upperBound)")
  }

  /// Reserves the port until this process ends: while a test's server is down, another suite's could otherwise take its port. False: it belongs to
  /// another.
  private static func reserve(_ port: UInt16) -> Bool {
    let folder = "/tmp/meshpost-test-ports"
    mkdir(folder, 0o777)
    let descriptor = open("\(folder)/\(port)", O_RDWR | O_CREAT | O_CLOEXEC, 0o666)
    guard descriptor >= 0 else { return true }
    if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { return true }
    close(descriptor)
    return false
  }

  /// The first of two consecutive ports, on which a mesh's radios listen.
  static func pair() throws -> Int {
    for _ in 0..<200 {
      let first = try take()
      defer { close(first.descriptor) }
      // `try?`: the port is in use; the next one is tried.
      guard let second = try? LoopbackSocket.listen(on: first.port + 1) else { continue }
      close(second.descriptor)
      return Int(first.port)
    }
    throw Program.Waited(description: "no two free ports that follow each other")
  }

  /// A blocking connection to a port.
  static func connect(_ port: UInt16, receiveBuffer: Int32? = nil) throws -> Int32 {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    if var receiveBuffer {
      setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, socklen_t(MemoryLayout<Int32>.size))
    }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let connected = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard connected == 0 else { throw SystemError("connect to port \(port)") }
    return descriptor
  }
}
