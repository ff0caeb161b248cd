// SPDX-License-Identifier: MIT

/// A limit for the epochs of a gateway. An event that may be here under another epoch is looked for in each of them, so
/// whoever has a gateway's token could make every later search as long as he likes.
extension HubStore {
  /// Most epochs of a gateway, with the further histories. A gateway begins an epoch when it loses its database.
  static let mostEpochs: Int64 = 1000

  /// Within a transaction: fails if these new epochs are too many for a gateway. A batch without events fails, too:
  /// otherwise the gateway would take a refused event for the reason, and give it up. The last one that is stored raises
  /// an alert: what is refused leaves nothing in the database.
  func limitEpochs(_ new: Set<GatewayEpoch>, _ work: IngestWork) throws(HubDatabaseError) {
    guard !new.isEmpty else { return }
    var counts: [String: Int64] = [:]
    for epoch in new { counts[epoch.gateway, default: 0] += 1 }
    let call = HubCall(
      "SELECT p.gateway, count(*) FROM @rows JOIN epochs p ON p.gateway = v.gateway GROUP BY p.gateway",
      ["gateway": counts.keys.sorted()]
    ) { counts[$0.text(0), default: 0] += $0.integer(1) }
    try database.perform([call], begins: false, ends: false)
    if let gateway = counts.filter({ $0.value > Self.mostEpochs }).keys.min() {
      throw HubDatabaseError(kind: .unfit, message: Self.tooManyEpochs(gateway))
    }
    for gateway in counts.filter({ $0.value == Self.mostEpochs }).keys.sorted() {
      let now = work.accepted.map(\.at).max() ?? 0
      try reportConflict(of: gateway, Self.tooManyEpochs(gateway), 1, at: now)
    }
  }

  private static func tooManyEpochs(_ gateway: String) -> String {
    "gateway \(gateway) has \(mostEpochs) epochs here, and gets no further one: "
      + "give it another id, and a new token if somebody else may have this one"
  }
}

extension HubStore.IngestWork {
  /// The accepted batches' epochs that the hub does not have yet.
  var newEpochs: Set<GatewayEpoch> { Set(accepted.map(\.gatewayEpoch)).intersection(unknown) }

  /// The positions to store. An epoch of which the hub has nothing gets no row.
  var storedProgress: [GatewayEpoch: HubStore.Progress] {
    let stored = Set(storedBatches.filter { !$0.events.isEmpty }.map(\.gatewayEpoch))
    return progress.filter { epoch, progress in
      !unknown.contains(epoch) || !progress.lanes.isEmpty || stored.contains(epoch)
    }
  }
}
