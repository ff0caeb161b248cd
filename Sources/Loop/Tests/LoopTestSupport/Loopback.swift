// SPDX-License-Identifier: MIT

import Glibc

/// The connections on this machine with both ends in this program: shows whether one end has sent bytes that the other has not received yet.
///
/// The kernel counts both. Unacknowledged bytes are less reliable: to save a segment, an acknowledgement waits for up to 200 ms after the arrival.
public struct Loopback {
  private struct Addresses: Hashable {
    var local: [UInt8]
    var remote: [UInt8]
  }

  /// Descriptors that were ever watched, except those known to be closed or to be no connections.
  private var descriptors: Set<Int32> = []
  private var addresses: [Int32: Addresses] = [:]

  public init() {}

  /// Notes a descriptor that is watched.
  public mutating func insert(_ descriptor: Int32) {
    descriptors.insert(descriptor)
    addresses[descriptor] = nil
  }

  /// Whether one end has sent bytes that the other end has not received.
  public mutating func hasBytesOnTheWay() -> Bool {
    var sent: [Addresses: UInt64] = [:]
    var received: [Addresses: UInt64] = [:]
    for descriptor in descriptors {
      guard let payload = Self.payload(descriptor) else {
        descriptors.remove(descriptor)
        continue
      }
      guard let ends = addresses[descriptor] ?? Self.addresses(descriptor) else { continue }
      addresses[descriptor] = ends
      sent[ends] = payload.sent
      received[Addresses(local: ends.remote, remote: ends.local)] = payload.received
    }
    return sent.contains { ends, bytes in received[ends].map { $0 < bytes } ?? false }
  }

  /// The bytes of a TCP connection, from their offsets in `tcp_info` of <linux/tcp.h>; `nil`: it is no connection.
  private static func payload(_ descriptor: Int32) -> (sent: UInt64, received: UInt64)? {
    var info = [UInt64](repeating: 0, count: 32)
    var length = socklen_t(info.count * 8)
    guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, &info, &length) == 0, length >= 216 else { return nil }
    let (received, sent, sentAgain) = (info[16], info[25], info[26])
    return (sent - sentAgain, received)
  }

  private static func addresses(_ descriptor: Int32) -> Addresses? {
    guard let local = address(descriptor, getsockname), let remote = address(descriptor, getpeername) else {
      return nil
    }
    return Addresses(local: local, remote: remote)
  }

  private static func address(
    _ descriptor: Int32, _ ask: (Int32, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
  ) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: 128)
    var length = socklen_t(bytes.count)
    let isKnown = bytes.withUnsafeMutableBytes {
      ask(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), &length) == 0
    }
    return isKnown ? Array(bytes.prefix(Int(length))) : nil
  }
}
