// SPDX-License-Identifier: MIT

import JSON

/// An epoch of a gateway's journal.
struct GatewayEpoch: Hashable, Sendable {
  let gateway: String
  let epoch: String
}

extension HubStore {
  /// What a gateway learns of an epoch when it asks. Source: docs/hub-protocol.md.
  struct Standing: Sendable {
    /// `nil`: the gateway or the epoch is unknown.
    var progress: Progress?
    /// The gateway's other epochs, with the highest seq of each: first that of its newest message or report.
    var others: [(epoch: String, last: Int64)] = []
    /// The most of them, and the most that are looked at: whoever has a gateway's token can make as many as he likes.
    static let (mostOthers, mostLooked) = (16, 64)

    var json: JSONObject {
      let named = JSONObject(others.prefix(Self.mostOthers).map { ($0.epoch, $0.last) })
      return ["others": others.isEmpty ? nil : named]
    }
  }

  /// The stored part of an epoch of a gateway's journal, by lane. Source: docs/hub-protocol.md.
  public struct Progress: Equatable, Sendable {
    static let columns = EventBatch.Lane.allCases.map(\.rawValue)

    /// The highest seq of each lane; a lane without events is absent.
    public fileprivate(set) var lanes: [EventBatch.Lane: Int64] = [:]
    /// The digest of the event of that seq, for a gateway that asks for its position. Absent: the event is a gap. Empty: it has been deleted.
    var digests: [EventBatch.Lane: String] = [:]

    public init() {}

    /// `first`: the column of the first lane.
    init(_ row: any HubRow, from first: Int = 0) {
      for (index, lane) in EventBatch.Lane.allCases.enumerated() {
        let seq = row.integer(first + index)
        if seq > 0 { lanes[lane] = seq }
      }
    }

    init(_ seq: (EventBatch.Lane) -> Int64?) {
      for lane in EventBatch.Lane.allCases { lanes[lane] = seq(lane) }
    }

    /// Assumes that the events were deleted, until they are found.
    mutating func expectDigests() { digests = lanes.mapValues { _ in "" } }

    /// The position for gateways without lanes: the smallest of the lanes with events.
    public var acknowledged: Int64 { lanes.values.min() ?? 0 }

    /// The last event before the next batch of this lane, or of a batch without a lane.
    func position(of lane: EventBatch.Lane?) -> Int64 {
      guard let lane else { return acknowledged }
      return lanes[lane] ?? 0
    }

    /// Counts a batch. One without a lane is in the order of the whole journal, and counts for all lanes.
    mutating func took(_ batch: PreparedBatch) {
      guard let last = batch.events.last?.event.seq else { return }
      for lane in batch.lane.map({ [$0] }) ?? EventBatch.Lane.allCases { lanes[lane] = max(lanes[lane] ?? 0, last) }
    }

    func json(withDigests: Bool = true) -> JSONObject {
      let shown = withDigests && !digests.isEmpty
      return [
        "lanes": JSONObject(EventBatch.Lane.allCases.map { ($0.rawValue, lanes[$0]) }),
        "digests": shown ? JSONObject(EventBatch.Lane.allCases.map { ($0.rawValue, digests[$0]) }) : nil,
      ]
    }
  }

  /// The stored part of an epoch; `nil`: the gateway or the epoch is unknown.
  public func progress(gateway: String, epoch: String) throws(HubDatabaseError) -> Progress? {
    try standings(of: [GatewayEpoch(gateway: gateway, epoch: epoch)]).first?.progress
  }

  /// The same for the lanes in `ends`, and in each lane at most up to that seq: its newest event, or the newest of any lane before that if it is
  /// deleted, as a state is that a later one has replaced. So a gateway can compare contents.
  func progress(
    gateway: String, epoch: String, through ends: Progress
  ) throws(HubDatabaseError) -> Progress? {
    guard let whole = try progress(gateway: gateway, epoch: epoch) else { return nil }
    var found = Progress { lane in
      ends.lanes[lane].flatMap { end in whole.lanes[lane].map { min($0, end) } }
    }
    found.expectDigests()
    let ends = found.lanes
    let call = HubCall(
      """
      SELECT v.seq, e.seq, e.at, e.kind, e.body FROM @rows
      JOIN events e ON e.gateway = v.gateway AND e.epoch = v.epoch AND e.seq = (
      SELECT max(x.seq) FROM events x
      WHERE x.gateway = v.gateway AND x.epoch = v.epoch AND x.seq <= v.seq AND x.kind <> 'gap')
      """, ["gateway": ends.map { _ in gateway }, "epoch": ends.map { _ in epoch }, "seq": Array(ends.values)]
    ) { row in
      let digest = StoredEvent(row, from: 2).digest
      for (lane, end) in ends where end == row.integer(0) {
        (found.lanes[lane], found.digests[lane]) = (row.integer(1), digest)
      }
    }
    try database.read([call])
    return found
  }

  /// SQL: the epoch of the newest event of `g`, among those that no later state replaces. `g.epoch` is the epoch that began last: an older card that
  /// was put back goes on in its own.
  private static let newestEpoch: String = {
    let newest = ["message", "outgoing", "gap"].map { kind in
      "SELECT * FROM (SELECT id, epoch FROM events WHERE gateway = g.id AND kind = '\(kind)' ORDER BY id DESC LIMIT 1) \(kind)"
    }
    return "SELECT x.epoch FROM (\(newest.joined(separator: " UNION ALL "))) x ORDER BY x.id DESC LIMIT 1"
  }()

  /// Where the hub is in each epoch, in the same order.
  func standings(of epochs: [GatewayEpoch]) throws(HubDatabaseError) -> [Standing] {
    var found: [GatewayEpoch: Standing] = [:]
    let columns = ["e", "n"].flatMap { table in Progress.columns.map { "\(table).\($0)" } }.joined(separator: ", ")
    try database.read([
      HubCall(
        """
        SELECT g.id, v.epoch, n.epoch, e.epoch, \(columns) FROM @rows JOIN gateways g ON g.id = v.gateway
        LEFT JOIN epochs e ON e.gateway = g.id AND e.epoch = v.epoch
        LEFT JOIN epochs n ON n.gateway = g.id AND n.epoch = coalesce((\(Self.newestEpoch)), g.epoch)
        """, ["gateway": epochs.map(\.gateway), "epoch": epochs.map(\.epoch)]
      ) { row in
        var standing = Standing()
        if row.textIfAny(3) != nil {
          standing.progress = Progress(row, from: 4)
          standing.progress?.expectDigests()
        }
        if let newest = row.textIfAny(2), newest != row.text(1) {
          standing.others = [(newest, Progress(row, from: 4 + Progress.columns.count).lanes.values.max() ?? 0)]
        }
        found[GatewayEpoch(gateway: row.text(0), epoch: row.text(1))] = standing
      },
      HubCall(
        """
        SELECT e.gateway, v.epoch, e.epoch, \(Progress.columns.map { "e.\($0)" }.joined(separator: ", ")) FROM @rows
        JOIN epochs e ON e.gateway = v.gateway AND e.epoch <> v.epoch
        AND e.epoch IN (SELECT p.epoch FROM epochs p WHERE p.gateway = v.gateway LIMIT \(Standing.mostLooked))
        """, ["gateway": epochs.map(\.gateway), "epoch": epochs.map(\.epoch)]
      ) { row in
        let place = GatewayEpoch(gateway: row.text(0), epoch: row.text(1))
        guard let epoch = row.textIfAny(2), found[place]?.others.first?.epoch != epoch else { return }
        found[place]?.others.append((epoch, Progress(row, from: 3).lanes.values.max() ?? 0))
      },
      HubCall(
        """
        SELECT e.gateway, e.epoch, x.seq, x.at, x.kind, x.body FROM @rows
        JOIN epochs e ON e.gateway = v.gateway AND e.epoch = v.epoch
        JOIN events x ON x.gateway = e.gateway AND x.epoch = e.epoch AND x.seq IN (e.messages, e.nodes, e.packets)
        """, ["gateway": epochs.map(\.gateway), "epoch": epochs.map(\.epoch)]
      ) { row in
        let place = GatewayEpoch(gateway: row.text(0), epoch: row.text(1))
        let digest = StoredEvent(row, from: 3).digest
        for lane in EventBatch.Lane.allCases where found[place]?.progress?.lanes[lane] == row.integer(2) {
          found[place]?.progress?.digests[lane] = digest
        }
      },
    ])
    return epochs.map { found[$0] ?? Standing() }
  }
}
