// SPDX-License-Identifier: MIT

/// Further histories of an epoch, of senders that do not handle conflicts. Each has an epoch of its own, named by the first epoch, a dot, and the
/// digest of its first event.
extension HubStore {
  /// Most further histories of an epoch; an event of one more is refused.
  static let mostHistories = 16

  private struct History {
    let name: String
    var last: Int64
    /// Its events under the numbers in question.
    var events: [Int64: StoredEvent] = [:]
  }

  /// Chooses the history of each conflicting event: the history that has the event; otherwise, of those without its number, the history whose last
  /// event is nearest below it; otherwise a new history. So two clones on one broker make two epochs, and not an epoch for each event.
  func findHistories(_ work: inout IngestWork) throws(HubDatabaseError) {
    let found = work.accepted.filter { !$0.handlesConflicts }.flatMap { batch in
      batch.events.filter { work.conflicts($0, of: batch) }.map { (batch: batch, event: $0) }
    }
    var histories: [GatewayEpoch: [History]] = [:]
    let call = HubCall(
      """
      SELECT v.gateway, v.stem, v.seq, p.epoch,
      (SELECT max(m.seq) FROM events m WHERE m.gateway = p.gateway AND m.epoch = p.epoch), e.at, e.kind, e.body
      FROM @rows JOIN epochs p ON p.gateway = v.gateway AND substr(p.epoch, 1, length(v.stem)) = v.stem
      LEFT JOIN events e ON e.gateway = p.gateway AND e.epoch = p.epoch AND e.seq = v.seq
      """,
      [
        ("gateway", .texts(found.map(\.batch.gateway))),
        ("stem", .texts(found.map { IngestWork.historyPrefix($0.batch) })),
        ("seq", .integers(found.map(\.event.event.seq))),
      ]
    ) { row in
      var known = histories[GatewayEpoch(gateway: row.text(0), epoch: row.text(1)), default: []]
      let name = row.text(3)
      if !known.contains(where: { $0.name == name }) { known.append(History(name: name, last: row.integer(4))) }
      if let kind = row.textIfAny(6), let place = known.firstIndex(where: { $0.name == name }) {
        known[place].events[row.integer(2)] = StoredEvent(at: row.integer(5), kind: kind, body: row.text(7))
      }
      histories[GatewayEpoch(gateway: row.text(0), epoch: row.text(1))] = known
    }
    try database.perform([call], begins: false, ends: false)
    for (batch, event) in found {
      let beside = GatewayEpoch(gateway: batch.gateway, epoch: IngestWork.historyPrefix(batch))
      var known = histories[beside] ?? []
      let (own, seq) = (IngestWork.newHistoryKey(event, of: batch), event.event.seq)
      let place: Int
      if let here = known.firstIndex(where: { $0.events[seq]?.isSame(as: event) == true }) {
        place = here
      } else if let next = Self.next(known, for: seq) {
        place = next
      } else {
        guard known.count < Self.mostHistories else {
          throw HubDatabaseError(
            kind: .unfit,
            message:
              "event \(seq) of epoch \(batch.epoch) belongs to none of \(known.count + 1) histories that are here of it"
          )
        }
        place = known.count
        known.append(History(name: own.epoch, last: 0))
      }
      known[place].events[seq] = known[place].events[seq] ?? StoredEvent(event)
      known[place].last = max(known[place].last, seq)
      histories[beside] = known
      work.historyEpochs[own] = known[place].name
    }
  }

  private static func next(_ known: [History], for seq: Int64) -> Int? {
    let free = known.indices.filter { known[$0].events[seq] == nil }
    let below = free.filter { known[$0].last < seq }
    return below.max { known[$0].last < known[$1].last } ?? free.min { known[$0].last < known[$1].last }
  }
}
