// SPDX-License-Identifier: MIT

/// Messages that were old when they came, by the word of those who had reported them until then: pure. A gateway with a wrong clock, or a lying one,
/// must not silence the push of a message that another gateway reports as new.
struct OldNews {
  /// The newest ones that are remembered, and late news that subscriptions may still get.
  static let (mostOld, mostLate) = (1000, 64)

  /// How far messages were looked at; `nil`: nothing was looked at since the start.
  private(set) var through: Int64?
  private(set) var old: [Int64] = []
  /// In the order in which they became news.
  private var late: [Int64] = []
  /// The number of messages that have become news since the start.
  private(set) var count = 0
  /// Of each subscription, how many of them it had.
  private var told: [String: Int] = [:]

  /// `found`: the old ones among the messages up to this one.
  mutating func looked(through newest: Int64, found: [Int64]) {
    through = newest
    old = Array(Set(old + found).sorted().suffix(Self.mostOld))
  }

  mutating func becameNews(_ positions: [Int64]) {
    guard !positions.isEmpty else { return }
    let these = Set(positions)
    old.removeAll { these.contains($0) }
    count += these.count
    late = (late + these.sorted()).suffix(Self.mostLate)
  }

  /// The late news for a subscription that was looked for up to this message. The messages behind it come as all others do.
  func news(for id: String, through position: Int64) -> [Int64] {
    late.suffix(count - told[id, default: count]).filter { $0 <= position }
  }

  mutating func told(_ id: String, through count: Int) { told[id] = count }

  /// A new subscription begins with what becomes news from now on.
  mutating func keep(only ids: Set<String>) {
    told = told.filter { ids.contains($0.key) }
    for id in ids where told[id] == nil { told[id] = count }
  }
}
