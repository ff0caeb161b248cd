// SPDX-License-Identifier: MIT

import Companion
import Timing

/// The recipient of a message.
public enum Destination: Hashable, Sendable {
  case node(PublicKey)
  /// A channel, identified by the digest of its secret, because slots may change.
  case channel(String)
}

/// The properties of a message that sending needs; its text stays on disk.
public struct DeliveryItem: Equatable, Sendable {
  /// The message's state when it was loaded.
  public enum Progress: Equatable, Sendable {
    case pending
    /// The program ended while it handed the message to the radio or waited for its acknowledgement: it is unknown
    /// whether the message was transmitted.
    case interrupted
    /// A whole round of attempts was not acknowledged.
    case held
  }

  public var id: Int64
  public var destination: Destination
  public var priority: DeliveryPriority
  /// The source of the message; sources take turns.
  public var origin: String
  /// Bytes of the text; on a channel, including the name that the radio prepends.
  public var bytes: Int
  public var expires: MonotonicTime
  /// The message is not sent before this time.
  public var notBefore: MonotonicTime?
  /// The number of the next attempt; no number is used twice.
  public var attempt: UInt8
  /// Attempts that the radio accepted or may have accepted, and how many of them were flooded.
  public var tries: Int
  public var floods: Int
  /// The acknowledgement codes of all attempts so far.
  public var codes: [AckCode]
  public var progress: Progress
  /// A room takes posts only in the order of their times: a later one waits for those before it.
  public var isOrdered: Bool
  /// Whether its floods carry a region, which makes them longer; `nil`: as the radio's default says.
  public var isInRegion: Bool?

  public init(
    id: Int64, destination: Destination, priority: DeliveryPriority, origin: String, bytes: Int,
    expires: MonotonicTime, notBefore: MonotonicTime? = nil, attempt: UInt8 = 0, tries: Int = 0, floods: Int = 0,
    codes: [AckCode] = [],
    progress: Progress = .pending, isOrdered: Bool = false, isInRegion: Bool? = nil
  ) {
    self.id = id
    self.destination = destination
    self.priority = priority
    self.origin = origin
    self.bytes = bytes
    self.expires = expires
    self.notBefore = notBefore
    self.attempt = attempt
    self.tries = tries
    self.floods = floods
    self.codes = codes
    self.progress = progress
    self.isOrdered = isOrdered
    self.isInRegion = isInRegion
  }

  func isBefore(_ other: DeliveryItem) -> Bool { id < other.id && destination == other.destination }

  var channel: String? { if case .channel(let digest) = destination { digest } else { nil } }
}

/// The route of an attempt.
public enum DeliveryRoute: Equatable, Sendable {
  case direct
  case flood
  /// The known path did not work: reset it, then flood.
  case resetAndFlood

  public var isFlood: Bool { self != .direct }
}

/// The number and time of an attempt, so that its acknowledgement differs from those of the other attempts.
public struct AttemptForm: Equatable, Sendable {
  /// An attempt with a higher number carries it in an extra byte of the text.
  static let lastInFlags: UInt8 = 3
  /// The longest text that has room for the extra byte.
  static let longestWithByte = 158

  /// The number that is sent with the text.
  public let number: UInt8
  /// The attempt needs a new time: the message has none yet, or its text has no room for the extra byte and it becomes
  /// a different message.
  public let needsTime: Bool

  /// `bytes`: of the text alone.
  public init(attempt: UInt8, bytes: Int, hasTime: Bool) {
    let isBeyond = attempt > Self.lastInFlags
    needsTime = !hasTime || isBeyond && bytes > Self.longestWithByte
    number = isBeyond && needsTime ? attempt & Self.lastInFlags : attempt
  }
}

/// Why a message was not delivered.
public enum DeliveryFailure: String, Equatable, Sendable {
  /// It was transmitted, and no attempt was acknowledged within its lifetime: nobody knows whether it has arrived.
  case noAcknowledgement = "no_acknowledgement"
  /// It was never transmitted within its lifetime.
  case expired
  /// The message expired while the radio's packet pool was full.
  case tableFull = "radio_table_full"
  case cancelled
  /// The radio has no such contact, or no slot for that channel.
  case unknownToRadio = "unknown_to_radio"
  /// The radio's firmware cannot send to the message's region.
  case regionUnknown = "region_unknown"
  /// The radio has itself received the message that was to be relayed from another gateway.
  case heardByRadio = "heard_by_radio"
  /// The database was put back, and nobody knows whether the message from another gateway was sent before.
  case beforeRestore = "before_restore"
  /// The radio has refused it for another reason.
  case refused
}

/// The radio's reply to an attempt.
public enum DeliveryAnswer: Equatable, Sendable {
  /// SENT: the expected acknowledgement, and the radio's suggested time-out in ms.
  case sent(code: AckCode, flooded: Bool, timeout: UInt32)
  /// OK for a channel message; there is no acknowledgement, only repeats by others.
  case channelSent
  /// ERR 3: the packet pool is full. Nothing was transmitted.
  case busy
  /// ERR 2: unknown contact or channel. A message that was held is held again.
  case unknown
  /// The radio has refused the region: nothing was transmitted.
  case regionUnknown
  /// The radio was not asked, because it has heard the message on the air already.
  case heardByRadio
  /// The radio was not asked, because another copy of the database may have sent it.
  case beforeRestore
  /// The radio was not asked: the recipient ignores the message, because it is older than what it has had since. It may have it.
  case tooOld
  case refused
  /// The radio did not reply; the message may have been transmitted.
  case unanswered
  /// The link was lost; the message may have been transmitted.
  case linkLost
  /// The radio never got it: the disk did not take the state, or the link was down.
  case notTried
}

/// Actions for the shell. States are to be stored in the order of the actions.
public enum DeliveryAction: Equatable, Sendable {
  /// Store that `attempt` is being sent; once that is on disk, hand it to the radio; then call `answered`.
  case transmit(id: Int64, attempt: UInt8, route: DeliveryRoute, airtime: Int64)
  /// The radio has accepted it; `code` will acknowledge it.
  case sent(id: Int64, code: AckCode?, tries: Int, floods: Int)
  /// `tripTime`: milliseconds, measured by the radio.
  case delivered(id: Int64, tripTime: UInt32)
  /// `unspent`: reserved air time that was not used, in milliseconds, because nothing was transmitted.
  case failed(id: Int64, DeliveryFailure, unspent: Int64 = 0)
  /// The message continues later: an attempt was not acknowledged, or nothing was transmitted.
  case waiting(id: Int64, unspent: Int64 = 0)
  /// The round was not acknowledged. The message waits for its recipient, until its lifetime ends. `isFirst`: this was its
  /// first round.
  case held(id: Int64, isFirst: Bool)
  /// `count` more repeated acknowledgements, or repeats of a channel message, were heard.
  case heard(id: Int64, count: Int)
  case discoverPath(PublicKey)
  /// A flood reset this path, and was not acknowledged: put it back into the radio.
  case restorePath(PublicKey)
}
