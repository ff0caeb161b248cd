// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// How long a message may have waited in the radio before the gateway received it.
///
/// A radio queues messages until they are fetched, and does not report when it received them. The gateway only knows
/// that this was after the queue was last empty.
public enum RadioWait: Equatable, Sendable {
  /// At most two minutes.
  case none
  /// At most this many seconds.
  case atMost(seconds: Int64)
  /// Unknown: since before the gateway started, or in another radio.
  case unknown

  private static let unknownColumn: Int64 = -1

  var column: Int64? {
    switch self {
    case .none: nil
    case .atMost(let seconds): max(0, seconds)
    case .unknown: Self.unknownColumn
    }
  }

  init(column: Int64?) {
    self = column.map { $0 < 0 ? .unknown : .atMost(seconds: $0) } ?? .none
  }
}

/// How long ago a message was sent, by its sender's clock.
///
/// The sender chooses that time. It can make a message older, but never newer: time in the queue always counts, and impossible
/// times are ignored.
enum MessageAge {
  /// Seconds; `nil`: the message is new, or its age is unknown. `offset`: seconds that the sender's clock is ahead of
  /// ours, according to its adverts.
  ///
  /// Without an offset the clock is unknown. Then a message that was received at once is assumed to be new; for a
  /// queued one the time is used if it is plausible.
  static func seconds(senderTime: UInt32?, received: Moment, offset: Int64?, wait: RadioWait) -> Int64? {
    guard let senderTime, received.trusted else { return nil }
    let (sent, overflow) = Int64(senderTime).subtractingReportingOverflow(offset ?? 0)
    let (age, overflows) = (received.milliseconds / 1000).subtractingReportingOverflow(sent)
    guard !overflow, !overflows, age <= longest else { return nil }
    guard offset != nil else {
      guard wait != .none, age >= 0 else { return nil }
      if case .atMost(let seconds) = wait, age - transit > seconds { return nil }
      return age
    }
    guard age >= -tolerance else { return nil }
    return age < fresh && wait == .none ? nil : max(0, age)
  }

  /// With a greater difference in seconds, a wrong clock is likelier than an old message.
  private static let longest: Int64 = 30 * 86_400
  /// Seconds by which a clock may have drifted since its advert.
  private static let tolerance: Int64 = 600
  /// Seconds that a message may take over the mesh.
  private static let transit: Int64 = 600
  /// A younger message counts as new; seconds.
  private static let fresh: Int64 = 60
}

extension Store {
  /// Within a `write`: an advert of this node has just been received, with the time of the node's clock.
  public func noteClock(of key: PublicKey, advert: UInt32, at moment: Moment) throws(SQLiteError) {
    guard moment.trusted else { return }
    let offset = Int64(advert) - moment.milliseconds / 1000
    clockWasHeard(key, offset)
    lookAtClock()
    guard clockProof.doubt == nil else { return }
    try keepClockOffset(of: key, offset)
  }

  /// Within a `write`: a node's answer has told its clock. After a clock was set back, this is all that is known: the radio ignores adverts that are
  /// older than one that it has.
  public func keepClockOffset(of key: PublicKey, _ offset: Int64) throws(SQLiteError) {
    try database.run(
      "UPDATE contacts SET clock_offset = ?2 WHERE key = ?1 AND (clock_offset IS NULL OR abs(clock_offset - ?2) > 5)",
      .blob(key.bytes), .integer(offset))
  }

  /// Seconds that this node's clock is ahead of ours; `nil`: unknown, or the prefix belongs to several keys. The node's did not move with ours.
  func clockOffset(of prefix: KeyPrefix) throws(SQLiteError) -> Int64? {
    guard let moved = aheadOfCompared else { return nil }
    let next = prefix.value == 0xFFFF_FFFF_FFFF ? nil : KeyPrefix(value: prefix.value + 1).bytes
    var found: [Int64?] = []
    try database.every(
      "SELECT clock_offset FROM contacts WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) LIMIT 2",
      [.blob(prefix.bytes), .optional(next)]
    ) { row in
      found.append(row.integerIfAny(0))
    }
    return found.count == 1 ? found[0].map { $0 - moved } : nil
  }
}
