// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing
import Timing

@testable import Hub

/// Hubs on one database, and the gateways' right time, in steps of days.
private final class World {
  static let hour: Int64 = 3_600_000
  static let day = 24 * hour
  static let year = 365 * day
  /// 23 November 2026.
  static let begin: Int64 = 1_795_392_000_000

  /// A serving hub, with its machine's clock and time since boot.
  final class Hub {
    let stores: HubStores
    var ahead: Int64
    let boot: Int64

    init(_ stores: HubStores, ahead: Int64, boot: Int64) {
      (self.stores, self.ahead, self.boot) = (stores, ahead, boot)
    }
  }

  let scratch = Scratch(inMemory: true)
  var retention = Retention()
  private(set) var now = begin
  private(set) var hubs: [Hub] = []
  private(set) var location: String
  private var seq: Int64 = 0
  /// The time of each acknowledged event, as far as the present database knows it.
  private(set) var dates: [Int64] = []

  init(keep: Int64?) {
    location = scratch.location("hub.db")
    if let keep { retention.lanes = [.nodes: keep] }
  }

  @discardableResult
  func start(ahead: Int64 = 0) throws -> Hub {
    let hub = Hub(try HubStores(location: location), ahead: ahead, boot: now)
    hubs.append(hub)
    return hub
  }

  func stop() { hubs = [] }

  func pass(_ time: Int64) { now += time }

  /// A gateway with a right clock reports a node.
  func hear(_ count: Int = 1) async throws {
    guard let hub = hubs.first else { return }
    var events: [HubEvent] = []
    for _ in 0..<count {
      seq += 1
      dates.append(now)
      events.append(
        HubEvent(seq: seq, at: now, trusted: true, kind: "advert", body: .object([("key", .string("k\(seq % 7)"))])))
    }
    _ = try await hub.stores.writer.take([
      PreparedBatch(events, of: "e", in: .nodes, from: "g", after: nil, at: now + hub.ahead)
    ])
  }

  @discardableResult
  func look(_ hub: Hub) async -> Purge.Count? {
    await RetentionService(stores: hub.stores, retention: retention, leastRest: .zero, log: { _, _ in })
      .once(at: now + hub.ahead, uptime: now - hub.boot)
  }

  /// All hubs serve for this time, and check at this interval.
  func serve(_ time: Int64, every hours: Int64 = 1) async throws {
    let end = now + time
    while now < end {
      try await hear()
      for hub in hubs { await look(hub) }
      pass(hours * Self.hour)
    }
  }

  func left(_ filter: String = "1 = 1") async throws -> Int {
    let store = try HubStore(location: location)
    return Int(try await store.number("SELECT count(*) FROM events WHERE \(filter)"))
  }

  func backUp(_ name: String) async throws -> (location: String, dates: [Int64]) {
    let copy = scratch.location(name)
    _ = try await hubs[0].stores.writer.number("VACUUM INTO '\(copy)'")
    return (copy, dates)
  }

  func restore(_ backup: (location: String, dates: [Int64])) throws {
    stop()
    location = scratch.location("restored-\(now)-\(hubs.count).db")
    try FileManager.default.copyItem(atPath: backup.location, toPath: location)
    // Later events are stored again under other numbers.
    dates = backup.dates
  }
}

@Suite struct RetentionHistoryTests {
  private static let (hour, day, year) = (World.hour, World.day, World.year)

  @Test func `in normal operation rows older than ninety days are deleted within the hour, and no others`() async throws
  {
    let world = World(keep: 90 * Self.day)
    try world.start()
    try await world.serve(100 * Self.day)
    #expect(try await world.left("at < \(world.now - 90 * Self.day - 2 * Self.hour)") == 0)
    #expect(try await world.left() >= 90 * 24 && world.dates.count == 100 * 24)
    #expect(try await world.hubs[0].stores.writer.heldRetention() == nil)
    // A hub that is restarted every day continues as well.
    for _ in 0..<10 {
      world.stop()
      world.pass(Self.hour)
      try world.start()
      try await world.serve(23 * Self.hour)
    }
    #expect(try await world.left("at < \(world.now - 90 * Self.day - 3 * Self.hour)") == 0)
    // So does a hub that was off for five days.
    world.stop()
    world.pass(5 * Self.day)
    try world.start()
    try await world.serve(Self.day)
    #expect(try await world.left("at < \(world.now - 90 * Self.day - 2 * Self.hour)") == 0)
    #expect(try await world.hubs[0].stores.writer.heldRetention() == nil)
  }

  @Test func `without [retention] time counts, too, and a monthly purge by hand deletes what is old`() async throws {
    let world = World(keep: nil)
    try world.start()
    for _ in 0..<3 { try await world.serve(30 * Self.day, every: 6) }
    let beside = try HubStore(location: world.location)
    let now = try await beside.surelyPassed(at: world.now, uptime: 77)
    #expect(world.now - now <= 6 * Self.hour && now <= world.now)
  }

  @Test func `a hub that began without events deletes as others do`() async throws {
    let world = World(keep: 7 * Self.day)
    let hub = try world.start()
    for _ in 0..<5 {
      await world.look(hub)
      world.pass(Self.hour)
    }
    try await world.serve(9 * Self.day)
    #expect(try await world.left("at < \(world.now - 7 * Self.day - 2 * Self.hour)") == 0)
  }

  /// Clocks that step by years between runs, hubs that are restarted meanwhile, two hubs with different clocks, and restored backups.
  @Test(arguments: 0..<12 as Range<UInt64>)
  func `whatever clocks do, no younger row is deleted`(_ seed: UInt64) async throws {
    var random = SeededRandom(seed: seed)
    let keep = 20 * Self.day
    let world = World(keep: keep)
    try world.start(ahead: [0, 3, -2, 30].randomElement(using: &random)! * Self.year)
    var backup: (location: String, dates: [Int64])?
    for step in 0..<300 {
      switch Int.random(in: 0..<14, using: &random) {
      case 0:
        for hub in world.hubs { hub.ahead = [0, 0, 3, 30, -3, 1].randomElement(using: &random)! * Self.year }
      case 1:
        world.stop()
        world.pass(Int64.random(in: 0...9, using: &random) * Self.day)
        for _ in 0...Int.random(in: 0...1, using: &random) {
          try world.start(ahead: [0, 0, 2, 20, -1].randomElement(using: &random)! * Self.year)
        }
      case 2: backup = try await world.backUp("backup-\(step)")
      case 3:
        if let backup, Int.random(in: 0..<4, using: &random) == 0 {
          try world.restore(backup)
          try world.start(ahead: [0, 5].randomElement(using: &random)! * Self.year)
        }
      default: break
      }
      try await world.hear(Int.random(in: 0...3, using: &random))
      for hub in world.hubs { await world.look(hub) }
      let young = world.now - keep
      let expected = world.dates.count { $0 >= young }
      guard try await world.left("at >= \(young)") == expected else {
        Issue.record("seed \(seed), step \(step): \(try await world.left("at >= \(young)")) of \(expected) are left")
        return
      }
      world.pass(Int64.random(in: 1...12, using: &random) * Self.hour)
    }
  }

  @Test func `a mistyped age deletes no year of rows, is reported, and waits for a confirmation`() async throws {
    let world = World(keep: 365 * Self.day)
    try world.start()
    try await world.serve(400 * Self.day, every: 12)
    let before = try await world.left()
    world.retention.lanes = [.nodes: Self.day]
    try await world.serve(2 * Self.day, every: 12)
    let store = world.hubs[0].stores.writer
    let held = try #require(try await store.heldRetention())
    #expect(held.rows > 700 && held.rows <= Int64(before), "\(held)")
    #expect(held.message.contains("[retention] would delete \(held.rows) rows at once"))
    #expect(try await world.left() >= before, "as many go as come")
    let alerts = HubAlerts(HubAlertSettings(), world.hubs[0].stores, LinkRegistry(), name: "h:1", location: nil)
    func open() async throws -> [String] {
      let probe = Task { [stores = world.hubs[0].stores] in _ = await stores.probe.run() }
      defer { probe.cancel() }
      while world.hubs[0].stores.probe.problem() != nil { try await Task.sleep(for: .milliseconds(10)) }
      await alerts.check()
      return try await store.alerts(before: .max, openOnly: true, limit: 9).alerts.map { "\($0.rule) \($0.beganAt)" }
    }
    #expect(try await open() == ["retention_held \(held.since)"])
    // The operator corrects the age.
    world.retention.lanes = [.nodes: 365 * Self.day]
    try await world.serve(Self.day, every: 12)
    #expect(try await store.heldRetention() == nil)
    #expect(try await open().isEmpty)
    #expect(try await world.left() >= before - 2)
    // The operator confirms the age.
    world.retention.lanes = [.nodes: Self.day]
    await world.look(world.hubs[0])
    #expect(try await store.heldRetention() != nil)
    let now = world.now
    let purge = Purge(store, world.retention.plan, at: now, clock: now, deletes: true) { _ in }
    #expect(try await purge.run().rows > 700)
    try await store.retentionIsDone(world.retention, at: now)
    #expect(try await store.heldRetention() == nil)
    try await world.serve(2 * Self.day)
    #expect(try await store.heldRetention() == nil)
    #expect(try await world.left() <= 28)
  }

  @Test func `a late [retention] waits for a confirmation, and up to eight days are caught up without one`()
    async throws
  {
    let world = World(keep: nil)
    try world.start()
    try await world.serve(60 * Self.day, every: 6)
    let all = try await world.left()
    world.retention.lanes = [.nodes: 30 * Self.day]
    await world.look(world.hubs[0])
    let store = world.hubs[0].stores.writer
    #expect(try await store.heldRetention() != nil)
    #expect(try await world.left() == all)
    world.retention.lanes = [.nodes: 53 * Self.day]
    for _ in 0..<8 { await world.look(world.hubs[0]) }
    #expect(try await store.heldRetention() == nil)
    #expect(try await world.left("at < \(world.now - 53 * Self.day)") == 0)
  }
}
