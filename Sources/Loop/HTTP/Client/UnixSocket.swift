// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// Sockets at locations of the file system, which do not block.
public enum UnixSocket {
  private static let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)

  /// How long a caller may wait for a place in a full queue.
  public static let patience: Duration = .seconds(5)
  /// The pause between two attempts.
  public static let pause: Duration = .milliseconds(50)

  /// Fails at once if nobody listens there, and with EAGAIN if the listener's queue is full: that passes within a turn of its loop.
  public static func connect(_ location: String) throws(SystemError) -> Int32 {
    try make(location, "connect") { Glibc.connect($0, $1, $2) }
  }

  /// Whether somebody listens there, perhaps with a full queue.
  static func hasListener(_ location: String) -> Bool {
    do throws(SystemError) {
      close(try connect(location))
      return true
    } catch {
      return error.code == EAGAIN
    }
  }

  static func bind(_ location: String) throws(SystemError) -> Int32 {
    try make(location, "bind") { Glibc.bind($0, $1, $2) }
  }

  private static func make(
    _ location: String, _ call: String, _ use: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32
  ) throws(SystemError) -> Int32 {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let bytes = Array(location.utf8)
    let room = MemoryLayout.size(ofValue: address.sun_path) - 1
    guard bytes.count <= room else { throw SystemError(call, code: ENAMETOOLONG) }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
    let descriptor = socket(AF_UNIX, type, 0)
    guard descriptor >= 0 else { throw SystemError("socket") }
    let code = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        use(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard code == 0 else {
      let error = SystemError(call)
      close(descriptor)
      throw error
    }
    return descriptor
  }
}
