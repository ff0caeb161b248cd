// SPDX-License-Identifier: MIT

import EventLoop

/// Counts what connections cost a line: payload, TLS, headers of TCP and IP, and what was sent again, both ways. The kernel counts; it is
/// asked when somebody wants to know.
///
/// Estimated are the look-up of a name, an attempt that found nobody, and the end of a connection.
public final class TrafficMeter {
  /// Two questions to a resolver and their answers; addresses that the machine knows itself cost less.
  private static let lookUp: UInt64 = 400
  /// Beside that, of an attempt that nobody answered: segments that open a connection, sent five times in fifteen seconds.
  private static let nobody: UInt64 = 300
  /// Both sides close it.
  private static let ending: UInt64 = 156
  /// Where the kernel cannot tell: of a handshake, and of each segment and its acknowledgement.
  private static let (opening, segment, perSegment): (UInt64, UInt64, UInt64) = (200, 1000, 104)

  private var ended: UInt64 = 0
  /// Bytes of payload that have moved, by socket.
  private var open: [Int32: UInt64] = [:]
  /// So many bytes are to move before somebody is told.
  private var alarm: (left: Int64, call: () -> Void)?

  public init() {}

  /// Since the meter began.
  public var bytes: UInt64 { open.reduce(ended) { $0 &+ cost($1.key, payload: $1.value).bytes } }

  private func cost(_ socket: Int32, payload: UInt64) -> (bytes: UInt64, unsent: UInt64) {
    Descriptor.lineBytes(socket) ?? (payload &+ Self.opening &+ payload / Self.segment &* Self.perSegment, 0)
  }

  /// Calls once, when about so many bytes more have moved. Of several only the last is kept.
  public func alarm(after bytes: Int64, _ call: @escaping () -> Void) { alarm = (bytes, call) }

  /// A connection is about to be made.
  public func attempts() { ended &+= Self.lookUp }

  /// It was not made.
  public func failed() {
    ended &+= Self.nobody
    ring(Int64(Self.lookUp + Self.nobody))
  }

  func begins(_ socket: Int32) { open[socket] = 0 }

  func moved(_ count: Int, on socket: Int32) {
    open[socket, default: 0] &+= UInt64(count)
    ring(Int64(count) + Int64(Self.perSegment))
  }

  /// Before the socket is closed.
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
