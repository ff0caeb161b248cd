// SPDX-License-Identifier: MIT

import Glibc

/// The connections on this machine with both ends in this program: shows whether one end has sent bytes that the other has not received yet.
///
/// The kernel counts both. Unacknowledged bytes are less reliable: to save a segment, an acknowledgement waits for up to 200 ms after the arrival.
/// But a small segment that is written meanwhile waits for it in the sender's kernel (Nagle's algorithm), and so is on the way, too.
public struct Loopback {
  /// Hashes of both addresses.
  private struct Addresses: Hashable {
    var local: UInt64
    var remote: UInt64
  }

  /// States of a connection, from <netinet/tcp.h>.
  private enum State {
    static let established: UInt64 = 1
    static let synSent: UInt64 = 2
    static let listening: UInt64 = 10
  }

  /// Watched descriptors, except those known to be closed or to be no connections. `nil`: it is not connected yet, as far as is known.
  private var ends: [Int32: Addresses?] = [:]
  /// The two ends of each connection.
  private var pairs: [(Int32, Int32)] = []
  private var isPaired = true
  /// Ends whose other end is closed, until they know it.
  private var halves: Set<Int32> = []
  /// The addresses of watched descriptors at which connections are accepted.
  private var listeners: [Int32: UInt64] = [:]
  /// Ends that are connected to a listener here, as far as their kernel knows. The listener's does not, or it has not accepted the connection.
  private var unaccepted: [Int32] = []
  /// How often one was seen to begin or to end. Behind a full window, or a full backlog, it may do so for good.
  private var looks: [Int32: Int] = [:]
  private static let mostLooks = 300

  public init() {}

  /// Notes a descriptor that is watched.
  public mutating func insert(_ descriptor: Int32) {
    if case .some(.some(let known)) = ends[descriptor] {
      guard Self.addresses(descriptor) != known else { return }
      if let (one, other) = pairs.first(where: { $0.0 == descriptor || $0.1 == descriptor }) {
        halves.insert(one == descriptor ? other : one)
      }
    }
    ends[descriptor] = .some(nil)
    listeners[descriptor] = nil
    halves.remove(descriptor)
    looks[descriptor] = nil
    isPaired = false
  }

  /// Whether one end has sent bytes that the other end has not received, or has begun or ended a connection and the other end does not know.
  public mutating func hasBytesOnTheWay() -> Bool {
    if !isPaired { pair() }
    for (one, other) in pairs where !Self.isAcknowledged(one) || !Self.isAcknowledged(other) {
      let (first, second) = (Self.payload(one), Self.payload(other))
      if first == nil { halves.insert(other) }
      if second == nil { halves.insert(one) }
      guard let first, let second else {
        isPaired = false
        continue
      }
      if first.isHeld || second.isHeld { return true }
      if first.sent > second.received || second.sent > first.received { return true }
    }
    for descriptor in halves {
      if let state = Self.payload(descriptor)?.state, state <= State.synSent, isLookedAt(descriptor) {
        return true
      }
      halves.remove(descriptor)
    }
    return unaccepted.contains { Self.payload($0)?.state == State.established && isLookedAt($0) }
  }

  private mutating func isLookedAt(_ descriptor: Int32) -> Bool {
    looks[descriptor, default: 0] += 1
    return looks[descriptor]! < Self.mostLooks
  }

  private mutating func pair() {
    for (one, other) in pairs {
      if Self.payload(one) == nil { halves.insert(other) }
      if Self.payload(other) == nil { halves.insert(one) }
    }
    isPaired = true
    var places: [Addresses: Int32] = [:]
    for (descriptor, known) in ends {
      guard let payload = Self.payload(descriptor) else {
        (ends[descriptor], looks[descriptor]) = (nil, nil)
        listeners[descriptor] = Self.address(descriptor, getsockname)
        continue
      }
      // A connection that is not made yet is asked again.
      guard let found = known ?? Self.addresses(descriptor) else {
        isPaired = false
        if payload.state == State.synSent { halves.insert(descriptor) }
        continue
      }
      ends[descriptor] = found
      places[found] = descriptor
    }
    pairs = places.compactMap { found, descriptor in
      guard found.local < found.remote else { return nil }
      return places[Addresses(local: found.remote, remote: found.local)].map { (descriptor, $0) }
    }
    let accepting = Set(listeners.values)
    unaccepted = places.compactMap { found, descriptor in
      let isAccepted = places[Addresses(local: found.remote, remote: found.local)] != nil
      return isAccepted || !accepting.contains(found.remote) ? nil : descriptor
    }
  }

  /// The state and the bytes of a TCP connection, from their offsets in `tcp_info` of <linux/tcp.h>; `nil`: it is no connection. `isHeld`: bytes wait
  /// for the acknowledgement of earlier ones. Before a full window, nothing is unacknowledged.
  private static func payload(_ descriptor: Int32) -> (state: UInt64, isHeld: Bool, sent: UInt64, received: UInt64)? {
    withUnsafeTemporaryAllocation(of: UInt64.self, capacity: 32) { info in
      var length = socklen_t(info.count * 8)
      guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, info.baseAddress, &length) == 0, length >= 216 else {
        return nil
      }
      let (state, received, sent, sentAgain) = (info[0] & 0xFF, info[16], info[25], info[26])
      // The lower halves: `tcpi_unacked` and `tcpi_notsent_bytes`.
      let isHeld = UInt32(truncatingIfNeeded: info[3]) > 0 && UInt32(truncatingIfNeeded: info[18]) > 0
      return state == State.listening ? nil : (state, isHeld, sent - sentAgain, received)
    }
  }

  /// Whether all that was sent is acknowledged, and so has arrived: asked first, because it costs a quarter of what the counts cost.
  private static func isAcknowledged(_ descriptor: Int32) -> Bool {
    var bytes: Int32 = 0
    // SIOCOUTQ of <linux/sockios.h> is TIOCOUTQ. A closed descriptor is not acknowledged.
    return ioctl(descriptor, UInt(TIOCOUTQ), &bytes) == 0 && bytes == 0
  }

  private static func addresses(_ descriptor: Int32) -> Addresses? {
    guard let local = address(descriptor, getsockname), let remote = address(descriptor, getpeername) else {
      return nil
    }
    return Addresses(local: local, remote: remote)
  }

  /// FNV-1a of an address.
  private static func address(
    _ descriptor: Int32, _ ask: (Int32, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
  ) -> UInt64? {
    var bytes = [UInt8](repeating: 0, count: 128)
    var length = socklen_t(bytes.count)
    let isKnown = bytes.withUnsafeMutableBytes {
      ask(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), &length) == 0
    }
    guard isKnown else { return nil }
    return bytes.prefix(Int(length)).reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
  }
}
