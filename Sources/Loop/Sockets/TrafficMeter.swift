// SPDX-License-Identifier: MIT

import EventLoop

/// Counts the bytes that connections put on the line in both directions: payload, TLS, TCP and IP headers,
/// retransmissions. The kernel counts, and is asked when the figure is needed.
///
/// Name look-ups, attempts without an answer, and the ends of connections are estimates.
public final class TrafficMeter {
  /// Two DNS queries and their answers; names that the machine resolves itself cost less.
  private static let lookUp: UInt64 = 400
  /// In addition, for an attempt without an answer: five SYN segments in fifteen seconds.
  private static let nobody: UInt64 = 300
  /// Both sides close the connection.
  private static let ending: UInt64 = 156
  /// If the kernel cannot tell: for a handshake, and for each segment and its acknowledgement.
  private static let (opening, segment, perSegment): (UInt64, UInt64, UInt64) = (200, 1000, 104)

  private var ended: UInt64 = 0
  /// Bytes of payload that have moved, by socket.
  private var open: [Int32: UInt64] = [:]
  /// Called when this many more bytes have moved.
  private var alarm: (left: Int64, call: () -> Void)?

  public init() {}

  /// All bytes since the meter began.
  public var bytes: UInt64 { open.reduce(ended) { $0 &+ cost($1.key, payload: $1.value).bytes } }

  private func cost(_ socket: Int32, payload: UInt64) -> (bytes: UInt64, unsent: UInt64) {
    Descriptor.lineBytes(socket) ?? (payload &+ Self.opening &+ payload / Self.segment &* Self.perSegment, 0)
  }

  /// Calls `call` once, after about `bytes` more. A new alarm replaces the old one.
  public func alarm(after bytes: Int64, _ call: @escaping () -> Void) { alarm = (bytes, call) }

  /// A connection attempt begins.
  public func attempts() { ended &+= Self.lookUp }

  /// The attempt has failed.
  public func failed() {
    ended &+= Self.nobody
    ring(Int64(Self.lookUp + Self.nobody))
  }

  func begins(_ socket: Int32) { open[socket] = 0 }

  func moved(_ count: Int, on socket: Int32) {
    open[socket, default: 0] &+= UInt64(count)
    ring(Int64(count) + Int64(Self.perSegment))
  }

  /// Call it before the socket is closed.
  func ends(_ socket: Int32) {
    guard let payload = open.removeValue(forKey: socket) else { return }
    let (bytes, unsent) = cost(socket, payload: payload)
    ended &+= bytes &+ unsent &+ Self.ending
  }

  private func ring(_ count: Int64) {
    guard let alarm else { return }
    self.alarm = alarm.left > count ? (alarm.left - count, alarm.call) : nil
    if self.alarm == nil { alarm.call() }
  }
}
