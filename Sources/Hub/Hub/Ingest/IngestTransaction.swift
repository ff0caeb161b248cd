// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// Stores batches of any gateways in one transaction, table by table: four round trips to a server for any number of batches.
extension HubStore {
  /// Stores the new events of the batches, and returns an answer to each, in order. A batch behind a gap is not stored.
  func take(_ batches: [PreparedBatch], now: ContinuousClock.Instant = .now) throws(HubDatabaseError) -> [IngestAnswer]
  {
    try keep(batches, now).answers
  }

  /// Stores the new events of batches without an order, and returns them. The gateways' positions stay as they are.
  func keepUnordered(_ batches: [PreparedBatch]) throws(HubDatabaseError) -> Set<EventKey> {
    try keep(batches, .now).added
  }

  private func keep(_ batches: [PreparedBatch], _ now: ContinuousClock.Instant) throws(HubDatabaseError) -> IngestWork {
    var refused: [EventKey: StoredEvent] = [:]
    let done = try database.retrying { () throws(HubDatabaseError) in
      resetChanges()
      reporterRates.begin(now: now)
      var work = IngestWork()
      work.refused = refused
      let known = try begin(batches, &work)
      var batches = batches
      try emptyDeleted(&batches, of: work.deleters)
      decide(batches, known, &work)
      try limitEpochs(work.newEpochs, work)
      try findMoved(&work)
      try moveConflicting(&work)
      try storeEvents(&work)
      try findConflicting(&work)
      if !work.conflicting.isEmpty {
        let unknown = refusals(work).filter { refused[$0.key] == nil }
        refused.merge(unknown) { _, new in new }
        // Repeats the transaction without the conflicting events: otherwise their messages would count as known, and no gateway would get them from a
        // later report.
        if !unknown.isEmpty { throw HubDatabaseError(kind: .conflict, message: "events are here with other content") }
        withdraw(known, &work)
      }
      try finish(batches, work)
      return work
    }
    reporterRates.commit()
    notifyListener()
    done.conflicting.keys.first?.logConflict()
    return done
  }

  // MARK: Positions

  /// Reads how far the batches' epochs are.
  private func begin(
    _ batches: [PreparedBatch], _ work: inout IngestWork
  ) throws(HubDatabaseError) -> [GatewayEpoch: Progress] {
    // Locked in one order, so that no two hubs wait for each other.
    let gateways = Set(batches.map(\.gateway)).sorted()
    let epochs = Array(Set(batches.map { $0.gatewayEpoch }))
    var (known, newest) = ([GatewayEpoch: Progress](), [String: String]())
    let columns = Progress.columns.map { "e.\($0)" }.joined(separator: ", ")
    let positions = HubCall(
      """
      SELECT g.id, e.epoch, g.epoch, \(columns) FROM @rows JOIN gateways g ON g.id = v.gateway
      LEFT JOIN epochs e ON e.gateway = g.id AND e.epoch = v.epoch
      """, ["gateway": epochs.map(\.gateway), "epoch": epochs.map(\.epoch)]
    ) { row in
      newest[row.text(0)] = row.text(2)
      guard let epoch = row.textIfAny(1) else { return }
      known[GatewayEpoch(gateway: row.text(0), epoch: epoch)] = Progress(row, from: 3)
    }
    var wanted: [String: [String]] = [:]
    let wantedCall = HubCall(
      "SELECT w.hearer, w.gateway FROM @rows JOIN wanted_hearers w ON w.hearer = v.gateway", ["gateway": gateways]
    ) { wanted[$0.text(0), default: []].append($0.text(1)) }
    var deleters: Set<String> = []
    try database.perform(
      database.locking(gateways) + [positions, wantedCall, findingDeleters(gateways) { deleters.insert($0) }],
      begins: true, ends: false)
    (work.named.takers, work.deleters) = (wanted, deleters)
    work.newest = newest
    for epoch in epochs where known[epoch] == nil {
      known[epoch] = Progress()
      work.unknown.insert(epoch)
    }
    return known
  }

  /// Decides which batches are stored, and how each is answered.
  private func decide(_ batches: [PreparedBatch], _ known: [GatewayEpoch: Progress], _ work: inout IngestWork) {
    work.progress = known
    for (place, batch) in batches.enumerated() {
      let epoch = batch.gatewayEpoch
      var progress = work.progress[epoch] ?? Progress()
      let before = progress.position(of: batch.lane)
      if let after = batch.after, after > before {
        work.answers.append(.outOfOrder(before))
        continue
      }
      if batch.isOrdered { progress.took(batch) }
      work.progress[epoch] = progress
      if work.unknown.contains(epoch), !batch.events.isEmpty { work.newest[batch.gateway] = batch.epoch }
      work.accepted.append(batch)
      work.indices.append(place)
      // A lane that begins with an old event lowers the smallest position, but an acknowledgement never decreases.
      work.answers.append(.acknowledged(max(before, progress.position(of: batch.lane))))
    }
  }

  // MARK: The journal

  private func storeEvents(_ work: inout IngestWork) throws(HubDatabaseError) {
    var added: Set<EventKey> = []
    var told: Set<String> = []
    var removed: [ContactKey: String] = [:]
    let moved = work.moved
    // A deletion looks for other reporters: behind the locks on names, and before the first message.
    var calls = work.deletesMessages ? database.stoppingMessages(Self.longestWait) : []
    calls.append(
      insertingEvents(work.storedBatches, without: moved) { row in
        added.insert(EventKey(gateway: row.text(0), epoch: row.text(1), seq: row.integer(2)))
      })
    var named = work.named
    if !named.takers.isEmpty {
      // Another transaction may store the same message, heard by another gateway.
      let lists = Set(named.takers.values.flatMap(\.self)).sorted().map { "\(Self.heardBucket) \($0)" }
      calls = database.locking(lists) + calls
      calls.append(
        findingListed(work) { named.listed[$0, default: ListedTimes(sent: $1)].add($1, isBeyond: $2) })
      calls.append(findingKnownChannels(work) { named.joined.insert($0) })
    }
    var (first, unsettled): (Set<MessageHearer>, [String: ListedTimes]) = ([], [:])
    calls += storingMessages(
      work, hearer: { named.reports.insert($0) },
      unsettled: { hearer, isFirst, state in
        unsettled[hearer.identity] = state
        if isFirst { first.insert(hearer) }
      }
    ) { told.insert($0.text(0)) }
    let gone = work.accepted.flatMap { batch in
      batch.events.compactMap { event in
        if case .contactRemoved(let key) = event.effect { ContactKey(batch.gateway, key) } else { nil }
      }
    }
    if !gone.isEmpty {
      let places = Array(Set(gone))
      calls.append(
        HubCall(
          """
          SELECT c.gateway, c.key, c.body FROM @rows JOIN contacts c ON c.gateway = v.gateway AND c.key = v.key
          """, ["gateway": places.map(\.gateway), "key": places.map(\.text)]
        ) { removed[ContactKey($0.text(0), $0.text(1))] = $0.text(2) })
    }
    try database.perform(calls, begins: false, ends: false)
    (work.added, work.updated, work.removed, work.named) = (added, told, removed, named)
    (work.unsettled, work.firstReports) = (unsettled, first)
  }

  private func insertingEvents(
    _ batches: [PreparedBatch], without left: Set<EventKey>, _ row: @escaping (any HubRow) -> Void
  ) -> HubCall {
    let rows = batches.flatMap { batch in
      batch.events.compactMap { left.isEmpty || !left.contains(batch.key($0)) ? (batch, $0) : nil }
    }
    return HubCall(
      into: "events",
      [
        "gateway": rows.map(\.0.gateway), "epoch": rows.map(\.0.epoch), "seq": rows.map(\.1.event.seq),
        "at": rows.map(\.1.event.at), "trusted": rows.map { $0.1.event.trusted }, "kind": rows.map(\.1.event.kind),
        "body": rows.map(\.1.body),
      ], "ON CONFLICT(gateway, epoch, seq) DO NOTHING", returning: ["gateway", "epoch", "seq"], row: row)
  }

  // MARK: Derived data

  /// Stores derived data. Also a batch that is not accepted updates its gateway's last contact.
  private func finish(_ batches: [PreparedBatch], _ work: IngestWork) throws(HubDatabaseError) {
    var contacts: [ContactKey: StoredContact] = [:]
    var radios: [String: String] = [:]
    var events: [String: Int64] = [:]
    var updates: [BucketKey: [Update]] = [:]
    var channelUpdates = ListUpdates(of: "")
    var (heardByWanted, toldOfWanted): ([MessageReport], Set<MessageHearer>) = ([], [])
    var known: Set<EventKey> = []
    var joined: Set<GatewayChannel> = []
    var deleted: [GatewayEpoch: Set<GatewayDeletion.Entry>] = [:]
    for batch in work.storedBatches {
      for event in batch.events {
        let key = batch.key(event)
        // The same event may be in two batches.
        guard work.added.contains(key), known.insert(key).inserted else { continue }
        events[batch.gateway, default: 0] += 1
        if let channel = event.channel { joined.insert(GatewayChannel(gateway: batch.gateway, channel: channel)) }
        switch event.effect {
        case .none: break
        case .heard(let heard):
          guard heard.update != nil else { break }
          let hearing = MessageReport(heard, from: batch)
          let before = work.updated.contains(heard.identity) ? nil : work.unsettled[heard.identity]
          if work.updated.contains(heard.identity) || before != nil {
            let isFirst = before == nil || work.firstReports.contains(hearing.hearer)
            channelUpdates.add(hearing, isFirst: isFirst, after: before, &reporterRates)
          }
          if work.named.reports.contains(hearing.hearer), toldOfWanted.insert(hearing.hearer).inserted {
            heardByWanted.append(hearing)
          }
        case .contact(let key):
          contacts[ContactKey(batch.gateway, key)] = StoredContact(event.body, event.event, came: batch.at)
        case .contactRemoved(let key):
          let place = ContactKey(batch.gateway, key)
          guard let body = Self.markedOffRadio(contacts[place]?.body ?? work.removed[place]) else { break }
          contacts[place] = StoredContact(body, event.event, came: batch.at)
        case .radio(let name): radios[batch.gateway] = name
        case .emptied: deleted[batch.gatewayEpoch, default: []].insert(.init(seq: event.event.seq, at: event.event.at))
        case .deletion(let deletion): deleted[batch.gatewayEpoch, default: []].formUnion(deletion.entries)
        case .command: try endCommand(event.event, of: batch.gateway, now: batch.at)
        case .alert(let report): try storeAlert(report, of: batch.gateway, now: batch.at)
        case .document: try mergeDocument(event.event, from: batch.gateway, now: batch.at)
        }
      }
    }
    var (gone, budget): (Set<String>, DeletionBudget) = ([], DeletionBudget())
    for (place, entries) in deleted {
      gone.formUnion(try delete(entries, of: place.gateway, epoch: place.epoch, &budget))
    }
    for entry in channelUpdates.all where !gone.contains(entry.hearing.heard.identity) {
      guard let channel = entry.hearing.heard.channel, let update = entry.update else { continue }
      updates[BucketKey(scope: "", name: "channel/\(channel)"), default: []].append(update)
    }
    // Gateways that take messages of named hearers have lists of their own. The lists cost the other gateways nothing.
    let stillHeard = heardByWanted.filter { !gone.contains($0.heard.identity) }
    for (place, list) in heardLists(stillHeard, work) { updates[place] = list }
    try reportConflicts(work)
    var numbered: [BucketKey: (last: Int64, at: Int64)] = [:]
    let calls =
      storingProgress(batches, work, events, radios)
      + [storingContacts(contacts, areOrdered: batches.allSatisfy(\.isOrdered))] + trimmingContacts(contacts.keys)
      + storingChannels(joined)
      + [
        storingSettledTimes(channelUpdates, work.unsettled),
        reservingNumbers(updates, now: batches.map(\.at).max() ?? 0) {
          numbered[BucketKey(scope: $0.text(0), name: $0.text(1))] = ($0.integer(2), $0.integer(3))
        },
      ]
    if updates.isEmpty {
      return try database.perform(calls + database.notifying(changes), begins: false, ends: true)
    }
    try database.perform(calls, begins: false, ends: false)
    for (place, state) in numbered { announce(HubChange(gateway: place.scope, bucket: place.name, seq: state.last)) }
    let full = fullLists(updates, numbered)
    let added = insertingUpdates(updates, numbered)
    guard !full.isEmpty else {
      return try database.perform([added] + database.notifying(changes), begins: false, ends: true)
    }
    var counts: [BucketKey: [Int64]] = [:]
    var last = [added]
    for list in full { last.append(countingUpdates(list.place) { counts[list.place, default: []].append($0) }) }
    try database.perform(last, begins: false, ends: false)
    let trims = full.flatMap { place, most in
      Self.share(of: most, counts[place] ?? []).map { trimming(place, to: $0) } ?? []
    }
    try database.perform(trims + database.notifying(changes), begins: false, ends: true)
  }

  private static func markedOffRadio(_ body: String?) -> String? {
    // `try?`: stored values were valid JSON when they arrived.
    guard let body, let fields = (try? JSONValue(parsing: body))?.fields else { return nil }
    return JSONValue.object(fields.filter { $0.0 != "on_radio" } + [("on_radio", .bool(false))]).text
  }

  private func storingProgress(
    _ batches: [PreparedBatch], _ work: IngestWork, _ events: [String: Int64], _ radios: [String: String]
  ) -> [HubCall] {
    var newest: [String: (epoch: String, at: Int64)] = [:]
    for batch in batches { newest[batch.gateway] = (work.newest[batch.gateway] ?? batch.epoch, batch.at) }
    let gateways = newest.keys.sorted()
    let epochs = Array(work.storedProgress)
    return [
      HubCall(
        into: "gateways",
        [
          "id": gateways, "epoch": gateways.map { newest[$0]?.epoch }, "events": gateways.map { events[$0] ?? 0 },
          "last_seen": gateways.map { newest[$0]?.at }, "radio": gateways.map { radios[$0] },
        ],
        """
        ON CONFLICT(id) DO UPDATE SET epoch = excluded.epoch, events = gateways.events + excluded.events,
        last_seen = excluded.last_seen, radio = coalesce(excluded.radio, gateways.radio)
        """),
      // `messages` was the only position before there were lanes, and is never NULL.
      HubCall(
        into: "epochs",
        [
          "gateway": epochs.map(\.key.gateway), "epoch": epochs.map(\.key.epoch),
          "messages": epochs.map { $0.value.lanes[.messages] ?? 0 }, "nodes": epochs.map { $0.value.lanes[.nodes] },
          "packets": epochs.map { $0.value.lanes[.packets] },
        ], "ON CONFLICT(gateway, epoch) DO UPDATE SET \(excluded("messages", "nodes", "packets"))"),
    ]
  }

  /// Stores contacts. If batches are unordered, a contact that is older than the stored one is left out.
  private func storingContacts(_ contacts: [ContactKey: StoredContact], areOrdered: Bool) -> HubCall {
    let rows = Array(contacts)
    return HubCall(
      into: "contacts",
      [
        "gateway": rows.map(\.key.gateway), "key": rows.map(\.key.text), "body": rows.map(\.value.body),
        "at": rows.map(\.value.at), "trusted": rows.map { $0.value.trusted },
      ],
      "ON CONFLICT(gateway, key) DO UPDATE SET \(excluded("body", "at", "trusted"))"
        + (areOrdered ? "" : " WHERE contacts.at <= excluded.at"))
  }

  // MARK: Channels

  /// Most channels of a gateway; a radio has some dozens. Concurrent transactions on a server may exceed it.
  private static let mostChannels = 1000

  /// Sorted, so that several hubs do not wait for each other in a ring.
  private func storingChannels(_ joined: Set<GatewayChannel>) -> [HubCall] {
    guard !joined.isEmpty else { return [] }
    let rows = joined.sorted { ($0.gateway, $0.channel) < ($1.gateway, $1.channel) }
    // The gateway's channels are counted only if one is new.
    let condition = """
      NOT EXISTS (SELECT 1 FROM gateway_channels c WHERE c.gateway = v.gateway AND c.channel = v.channel)
      AND (SELECT count(*) FROM gateway_channels c WHERE c.gateway = v.gateway) < \(Self.mostChannels)
      """
    return [
      HubCall(
        "INSERT INTO gateway_channels(gateway, channel) SELECT v.gateway, v.channel FROM @rows WHERE \(condition) "
          + "ORDER BY v.gateway, v.channel ON CONFLICT(gateway, channel) DO NOTHING",
        ["gateway": rows.map(\.gateway), "channel": rows.map(\.channel)])
    ]
  }

  /// Reserves numbers in each list, and for each number a time later than all before. Other transactions on the same channel wait from here to the
  /// commit.
  private func reservingNumbers(
    _ updates: [BucketKey: [Update]], now: Int64, _ row: @escaping (any HubRow) -> Void
  ) -> HubCall {
    let places = updates.keys.sorted { ($0.scope, $0.name) < ($1.scope, $1.name) }
    let counts = places.map { Int64(updates[$0]?.count ?? 0) }
    return HubCall(
      """
      INSERT INTO buckets(gateway, name, seq, first, at)
      SELECT v.scope, v.name, v.count, 1, v.at FROM @rows WHERE true ORDER BY v.scope, v.name
      ON CONFLICT(gateway, name) DO UPDATE SET seq = buckets.seq + excluded.seq,
      at = CASE WHEN buckets.at > excluded.at - excluded.seq THEN buckets.at + excluded.seq ELSE excluded.at END
      RETURNING gateway, name, seq, at
      """,
      ["scope": places.map(\.scope), "name": places.map(\.name), "count": counts, "at": counts.map { now + $0 - 1 }],
      row: row)
  }

  /// The lists that may exceed their limit, and that limit. A list is checked once in 256 numbers.
  private func fullLists(
    _ updates: [BucketKey: [Update]], _ numbered: [BucketKey: (last: Int64, at: Int64)]
  ) -> [(place: BucketKey, most: Int64)] {
    updates.compactMap { place, list in
      let most = place.scope.isEmpty ? Self.maxShared : Self.mostHeardForOne
      guard let last = numbered[place]?.last, last > most, last / 256 > (last - Int64(list.count)) / 256 else {
        return nil
      }
      return (place, most)
    }
  }

  private func insertingUpdates(
    _ updates: [BucketKey: [Update]], _ numbered: [BucketKey: (last: Int64, at: Int64)]
  ) -> HubCall {
    var rows: [(place: BucketKey, seq: Int64, at: Int64, update: Update)] = []
    for (place, list) in updates {
      guard let (last, at) = numbered[place] else { continue }
      let count = Int64(list.count)
      for (index, update) in list.enumerated() {
        let back = count - 1 - Int64(index)
        rows.append((place, last - back, at - back, update))
      }
    }
    return HubCall(
      into: "updates",
      [
        "gateway": rows.map(\.place.scope), "bucket": rows.map(\.place.name), "seq": rows.map(\.seq),
        "id": rows.map(\.update.identity), "at": rows.map(\.at), "body": rows.map(\.update.body),
        "source": rows.map(\.update.source), "beyond": rows.map { $0.update.isBeyond },
      ])
  }
}
