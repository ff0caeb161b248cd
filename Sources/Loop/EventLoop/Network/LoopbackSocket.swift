// SPDX-License-Identifier: MIT

import Glibc

/// Listening on 127.0.0.1.
public enum LoopbackSocket {
  /// A non-blocking listening socket, and its port; port 0 takes a free one.
  public static func listen(on wanted: UInt16) throws(SystemError) -> (descriptor: Int32, port: UInt16) {
    guard let place = ListenAddress("127.0.0.1:\(wanted)") else { throw SystemError("listen", code: EINVAL) }
    let descriptor = try place.listen()
    var address = sockaddr_in()
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    withUnsafeMutablePointer(to: &address) {
      _ = $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) }
    }
    return (descriptor, UInt16(bigEndian: address.sin_port))
  }
}
