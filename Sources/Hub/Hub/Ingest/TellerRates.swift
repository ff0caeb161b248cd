// SPDX-License-Identifier: MIT

/// How much each gateway has told each list of messages in the last minute, by the steady clock. In memory: who was told of before a restart, or at another
/// hub of the same database, is not counted here.
struct TellerRates {
  /// What a gateway that sends messages of other places takes of each other one unless its operator says otherwise (`relay.messages_per_minute`). What is told
  /// beyond that it leaves out: so such a word must not hide what somebody else says.
  static let perMinute = 6
  /// Counts at a time; then the half that was silent for longer begins anew.
  private static let most = 16_384

  /// Who tells, of one channel or of all.
  private struct Count: Hashable {
    let list: String
    let gateway: String
    let channel: String?
  }

  /// When the last messages were told, no more than count.
  private var times: [Count: [ContinuousClock.Instant]] = [:]
  /// Of the transaction, which may be done again.
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

  /// Whether it has told as much as counts of that channel. What it tells of others makes its word here no worse than it would be without anybody else's.
  func isFull(_ list: String, _ gateway: String, channel: String) -> Bool {
    isFull(Count(list: list, gateway: gateway, channel: channel))
  }

  /// One more; true: it is beyond what counts, of all channels together, as those who take several of them leave out what is beyond.
  mutating func tell(_ list: String, _ gateway: String, channel: String) -> Bool {
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
