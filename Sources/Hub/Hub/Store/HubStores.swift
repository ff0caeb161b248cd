// SPDX-License-Identifier: MIT

import JSON
import Timing

/// The hub's connections to its database, by what they are for: whatever one of them waits for, the others go on.
final class HubStores: Sendable {
  /// Batches of gateways.
  let ingest: Ingest
  /// Commands, documents, states: what is written one by one.
  let writer: HubStore
  /// What gateways ask, and who has signed in: short questions, which never wait for a page.
  let greeter: HubStore
  /// What the hub looks at by itself: what is live, alerts, other hubs. It waits for no reader.
  let watcher: HubStore
  /// Pages for readers: each may take long.
  let readers: ReaderTurns
  /// How much the hub has, for gateways that connect: after a restart of the hub that is the whole fleet.
  let greetings: Coalescer<GatewayEpoch, HubStore.Progress?>
  /// Changes of whose messages alone gateways take: however many ask, in one transaction after the other.
  private let hearings: Coalescer<HubStore.WantedHearers, Bool>
  private let hearingRations = GatewayRations(Ration(most: 16, oneIn: .seconds(300)))
  /// How far buckets are, which each gateway asks when it connects.
  let standings: Coalescer<HubStore.BucketQuestion, HubStore.BucketAnswer>
  /// States that gateways tell, each when it connects.
  let states: Coalescer<GatewayState, Bool>
  /// Whether the database answers, on a connection of its own.
  let probe: DatabaseProbe
  /// Connection for deleting rows by age.
  let caretaker: HubStore
  let metrics = HubMetrics()
  /// The SQLite file.
  private let file: String?

  /// Connections for batches on a server.
  private static let writers = 2
  private static let readerCount = 2

  /// In an SQLite file, which one connection writes; or, with an address `postgresql://…`, on a PostgreSQL server.
  /// `keeps`: for how long; without an end to that the caretaker needs no connection of its own.
  init(
    location: String, password: String? = nil, keeps: Retention = Retention(), tellsConflicts: Bool = true
  ) throws {
    let metrics = metrics
    let rare = RareLine(HubLog.write)
    func store(_ database: sending any HubDatabase) -> HubStore {
      HubStore(
        TimedDatabase(database) { what, took in
          metrics.wasSlow()
          rare.say("slow: \(what) took \(Int(took.seconds * 1000)) ms")
        }, tellsConflicts: tellsConflicts)
    }
    if HubStore.isServer(location) {
      let connect = { (migrates: Bool) in
        store(try PostgresHubDatabase(address: location, password: password, migrates: migrates))
      }
      let reader = {
        store(
          try PostgresHubDatabase(address: location, password: password, migrates: false, endsWithTask: true))
      }
      file = nil
      writer = try connect(true)
      ingest = Ingest(try (0..<Self.writers).map { _ in try connect(false) }, metrics: metrics)
      greeter = try reader()
      watcher = try reader()
      readers = ReaderTurns(try (0..<Self.readerCount).map { _ in try reader() })
      probe = DatabaseProbe(
        try connect(false), question: "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END",
        version: "SELECT coalesce(max(version), 0) FROM schema_version")
      caretaker = keeps.isEmpty ? writer : try connect(false)
    } else {
      file = location
      writer = store(try SQLiteHubDatabase(location: location))
      ingest = Ingest([writer], metrics: metrics)
      let reader = { store(try SQLiteHubDatabase(reading: location)) }
      greeter = try reader()
      watcher = try reader()
      readers = ReaderTurns(try (0..<Self.readerCount).map { _ in try reader() })
      probe = DatabaseProbe(
        try reader(), question: "SELECT count(*) FROM positions WHERE base < 0",
        version: "PRAGMA user_version", file: OpenedFile(location))
      // One connection writes.
      caretaker = writer
    }
    greetings = Coalescer(weight: { _ in 0.001 }) { [greeter] (epochs) async throws(HubDatabaseError) in
      try await greeter.progress(of: epochs)
    }
    standings = Coalescer(weight: { 0.001 + Double($0.places.count) / 4000 }) {
      [greeter] (questions) async throws(HubDatabaseError) in
      try await greeter.states(of: questions)
    }
    hearings = Coalescer(weight: { 0.002 + Double($0.hearers.count) / 1000 }) {
      [writer] (changes) async throws(HubDatabaseError) in
      try await writer.setWantedHearers(changes)
      return changes.map { _ in true }
    }
    states = Coalescer(weight: { 0.002 + Double($0.body.utf8.count) / Double(4 << 20) }) {
      [writer] (states) async throws(HubDatabaseError) in try await writer.keep(states)
    }
  }

  /// `nil` for a gateway or an epoch that is not known.
  func progress(gateway: String, epoch: String) async throws -> HubStore.Progress? {
    try await greetings.ask(GatewayEpoch(gateway: gateway, epoch: epoch))
  }

  /// How far these buckets are for a gateway, which takes messages of these `hearers` alone, if there are any; names that are none, and those beyond
  /// the first 64, are left out. `nil`: whose it takes stays as it is, such as where somebody else asks in its place; and likewise if it
  /// changes again and again, as each change writes.
  func standing(
    of buckets: [String], for gateway: String, hearers: [String]?, now: ContinuousClock.Instant = .now
  ) async throws -> [HubStore.BucketState] {
    let answer = try await standings.ask(HubStore.BucketQuestion(buckets, of: gateway))
    guard let hearers = hearers.map({ Array(Set($0.prefix(64).filter(Name.isAllowed))) }) else { return answer.states }
    if Set(hearers) != answer.hearers, hearingRations.take(gateway, now: now) {
      _ = try await hearings.ask(HubStore.WantedHearers(gateway: gateway, hearers: hearers))
    }
    return answer.states
  }

  /// Keeps the latest state of a name from the gateway. False: too large, or too many names.
  @discardableResult
  func setState(_ name: String, _ body: JSONValue, of gateway: String, at now: Int64) async throws -> Bool {
    let text = JSONWriterText.text(body)
    guard text.utf8.count <= HubBounds.stateBytes else { return false }
    return try await states.ask(GatewayState(gateway: gateway, name: name, at: now, body: text))
  }

  /// Copies an SQLite file's log into it: a small one lay in the log alone for weeks, and a copy of the file had no tables. Who writes goes on
  /// meanwhile; at the `end` nobody does, and the log is empty then.
  func copyLog(atEnd: Bool = false) async {
    guard let file, !probe.isLost else { return }
    do throws(HubDatabaseError) {
      try await HubStore(SQLiteHubDatabase(existing: file, writes: true)).copyLog(whole: atEnd)
    } catch {
      HubLog.write(.warning, "the log is not copied into the database: \(error.message)")
    }
  }

  /// `listener` gets changes once they are on disk.
  func listen(_ listener: @escaping @Sendable (HubNews) -> Void) async {
    await writer.listen(listener)
    await ingest.listen(listener)
  }
}
