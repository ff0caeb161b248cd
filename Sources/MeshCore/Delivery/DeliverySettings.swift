// SPDX-License-Identifier: MIT

/// How messages are sent. The defaults are those of MeshCore's apps (docs/protocol/app-conventions.md § 9).
public struct DeliverySettings: Equatable, Sendable {
  /// The number of expected acknowledgements that the radio remembers, in a ring (docs/protocol/companion.md § 9.4).
  public static let radioMemory = 8

  /// Maximum transmissions of a direct message in a round.
  public var maxAttempts = 4
  /// After this many attempts along the path, it is reset and further attempts are flooded.
  public var floodAfter = 2
  public var maxFloods = 2
  /// The radio's suggested time-out is multiplied by this.
  public var timeoutFactor = 1.2
  /// Messages that may wait for an acknowledgement at the same time, 1 to `radioMemory`.
  public var maxInFlight = radioMemory
  /// Whether a channel message that no repeater was heard with is sent once more. It is the same packet, which nodes that have it drop for a while.
  public var repeatsUnheard = false
  /// Whether to ask for a path when a flood was acknowledged without bringing one.
  public var discoversPaths = true
  public var budget = AirtimeBudget.Limits()
  /// From this use of the channel on, in per cent, what is not urgent waits (`Manners`); 100: it does not. Meshtastic's firmware waits from 25 per
  /// cent of the last minute on (`polite_channel_util_percent`), and without coordination a channel carries 18 per cent at most.
  public var busyPercent = 25

  public init() {}

  /// The time-out of an attempt if the radio's suggestion was lost with its reply.
  static let unknownTimeout: Duration = .seconds(15)
  /// How long acknowledgements and repeats are counted after a message has ended.
  public static let grace: Duration = .seconds(60)
  /// How long to wait for a repeater, before a channel message is sent once more.
  static let repeatDelay: Duration = .seconds(20)
  /// How long nodes know at least that they have a packet: their tables of duplicates turn over with the traffic.
  public static let duplicatesKnown: Duration = .seconds(60)
  /// How long a busy air may keep what the radio has accepted: firmware sends after four seconds in any case.
  static let busyAir: Duration = .seconds(10)
  /// Delay after the first repeat until repeats are reported together.
  static let heardDelay: Duration = .seconds(5)
  /// How long a late acknowledgement still changes a failed message to delivered.
  static let lateGrace: Duration = .seconds(600)
  /// Ended messages whose codes are remembered.
  static let maxEnded = 64
  /// How long to wait for the answer's path after an acknowledged flood before asking for one.
  static let discoveryDelay: Duration = .seconds(10)
  /// The first pause when the radio's packet pool is full, or the disk does not take the state; it grows.
  static let refusalFirst: Duration = .seconds(1)
  static let refusalLimit: Duration = .seconds(60)
  /// The longest pause while the pool stays full: each attempt costs two commits.
  static let fullLimit: Duration = .seconds(600)
  /// How much too long a radio may say that it runs: it counts whole seconds, and boards begin to count before they listen. A channel message that is sent
  /// again without need is the same packet.
  static let uptimeTolerance: Duration = .seconds(3)
  /// Messages that take turns after a sign of life, and their attempts together until the first acknowledgement.
  static let mostInTurn = 4
  static let mostAttemptsInTurn = 6
  /// Attempts of a slow round.
  static let slowAttempts = 2
  /// Attempts of a held message before another one to its recipient is tried in its place.
  static let attemptsInTurn: UInt8 = 8
  /// The pauses before the first slow rounds, and before later ones.
  static let slowPauses: [Duration] = [.seconds(15), .seconds(120)] + [Duration](repeating: .seconds(600), count: 6)
  /// The pauses before the first slow rounds for a node that was heard within `late`; later ones follow every ten minutes.
  static let shortPauses: [Duration] = [.seconds(15), .seconds(60), .seconds(120), .seconds(300)]
  static let late: Duration = .seconds(1800)
  static let hourlyPause: Duration = .seconds(3600)
  static let hourlyRounds = 31
  static let longestPause: Duration = .seconds(4 * 3600)
  /// A pause that the end of a lifetime shortens lasts at least so long, and such a part of the absence.
  static let leastShortened: Duration = .seconds(120)
  static let partsOfAbsence: Int64 = 32
  /// The shortest pause between a round and one that a sign of life begins. It doubles with each fruitless one.
  static let leastPause: Duration = .seconds(15)
  static let leastHintPause: Duration = .seconds(120)
  static let longestFruitless: Duration = .seconds(600)
  /// Attempt numbers are one byte: a message that has used them up is not tried any more.
  static let lastAttempt: UInt8 = 250
}

/// Priority of a message. A lower value goes first, and may use more of the budget.
public enum DeliveryPriority: UInt8, Comparable, Sendable, CaseIterable {
  /// A person is waiting.
  case interactive = 0
  /// From an upstream.
  case relayed = 1
  /// Polls and other background work.
  case bulk = 2

  public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }

  /// The share of the budget that this priority may use, in per cent: the rest is reserved for higher priorities.
  public var share: Int64 {
    switch self {
    case .interactive: 100
    case .relayed: 80
    case .bulk: 50
    }
  }

  public var name: String {
    switch self {
    case .interactive: "interactive"
    case .relayed: "relayed"
    case .bulk: "bulk"
    }
  }

  public init?(name: String) {
    guard let found = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = found
  }
}
