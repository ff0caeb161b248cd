// SPDX-License-Identifier: MIT

import TOML
import UntrustedText

/// `[retention]` of hub.toml: how long a hub stores gateways' events. Without it, for ever.
public struct Retention: Sendable, Equatable {
  /// Milliseconds by lane. The hub keeps an absent lane for ever.
  public var lanes: [EventBatch.Lane: Int64] = [:]
  /// Milliseconds by kind, which override the lane's; `nil`: this kind is kept for ever.
  public var kinds: [String: Int64?] = [:]

  public init() {}

  /// Whether the hub deletes nothing.
  public var isEmpty: Bool { lanes.isEmpty && kinds.values.allSatisfy { $0 == nil } }

  /// The age limit of events of this kind, in milliseconds; `nil`: none.
  func age(of kind: String) -> Int64? {
    if let own = kinds[kind] { return own }
    return lanes[KnownKinds.lane(of: kind)]
  }

  func age(of part: Purge.Part) -> Int64? {
    switch part {
    case .messages: age(of: "message")
    case .events(let kind): age(of: kind)
    }
  }

  /// The rows to delete. Joined messages have the age limit of message events.
  public var plan: PurgePlan { PurgePlan(age: { self.age(of: $0) }, messages: age(of: "message")) }

  private static let never = "never"

  init(_ table: inout TOMLReader) {
    for lane in EventBatch.Lane.allCases {
      if let age = Self.age(lane.rawValue, &table) { lanes[lane] = age }
    }
    var own = table.table("kinds")
    for kind in own.keys {
      if !Name.isAllowed(kind) { own.note(kind, "a kind of event: \(Name.allowed)") }
      // Gateways may send kinds that this hub does not know. One that is a slip away from a known one is a mistake, and
      // would delete what is to be kept.
      if !KnownKinds.all.contains(kind), let near = NearWords.near(kind, among: KnownKinds.all, within: 1).first {
        own.note(kind, "not a kind of event (did you mean \(near)?); known: \(KnownKinds.allowed)")
      }
      kinds[kind] = .some(Self.age(kind, &own))
    }
    own.finish()
    table.note(from: own)
    table.finish()
  }

  private static func age(_ key: String, _ table: inout TOMLReader) -> Int64? {
    guard let text = table.string(key), text != never else { return nil }
    guard let age = Age(text) else {
      table.note(key, "expected \(Age.allowed), or \"\(never)\"")
      return nil
    }
    return age.milliseconds
  }
}

/// An age as people write it: `90d`.
public struct Age: Equatable, Sendable {
  public static let allowed = "1h to 100y, such as \"12h\", \"90d\", \"4w\", \"2y\""
  public let milliseconds: Int64

  public init?(_ text: String) {
    let units: [Character: Int64] = ["h": 1, "d": 24, "w": 168, "y": 8760]
    guard let unit = text.last.flatMap({ units[$0] }), text.utf8.dropLast().allSatisfy({ (0x30...0x39).contains($0) }),
      let number = Int64(text.dropLast()), (1...876_000).contains(number), number * unit <= 876_000
    else { return nil }
    milliseconds = number * unit * 3_600_000
  }
}
