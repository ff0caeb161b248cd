// SPDX-License-Identifier: MIT

import JSON
import SQLite

extension HubStore {
  /// How far an epoch of a gateway's journal is on disk, by lane. Source: docs/hub-protocol.md.
  public struct Progress: Equatable, Sendable {
    static let columns = EventBatch.Lane.allCases.map(\.rawValue)

    /// Highest seq of each lane; a lane of which nothing is here is absent.
    public private(set) var lanes: [EventBatch.Lane: Int64] = [:]

    public init() {}

    /// `first`: the column of the first lane.
    init(_ row: any HubRow, from first: Int = 0) {
      for (index, lane) in EventBatch.Lane.allCases.enumerated() {
        let seq = row.integer(first + index)
        if seq > 0 { lanes[lane] = seq }
      }
    }

    /// For those who do not know lanes: the smallest of the lanes of which there is anything.
    public var acknowledged: Int64 { lanes.values.min() ?? 0 }

    /// The last event before the next batch of this lane, or of one without a lane.
    func position(of lane: EventBatch.Lane?) -> Int64 {
      guard let lane else { return acknowledged }
      return lanes[lane] ?? 0
    }

    /// A batch without a lane is in the order of the whole journal: it counts for all of them.
    mutating func took(_ batch: EventBatch) {
      guard let last = batch.events.last?.seq else { return }
      for lane in batch.lane.map({ [$0] }) ?? EventBatch.Lane.allCases { lanes[lane] = max(lanes[lane] ?? 0, last) }
    }

    func write(to json: inout JSONWriter) {
      json.objectField("lanes") { json in
        for lane in EventBatch.Lane.allCases { json.field(lane.rawValue, lanes[lane]) }
      }
    }
  }

  /// `nil` for a gateway or an epoch that is not known.
  public func progress(gateway: String, epoch: String) throws(HubDatabaseError) -> Progress? {
    try database.first(
      "SELECT \(Progress.columns.joined(separator: ", ")) FROM epochs WHERE gateway = ?1 AND epoch = ?2",
      .text(gateway), .text(epoch)
    ) { Progress($0) }
  }

  /// Within a transaction that holds the gateway's lock.
  func keep(_ progress: Progress, gateway: String, epoch: String) throws(HubDatabaseError) {
    let lanes = progress.lanes
    // `messages` was the only position before there were lanes, and is never NULL.
    try database.run(
      "UPDATE epochs SET messages = ?3, nodes = ?4, packets = ?5 WHERE gateway = ?1 AND epoch = ?2", .text(gateway),
      .text(epoch), .integer(lanes[.messages] ?? 0), lanes[.nodes].map(SQLiteValue.integer) ?? .null,
      lanes[.packets].map(SQLiteValue.integer) ?? .null)
  }
}
