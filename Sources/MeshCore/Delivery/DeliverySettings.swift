// SPDX-License-Identifier: MIT

/// How messages are sent. The defaults are those that the field's apps have agreed on
/// (docs/protocol/app-conventions.md § 9).
public struct DeliverySettings: Equatable, Sendable {
  /// The radio remembers so many expected acknowledgements, in a ring (docs/protocol/companion.md § 9.4).
  public static let radioMemory = 8

  /// Maximum transmissions of a direct message.
  public var maxAttempts = 4
  /// So many go along the known path; then the path is reset and the rest is flooded.
  public var floodAfter = 2
  public var maxFloods = 2
  /// The radio's suggested time-out is multiplied by this.
  public var timeoutFactor = 1.2
  /// Messages that wait for their acknowledgement at once, 1 to `radioMemory`.
  public var maxInFlight = radioMemory
  /// Ask for a path when a flood arrived and brought none back.
  public var discoversPaths = true
  public var budget = AirtimeBudget.Limits()

  public init() {}

  /// Timeout of an attempt in seconds if the radio's suggestion was lost with its reply.
  static let unknownTimeout: Duration = .seconds(15)
  /// Acknowledgements and repeats are counted for so long after a message has ended.
  public static let grace: Duration = .seconds(60)
  /// Delay after the first repeat until repeats are reported together.
  static let heardDelay: Duration = .seconds(5)
  /// How long a late acknowledgement still changes a failed message to delivered.
  static let lateGrace: Duration = .seconds(600)
  /// Ended messages whose codes are remembered.
  static let maxEnded = 64
  /// After a flood arrived, the answer's path gets so long before one is asked for.
  static let discoveryDelay: Duration = .seconds(10)
  /// The firmware's packet pool is full, or the disk does not take the state: wait this long, growing.
  static let refusalFirst: Duration = .seconds(1)
  static let refusalLimit: Duration = .seconds(60)
  /// A pool that is still full after many tries: each costs two commits.
  static let fullLimit: Duration = .seconds(600)
  /// Attempt numbers are one byte; a message never gets close to that limit.
  static let lastAttempt: UInt8 = 250
}

/// Priority of a message. A lower value goes first, and may use more of the budget.
public enum DeliveryPriority: UInt8, Comparable, Sendable, CaseIterable {
  /// A person waits.
  case interactive = 0
  /// From an upstream.
  case relayed = 1
  /// Polls and the like.
  case bulk = 2

  public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }

  /// How much of the budget it may use, in per cent: the rest is kept for those before it.
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
