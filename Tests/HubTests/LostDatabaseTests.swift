// SPDX-License-Identifier: MIT

import Alerts
import Foundation
import Glibc
import TestSupport
import Testing

@testable import Hub

/// A hub's database that is gone, is another one, or is an older copy.
@Suite struct LostDatabaseTests {
  private let scratch = Scratch(inMemory: true)

  @Test func `a database file that was removed or replaced makes the hub not ready`() async throws {
    let location = scratch.location("hub.db")
    let stores = try HubStores(location: location)
    let alerts = HubAlerts(HubAlertSettings(), stores, LinkRegistry(), name: "h", location: location)
    func open() async throws -> [String] {
      await stores.probe.probe()
      await alerts.check()
      return try await stores.monitor.alerts(before: .max, openOnly: true, limit: 10).alerts.map(\.rule)
    }
    #expect(try await !open().contains("hub_store_lost"))
    #expect(stores.probe.now.failure == nil)
    #expect(rename(location, location + ".away") == 0)
    #expect(try await open().contains("hub_store_lost"))
    #expect(stores.probe.now.failure == .lost)
    let other = Glibc.open(location, O_WRONLY | O_CREAT, 0o600)
    close(other)
    await stores.probe.probe()
    #expect(stores.probe.now.failure == .lost && stores.probe.isLost)
    #expect(rename(location + ".away", location) == 0)
    await stores.probe.probe()
    #expect(stores.probe.now.failure == nil, "it was put back")
  }

  @Test func `hubs that share a server report the loss of its database once`() async throws {
    let stores = try HubStores(location: scratch.location("shared.db"))
    var settings = HubAlertSettings()
    settings.rules.times[.hubStoreLost] = AlertTimes(begins: .zero, ends: .zero)
    for name in ["a", "b"] {
      let mark = try #require(DatabaseMark(scratch.location(name)))
      mark.add("another")
      let alerts = HubAlerts(settings, stores, LinkRegistry(), name: name, location: nil, mark: mark)
      await stores.probe.probe()
      for _ in 0..<2 { await alerts.check() }
      #expect(mark.names.count == 2, "it was missed")
    }
    let open = try await stores.monitor.alerts(before: .max, openOnly: true, limit: 10).alerts
    #expect(open.filter { $0.rule == "hub_store_lost" }.count == 1)
  }

  @Test
  func
    `a database that is gone at the start is missed until somebody has seen it, and a backup that is put back is not`()
    async throws
  {
    let location = scratch.location("marked.db")
    let mark = try #require(DatabaseMark(location))
    var settings = HubAlertSettings()
    settings.rules.times[.hubStoreLost] = AlertTimes(begins: .zero, ends: .zero)
    /// Starts the hub, which then checks twice.
    func start() async throws -> (HubStores, HubAlerts) {
      let stores = try HubStores(location: location)
      let alerts = HubAlerts(settings, stores, LinkRegistry(), name: "h", location: location, mark: mark)
      // The hub is ready, so gateways are asked to send again. On a busy machine a check may take so long that its answer is outdated, and then
      // nothing was seen.
      var looks = 0
      while looks < 2 {
        await stores.probe.probe()
        try #require(stores.probe.now.failure == nil)
        await alerts.check()
        if stores.probe.problem() == nil { looks += 1 }
      }
      return (stores, alerts)
    }
    func open(_ stores: HubStores) async throws -> [HubAlert] {
      try await stores.monitor.alerts(before: .max, openOnly: true, limit: 10).alerts.filter {
        $0.rule == "hub_store_lost"
      }
    }
    func remove() { for suffix in ["", "-wal", "-shm"] { unlink(location + suffix) } }
    do {
      let (stores, _) = try await start()
      #expect(try await open(stores).isEmpty)
      #expect(mark.names == [try await stores.writer.name()])
      await stores.copyLog(atEnd: true)
    }
    try FileManager.default.copyItem(atPath: location, toPath: location + ".backup")
    remove()
    do {
      let (stores, _) = try await start()
      #expect(try await open(stores).map(\.subject) == ["h"])
    }
    do {
      let (stores, alerts) = try await start()
      let alert = try #require(try await open(stores).first, "a restart does not forget it")
      #expect(try await open(stores).count == 1)
      _ = try await stores.writer.acknowledgeAlert(alert.id, by: "ana", note: nil, at: 5)
      await alerts.check()
      #expect(try await open(stores).isEmpty)
    }
    remove()
    try FileManager.default.copyItem(atPath: location + ".backup", toPath: location)
    let (stores, _) = try await start()
    #expect(try await open(stores).isEmpty, "it is a copy of one that was here")
    #expect(mark.names.count == 2)
  }

  @Test(arguments: [true, false], [true, false])
  func `an older copy that is put back is told by its events, and a purged database is none`(
    _ isOlder: Bool, _ isServer: Bool
  ) async throws {
    let location = scratch.location("older.db")
    let mark = try #require(DatabaseMark(location))
    var settings = HubAlertSettings()
    settings.rules.times[.hubStoreLost] = AlertTimes(begins: .zero, ends: .zero)
    func take(_ seq: Int64, _ stores: HubStores) async throws {
      let event = HubEvent(seq: seq, at: seq, trusted: true, kind: "advert", body: .object([("key", .string("k"))]))
      let batch = PreparedBatch([event], of: "e", in: .nodes, from: "g", after: nil, at: 1)
      _ = try await stores.writer.take([batch])
      await stores.copyLog(atEnd: true)
    }
    do {
      let stores = try HubStores(location: location)
      try await take(1, stores)
      try FileManager.default.copyItem(atPath: location, toPath: location + ".backup")
      try await take(2, stores)
      let newest = try #require(try await stores.monitor.newestEventMark())
      mark.add(try await stores.writer.name())
      mark.note(newest: newest)
      #expect(mark.newest == newest && mark.names.count == 1)
      if !isOlder { try await stores.writer.delete(.events, [1, 2]) }
    }
    if isOlder {
      for suffix in ["", "-wal", "-shm"] { unlink(location + suffix) }
      try FileManager.default.copyItem(atPath: location + ".backup", toPath: location)
    }
    let stores = try HubStores(location: location)
    let file = isServer ? nil : location
    let alerts = HubAlerts(settings, stores, LinkRegistry(), name: "h", location: file, mark: mark)
    for _ in 0..<2 {
      await stores.probe.probe()
      await alerts.check()
    }
    let open = try await stores.monitor.alerts(before: .max, openOnly: true, limit: 10).alerts
    #expect(open.contains { $0.rule == "hub_store_lost" && $0.text.contains("older copy") } == isOlder)
  }

  @Test func `a server's database is looked at again when another one may have its place`() async throws {
    let stores = try HubStores(location: scratch.location("shared.db"))
    let mark = try #require(DatabaseMark(scratch.location("shared")))
    let alerts = HubAlerts(HubAlertSettings(), stores, LinkRegistry(), name: "h", location: nil, mark: mark)
    func open() async throws -> [String] {
      await stores.probe.probe()
      await alerts.check()
      return try await stores.monitor.alerts(before: .max, openOnly: true, limit: 10).alerts.map(\.rule)
    }
    #expect(try await !open().contains("hub_store_lost"))
    // The database that was here had this event.
    mark.note(newest: "99 x")
    #expect(try await !open().contains("hub_store_lost"))
    await alerts.lookAgain()
    #expect(try await open().contains("hub_store_lost"))
  }

  @Test func `a backup that takes the place of the database while the hub runs is noticed`() async throws {
    let stores = try HubStores(location: scratch.location("shared.db"))
    let mark = try #require(DatabaseMark(scratch.location("shared")))
    var settings = HubAlertSettings()
    settings.rules.times[.hubStoreLost] = AlertTimes(begins: .zero, ends: .zero)
    let alerts = HubAlerts(
      settings, stores, LinkRegistry(), name: "h", location: nil, mark: mark, newestPause: .zero)
    func lost() async throws -> Int {
      // A probe of long ago, on a busy machine, is a silent database.
      await stores.probe.probe()
      await alerts.check()
      let open = try await stores.monitor.alerts(before: .max, openOnly: true, limit: 10).alerts
      return open.filter { $0.rule == "hub_store_lost" && $0.text.contains("older copy") }.count
    }
    #expect(try await lost() == 0)
    // The database had this event a moment ago.
    mark.note(newest: "99 x")
    var found = 0
    for _ in 0..<20 where found == 0 { found = try await lost() }
    #expect(try await (found, lost()) == (1, 1))
  }

  @Test func `a database on a server is identified by its address, if there is a folder for the mark`() throws {
    let address = "postgresql://hub:secret@db.example.org/mesh"
    #expect(DatabaseMark(address, folder: nil) == nil)
    let mark = try #require(DatabaseMark(address, folder: "/var/lib/meshpost-hub"))
    let other = try #require(DatabaseMark(address + "2", folder: "/var/lib/meshpost-hub"))
    #expect(mark.location.hasPrefix("/var/lib/meshpost-hub/"))
    #expect(!mark.location.contains("secret"))
    #expect(mark.location != other.location)
  }
}
