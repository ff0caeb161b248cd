// SPDX-License-Identifier: MIT

/// The number of messages that each gateway has put into each list in the last minute, by the steady clock. A restart forgets the counts, and other
/// hubs on the database do not share them.
struct ReporterRates {
  /// The messages a minute that a gateway takes from each other gateway, unless its operator changes that (`relay.messages_per_minute`). It leaves
  /// out excess messages, so they must not hide another gateway's report.
  static let perMinute = 6
  /// Most counts. At this limit it forgets the half without recent messages.
  private static let most = 16_384

  /// A gateway that puts messages of one channel, or of all, into a list.
  private struct Count: Hashable {
    let list: String
    let gateway: String
    let channel: String?
  }

  /// The times of the last messages, `perMinute` at most.
  private var times: [Count: [ContinuousClock.Instant]] = [:]
  /// The counts of this transaction, which may be repeated.
  private var open: [Count: [ContinuousClock.Instant]] = [:]
  private var now = ContinuousClock.now

  var count: Int { times.count }

  mutating func begin(now: ContinuousClock.Instant) { (self.now, open) = (now, [:]) }

  mutating func commit() {
    times.merge(open) { _, new in new }
    open = [:]
    guard times.count > Self.most else { return }
    let newest = times.values.compactMap(\.last).sorted()
    times = times.filter { $0.value.last.map { $0 > newest[newest.count / 2] } ?? false }
  }

  /// Whether a gateway has reached the limit for a channel. Its messages on other channels do not count here.
  func isFull(_ list: String, _ gateway: String, channel: String) -> Bool {
    isFull(Count(list: list, gateway: gateway, channel: channel))
  }

  /// Counts a message. `true`: the gateway exceeds the limit for all channels together: a reader of several channels leaves out the excess.
  mutating func add(_ list: String, _ gateway: String, channel: String) -> Bool {
    let all = Count(list: list, gateway: gateway, channel: nil)
    let isBeyond = isFull(all)
    for count in [all, Count(list: list, gateway: gateway, channel: channel)] {
      open[count] = ((open[count] ?? times[count] ?? []) + [now]).suffix(Self.perMinute)
    }
    return isBeyond
  }

  private func isFull(_ count: Count) -> Bool {
    guard let told = open[count] ?? times[count], told.count >= Self.perMinute else { return false }
    return now - told[0] < .seconds(60)
  }
}
