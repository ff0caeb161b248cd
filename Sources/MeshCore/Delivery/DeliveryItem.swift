// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Where a message goes.
public enum Destination: Hashable, Sendable {
  case node(PublicKey)
  /// A channel, by the digest of its secret: slots may change.
  case channel(String)
}

/// The data of a message that sending needs; its text stays on disk.
public struct DeliveryItem: Equatable, Sendable {
  /// Its state when it was loaded.
  public enum Progress: Equatable, Sendable {
    case pending
    /// The program ended while it was being passed to the radio, or waiting for its acknowledgement: it is unknown whether it was
    /// transmitted.
    case interrupted
  }

  public var id: Int64
  public var destination: Destination
  public var priority: DeliveryPriority
  /// The origin; origins take turns.
  public var origin: String
  /// Bytes of the text; in a channel with the name that the radio puts in front.
  public var bytes: Int
  public var expires: MonotonicTime
  /// It is not sent before that.
  public var notBefore: MonotonicTime?
  /// Number of the next attempt; never used twice.
  public var attempt: UInt8
  /// Attempts that the radio took, and how many of them were flooded.
  public var tries: Int
  public var floods: Int
  /// Acknowledgements of all attempts so far.
  public var codes: [AckCode]
  public var progress: Progress

  public init(
    id: Int64, destination: Destination, priority: DeliveryPriority, origin: String, bytes: Int,
    expires: MonotonicTime, notBefore: MonotonicTime? = nil, attempt: UInt8 = 0, tries: Int = 0, floods: Int = 0,
    codes: [AckCode] = [],
    progress: Progress = .pending
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
  }

  var channel: String? { if case .channel(let digest) = destination { digest } else { nil } }
}

/// How an attempt goes.
public enum DeliveryRoute: Equatable, Sendable {
  case direct
  case flood
  /// A path is known and did not work: forget it, then flood.
  case resetAndFlood

  public var isFlood: Bool { self != .direct }
}

/// How an attempt goes out, so that its acknowledgement is told from those of the others.
public struct AttemptForm: Equatable, Sendable {
  /// Beyond this number a byte more goes into the text.
  static let lastInFlags: UInt8 = 3
  /// A text that has room for that byte.
  static let longestWithByte = 158

  /// The number that goes out with the text.
  public let number: UInt8
  /// It takes a new time: it has none yet, or is too long for that byte, and becomes another message.
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
  /// All attempts went out, none was acknowledged.
  case noAcknowledgement = "no_acknowledgement"
  case expired
  /// It expired while the radio's table was full.
  case tableFull = "radio_table_full"
  case cancelled
  /// The radio has no such contact, or no slot with that channel.
  case unknownToRadio = "unknown_to_radio"
  /// The radio's firmware cannot send to the region that the message is for.
  case regionUnknown = "region_unknown"
  /// The radio has received itself what another place's gateway had heard.
  case heardByRadio = "heard_by_radio"
  /// The radio does not take it for another reason.
  case refused
}

/// The radio's reply to an attempt.
public enum DeliveryAnswer: Equatable, Sendable {
  /// SENT: its expected acknowledgement, and how long the radio suggests to wait, ms.
  case sent(code: AckCode, flooded: Bool, timeout: UInt32)
  /// OK to a channel message: nothing more will ever be heard from it but repeats.
  case channelSent
  /// ERR 3: no packet free. Nothing was sent.
  case busy
  /// ERR 2.
  case unknown
  /// It refused the region: nothing was sent.
  case regionUnknown
  /// The radio was not asked: the message is on the air there already.
  case heardByRadio
  case refused
  /// No reply: it may have been sent.
  case unanswered
  /// The link was lost; it may have been sent.
  case linkLost
  /// It was not handed over at all: the disk did not take its state, or the link was down.
  case notTried
}

/// Actions for the shell. States are to be stored in the order of the actions.
public enum DeliveryAction: Equatable, Sendable {
  /// Keep that it is being sent as `attempt`; when that is on disk, hand it to the radio; then call `answered`.
  case transmit(id: Int64, attempt: UInt8, route: DeliveryRoute, airtime: Int64)
  /// The radio has it; `code` acknowledges it.
  case sent(id: Int64, code: AckCode?, tries: Int, floods: Int)
  /// `tripTime` in ms, as the radio measured it.
  case delivered(id: Int64, tripTime: UInt32)
  /// `unspent`: of what the attempt was charged, milliseconds that it did not use, as nothing went out.
  case failed(id: Int64, DeliveryFailure, unspent: Int64 = 0)
  /// It continues later: an attempt was not acknowledged, or nothing went out.
  case waiting(id: Int64, unspent: Int64 = 0)
  /// So many more repeated acknowledgements, or repeats of a channel message, were heard.
  case heard(id: Int64, count: Int)
  case discoverPath(PublicKey)
}
