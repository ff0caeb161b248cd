// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// How long a message may have been queued in the radio before the gateway received it.
///
/// A radio queues messages until they are fetched, and does not report when it received them. It is only known that this was
/// after the queue was last empty.
public enum RadioWait: Equatable, Sendable {
  /// It was queued for two minutes at most.
  case none
  /// It was queued for at most so many seconds.
  case atMost(seconds: Int64)
  /// An unknown time: since before the gateway started, or in another radio.
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
  /// Seconds; `nil`: it is new, or its age is unknown. `offset`: seconds that the sender's clock is ahead of ours, as
  /// its adverts showed.
  ///
  /// Without an offset the clock is unknown. A message that was received just now is then assumed to be new; for a queued one
  /// the time is used if it is plausible.
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

  /// Seconds beyond which a clock is likelier wrong than a message old.
  private static let longest: Int64 = 30 * 86_400
  /// How much a clock may drift after its advert was received.
  private static let tolerance: Int64 = 600
  /// A message takes its time over the mesh.
  private static let transit: Int64 = 600
  /// Seconds under which a message is new.
  private static let fresh: Int64 = 60
}

extension Store {
  /// Within a `write`: an advert of this node has just come, with the time of its clock.
  public func noteClock(of key: PublicKey, advert: UInt32, at moment: Moment) throws(SQLiteError) {
    guard moment.trusted else { return }
    let offset = Int64(advert) - moment.milliseconds / 1000
    try database.run(
      "UPDATE contacts SET clock_offset = ?2 WHERE key = ?1 AND (clock_offset IS NULL OR abs(clock_offset - ?2) > 5)",
      .blob(key.bytes), .integer(offset))
  }

  /// Seconds that this node's clock is ahead of ours; `nil`: unknown, or a prefix of several keys.
  func clockOffset(of prefix: KeyPrefix) throws(SQLiteError) -> Int64? {
    let next = prefix.value == 0xFFFF_FFFF_FFFF ? nil : KeyPrefix(value: prefix.value + 1).bytes
    var found: [Int64?] = []
    try database.every(
      "SELECT clock_offset FROM contacts WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) LIMIT 2",
      [.blob(prefix.bytes), .optional(next)]
    ) { row in
      found.append(row.integerIfAny(0))
    }
    return found.count == 1 ? found[0] : nil
  }
}
