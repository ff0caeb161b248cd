// SPDX-License-Identifier: MIT

/// Updates about messages, for the lists that gateways read. A list gets each message from the first gateway that reports it, and again with a better
/// time. Readers may leave out a gateway's updates beyond its rate limit: so after an excess update, the list also gets the message from the next
/// gateway that reports it. Otherwise a flood with a stolen token could hide honest gateways' messages.
extension HubStore {
  /// The latest sending time that a list has of a message.
  struct ListedTimes {
    /// Of all updates.
    var sent: Int64
    /// Of the updates within rate limits; `nil`: there is none.
    var settled: Int64?

    mutating func add(_ sent: Int64, isBeyond: Bool) {
      self.sent = max(self.sent, sent)
      if !isBeyond { settled = max(settled ?? 0, sent) }
    }
  }

  /// The updates that a transaction adds to a list.
  struct ListUpdates {
    /// The gateway whose list it is; empty: the lists of channels.
    let list: String
    private(set) var all: [ListUpdate] = []
    private(set) var states: [String: ListedTimes] = [:]
    private var places: [String: Int] = [:]
    private var reporters: Set<MessageHearer> = []

    init(of list: String) { self.list = list }

    /// `isFirst`: the gateway had not reported that message before this transaction.
    mutating func add(
      _ hearing: MessageReport, isFirst: Bool, after before: ListedTimes?, _ rates: inout ReporterRates
    ) {
      guard let channel = hearing.heard.channel else { return }
      let (identity, gateway, sent) = (hearing.heard.identity, hearing.gateway, hearing.sent)
      let (state, place) = (states[identity] ?? before, places[identity])
      let isBetter = state.map { Self.isLater(sent, than: $0.sent) } ?? true
      let isOpen = state.map { $0.settled.map { Self.isLater(sent, than: $0) } ?? true } ?? true
      // Once for each gateway, within its rate limit.
      let mayTell = isFirst && !reporters.contains(hearing.hearer) && !rates.isFull(list, gateway, channel: channel)
      guard isBetter || isOpen && mayTell else { return }
      let isBeyond = rates.add(list, gateway, channel: channel)
      let entry = ListUpdate(hearing: hearing, isBeyond: isBeyond)
      reporters.insert(hearing.hearer)
      states[identity, default: state ?? ListedTimes(sent: sent)].add(sent, isBeyond: isBeyond)
      if isBetter, let place, !isBeyond || all[place].hearing.gateway == gateway {
        all[place] = entry
      } else {
        places[identity] = all.count
        all.append(entry)
      }
    }

    private static func isLater(_ sent: Int64, than other: Int64) -> Bool {
      sent > other && sent - other > HubStore.better
    }
  }

  struct ListUpdate {
    let hearing: MessageReport
    let isBeyond: Bool

    var update: Update? {
      hearing.heard.update.map {
        Update(identity: hearing.heard.identity, body: $0, source: hearing.gateway, isBeyond: isBeyond)
      }
    }
  }

  // MARK: For all on a channel

  /// Reads the messages whose updates exceed a rate limit, and whether this is a gateway's first report of each. On a server other transactions wait
  /// from here to the commit.
  func findingUnsettled(
    _ hearers: [MessageReport], _ row: @escaping (MessageHearer, _ isFirst: Bool, ListedTimes) -> Void
  ) -> HubCall {
    let columns = """
      m.identity, v.gateway, m.sent, m.settled,
      CASE WHEN EXISTS (SELECT 1 FROM heard h WHERE h.message = m.position AND h.gateway = v.gateway) THEN 0 ELSE 1 END
      """
    return HubCall(
      """
      SELECT \(columns) FROM @rows JOIN messages m ON m.identity = v.identity WHERE m.settled IS NOT NULL
      ORDER BY m.position \(database.dialect == .postgres ? "FOR UPDATE OF m" : "")
      """, ["identity": hearers.map(\.heard.identity), "gateway": hearers.map(\.gateway)]
    ) {
      let hearer = MessageHearer(identity: $0.text(0), gateway: $0.text(1))
      let settled = $0.integer(3)
      row(hearer, $0.integer(4) == 1, ListedTimes(sent: $0.integer(2), settled: settled < 0 ? nil : settled))
    }
  }

  /// Stores the settled times that have changed.
  func storingSettledTimes(_ updates: ListUpdates, _ before: [String: ListedTimes]) -> HubCall {
    var rows: [(identity: String, settled: Int64?)] = []
    for (identity, state) in updates.states.sorted(by: { $0.key < $1.key }) {
      let settled = [state.settled, before[identity]?.settled].compactMap(\.self).max() ?? -1
      if settled < state.sent {
        rows.append((identity, settled))
      } else if before[identity] != nil {
        rows.append((identity, nil))
      }
    }
    return HubCall(
      "UPDATE messages SET settled = v.settled FROM @rows WHERE messages.identity = v.identity",
      ["identity": rows.map(\.identity), "settled": rows.map(\.settled)])
  }

  // MARK: For gateways with named hearers

  /// The updates for gateways that take messages of named hearers: each message from the first named hearer that reports it, and again as in the
  /// channels' lists. However many hear a message, the list holds it about once.
  func heardLists(_ hearings: [MessageReport], _ work: IngestWork) -> [BucketKey: [Update]] {
    var lists: [String: ListUpdates] = [:]
    for hearing in hearings {
      guard let channel = hearing.heard.channel else { continue }
      for gateway in work.named.takers(of: hearing.gateway)
      where work.named.joined.contains(GatewayChannel(gateway: gateway, channel: channel)) {
        let before = work.named.listed[MessageHearer(identity: hearing.heard.identity, gateway: gateway)]
        lists[gateway, default: ListUpdates(of: gateway)].add(hearing, isFirst: true, after: before, &reporterRates)
      }
    }
    var updates: [BucketKey: [Update]] = [:]
    for (gateway, list) in lists {
      updates[BucketKey(scope: gateway, name: Self.heardBucket)] = list.all.compactMap(\.update)
    }
    return updates
  }

  /// Reads which of these messages a named hearer has reported before, and their updates in the list. A message whose update has left the list, for
  /// example in a flood, is not settled.
  func findingListed(_ work: IngestWork, _ row: @escaping (MessageHearer, _ sent: Int64, _ isBeyond: Bool) -> Void)
    -> HubCall
  {
    var asked: Set<MessageHearer> = []
    for batch in work.accepted {
      for case .heard(let heard) in batch.events.map(\.effect) where heard.update != nil {
        for gateway in work.named.takers(of: batch.gateway) {
          asked.insert(MessageHearer(identity: heard.identity, gateway: gateway))
        }
      }
    }
    let rows = Array(asked)
    let told = """
      LEFT JOIN updates u ON u.gateway = v.gateway AND u.gateway <> '' AND u.bucket = '\(Self.heardBucket)'
      AND u.id = v.identity AND u.body <> ''
      """
    // A gateway names few hearers; many may have heard a message.
    let isHeard = """
      EXISTS (SELECT 1 FROM wanted_hearers w CROSS JOIN heard h
      WHERE w.gateway = v.gateway AND h.message = m.position AND h.gateway = w.hearer)
      """
    let columns = "v.identity, v.gateway, u.at, u.body, u.beyond"
    return HubCall(
      "SELECT \(columns) FROM @rows JOIN messages m ON m.identity = v.identity \(told) WHERE \(isHeard)",
      ["identity": rows.map(\.identity), "gateway": rows.map(\.gateway)]
    ) {
      let place = MessageHearer(identity: $0.text(0), gateway: $0.text(1))
      guard let body = $0.textIfAny(3) else { return row(place, .max, true) }
      // Never later than the arrival, whatever the gateway's clock says.
      let sent = PreparedEvent.Heard.sent(byUpdate: body).map { [came = $0.integer(2)] in min($0, came) } ?? .max
      row(place, sent, $0.integer(4) == 1)
    }
  }
}

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
