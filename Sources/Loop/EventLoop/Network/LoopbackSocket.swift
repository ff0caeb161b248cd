// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Listening on 127.0.0.1.
public enum LoopbackSocket {
  /// A non-blocking listening socket, and its port; port 0 takes a free one.
  public static func listen(on wanted: UInt16) throws(SystemError) -> (descriptor: Int32, port: UInt16) {
    let flags = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    let descriptor = socket(AF_INET, flags, 0)
    guard descriptor >= 0 else { throw SystemError("socket") }
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = wanted.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) }
    }
    guard bound == 0, Glibc.listen(descriptor, 16) == 0 else {
      let error = SystemError("listen on port \(wanted)")
      close(descriptor)
      throw error
    }
    withUnsafeMutablePointer(to: &address) {
      _ = $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) }
    }
    return (descriptor, UInt16(bigEndian: address.sin_port))
  }
}
