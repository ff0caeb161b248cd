// SPDX-License-Identifier: MIT

import Glibc

/// A Unix socket that receives datagrams, in place of a service manager or a journal.
public final class DatagramListener {
  private let descriptor: Int32

  /// `nil`: the socket cannot be bound there.
  public init?(_ location: String) {
    descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    guard location.utf8.count < MemoryLayout.size(ofValue: address.sun_path) else { return nil }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: location.utf8) }
    let bound = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard bound == 0 else { return nil }
  }

  deinit { close(descriptor) }

  /// Waits for the next datagram.
  public func next() -> String { receive(0) ?? "" }

  /// The next datagram, if it has arrived already; otherwise `nil`.
  public func nextNow() -> String? { receive(Int32(MSG_DONTWAIT)) }

  private func receive(_ flags: Int32) -> String? {
    var bytes = [UInt8](repeating: 0, count: 65536)
    let count = recv(descriptor, &bytes, bytes.count, flags)
    return count < 0 ? nil : String(decoding: bytes.prefix(count), as: UTF8.self)
  }
}
