// SPDX-License-Identifier: MIT

import JSON
import Timing

/// The hub's connections to its database, by their purpose: while one waits, the others work.
final class HubStores: Sendable {
  /// Batches of gateways.
  let ingest: Ingest
  /// Commands, documents and states: single writes.
  let writer: HubStore
  /// Short queries of gateways, and of sessions: they never wait for a page.
  let lookups: HubStore
  /// The hub's own queries, for live readers, alerts and peer hubs. They wait for no reader.
  let monitor: HubStore
  /// Pages for readers, which may take long.
  let readers: ReaderPool
  /// Pages of updates for gateways, which take turns.
  let pages: ReaderPool
  /// Positions for gateways that connect: the whole fleet after a restart of the hub.
  let standingQueries: Coalescer<GatewayEpoch, HubStore.Standing>
  /// Changes of named hearers: all waiting ones in one transaction.
  private let hearerChanges: Coalescer<HubStore.WantedHearers, Bool>
  private let hearerRations = GatewayQuotas(Ration(most: 16, oneIn: .seconds(300)))
  /// Changes of a person's browsers that get pushes: each writes. So many at once are all of a person's, several times.
  static let pushRation = Ration(most: 60, oneIn: .seconds(5))
  let pushRations = GatewayQuotas(HubStores.pushRation)
  /// States of buckets, which each gateway queries when it connects.
  let bucketQueries: Coalescer<HubStore.BucketQuery, HubStore.BucketQueryResult>
  /// States of gateways, which each gateway sends when it connects.
  let stateWrites: Coalescer<GatewayState, Bool>
  /// Tests whether the database answers, on a connection of its own.
  let probe: DatabaseProbe
  /// The connection that deletes rows by age.
  let maintenance: HubStore
  let metrics = HubMetrics()
  /// Whether the database's disk takes what is written.
  let disk = FullDisk()
  /// Whether another program keeps the SQLite file locked.
  let lock = LockedFile()
  /// The location of the SQLite file; `nil`: the database is on a server.
  private let file: String?

  /// Connections for batches on a server; connections for readers, and those of them that readers with long queries leave to the others.
  private static let writers = 2
  private static let readerCount = 4
  private static let reservedReaders = 2
  /// The same for gateways' pages of updates.
  private static let pageReaders = 2
  private static let reservedPageReaders = 1
  /// A gateway that catches up needs some seconds in all. One that asks without end leaves the processor to the others.
  private static let pageAllowance = TurnAllowance(most: .seconds(10), part: 0.25)
  /// The longest statement of a reader. Lists read a bounded number of rows; this is for a disk, or a plan of a server, that nobody expected.
  private static let longestRead: Duration = .seconds(20)

  /// Connects to an SQLite file, which one connection writes; or, with an address `postgresql://…`, to a PostgreSQL server. `keeps`: the retention.
  /// Without age limits, maintenance needs no connection of its own.
  init(
    location: String, password: String? = nil, keeps: Retention = Retention(), alertsOnConflicts: Bool = true
  ) throws {
    let (metrics, disk, lock) = (metrics, disk, lock)
    let rare = ThrottledLog(HubLog.write)
    func store(_ database: sending any HubDatabase) -> HubStore {
      HubStore(
        TimedDatabase(
          database, isFull: { disk.note($0) }, isLocked: { lock.note($0) }, wrote: { lock.wrote() }
        ) { what, took in
          metrics.wasSlow()
          rare.say("slow: \(what) took \(Int(took.inSeconds * 1000)) ms")
        }, alertsOnConflicts: alertsOnConflicts)
    }
    let reader: (Duration?) throws -> HubStore
    if HubStore.isServer(location) {
      let connect = { (migrates: Bool) in
        store(try PostgresHubDatabase(address: location, password: password, migrates: migrates))
      }
      reader = { longest in
        store(
          try PostgresHubDatabase(
            address: location, password: password, migrates: false, endsWithTask: true, longest: longest))
      }
      file = nil
      writer = try connect(true)
      ingest = Ingest(try (0..<Self.writers).map { _ in try connect(false) }, metrics: metrics) { disk.storedBatch() }
      probe = DatabaseProbe(
        try connect(false), readOnlyQuery: "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END",
        versionQuery: "SELECT coalesce(max(version), 0) FROM schema_version",
        identityQuery: """
          SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint + oid::bigint
          FROM pg_database WHERE datname = current_database()
          """)
      maintenance = keeps.isEmpty ? writer : try connect(false)
    } else {
      file = location
      writer = store(try SQLiteHubDatabase(location: location))
      ingest = Ingest([writer], metrics: metrics) { disk.storedBatch() }
      reader = { longest in store(try SQLiteHubDatabase(reading: location, longest: longest)) }
      probe = DatabaseProbe(
        try reader(nil), readOnlyQuery: "SELECT count(*) FROM positions WHERE base < 0",
        versionQuery: "PRAGMA user_version", file: OpenedFile(location))
      // Only one connection writes.
      maintenance = writer
    }
    lookups = try reader(nil)
    monitor = try reader(nil)
    readers = ReaderPool(
      try (0..<Self.readerCount).map { _ in try reader(Self.longestRead) }, reserved: Self.reservedReaders)
    pages = ReaderPool(
      try (0..<Self.pageReaders).map { _ in try reader(Self.longestRead) }, reserved: Self.reservedPageReaders,
      allowance: Self.pageAllowance)
    probe.tests(disk, free: { [file] in file.flatMap { FullDisk.free(at: $0) } }) { [weak writer] in
      try await writer?.keepMark()
    }
    standingQueries = Coalescer(weight: { _ in 0.001 }) { [lookups] (epochs) async throws(HubDatabaseError) in
      try await lookups.standings(of: epochs)
    }
    bucketQueries = Coalescer(weight: { 0.001 + Double($0.places.count) / 4000 }) {
      [lookups] (questions) async throws(HubDatabaseError) in
      try await lookups.states(of: questions)
    }
    hearerChanges = Coalescer(weight: { 0.002 + Double($0.hearers.count) / 1000 }) {
      [writer] (changes) async throws(HubDatabaseError) in
      try await writer.setWantedHearers(changes)
      return changes.map { _ in true }
    }
    stateWrites = Coalescer(weight: { 0.002 + Double($0.body.utf8.count) / Double(4 << 20) }) {
      [writer] (states) async throws(HubDatabaseError) in try await writer.keep(states)
    }
  }

  func standing(gateway: String, epoch: String) async throws -> HubStore.Standing {
    try await standingQueries.submit(GatewayEpoch(gateway: gateway, epoch: epoch))
  }

  /// The states of these buckets for a gateway. If it names `hearers`, it takes only their messages. Invalid names, and names after the first 64, are
  /// left out. `nil` leaves the named hearers as they are. Too frequent changes do so, too, since each change writes.
  func bucketStates(
    of buckets: [String], for gateway: String, hearers: [String]?, now: ContinuousClock.Instant = .now
  ) async throws -> [HubStore.BucketState] {
    let answer = try await bucketQueries.submit(HubStore.BucketQuery(buckets, of: gateway))
    guard let hearers = hearers.map({ Array(Set($0.prefix(64).filter(Name.isAllowed))) }) else { return answer.states }
    if Set(hearers) != answer.hearers, hearerRations.take(gateway, now: now) {
      _ = try await hearerChanges.submit(HubStore.WantedHearers(gateway: gateway, hearers: hearers))
    }
    return answer.states
  }

  /// Stores the gateway's latest state of a name. `false`: it is too large, or there are too many names.
  @discardableResult
  func setState(_ name: String, _ body: JSONValue, of gateway: String, at now: Int64) async throws -> Bool {
    try await beginState(name, body, of: gateway, at: now)?.answer() ?? false
  }

  /// Queues the state behind earlier ones; `nil`: it is too large.
  func beginState(
    _ name: String, _ body: JSONValue, of gateway: String, at now: Int64
  ) -> Coalescer<GatewayState, Bool>.Ticket? {
    let text = body.text
    guard text.utf8.count <= HubBounds.stateBytes else { return nil }
    return stateWrites.begin(GatewayState(gateway: gateway, name: name, at: now, body: text))
  }

  /// Copies an SQLite file's log into the file: otherwise a small database may be in the log alone for weeks, and a copy of its file would have no
  /// tables. `atEnd`: there are no writers, so it also empties the log.
  func copyLog(atEnd: Bool = false) async {
    guard let file, !probe.isLost else { return }
    do throws(HubDatabaseError) {
      try await HubStore(SQLiteHubDatabase(existing: file, writes: true)).copyLog(whole: atEnd)
    } catch {
      HubLog.write(.warning, "the log is not copied into the database: \(error.message)")
    }
  }

  /// `listener` gets changes once they are on disk.
  func listen(_ listener: @escaping @Sendable (HubChange) -> Void) async {
    await writer.listen(listener)
    await ingest.listen(listener)
  }
}
