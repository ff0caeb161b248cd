// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Glibc
import JSON
import SQLite
import TestSupport
import Testing

@testable import Gateway
@testable import Store

/// Databases with a page of zeros, as a worn card returns it.
@Suite struct DamagedPagesTests {
  /// A page of each kind of each table and index of a closed database, also of those that later schemas add. Zeros at the end of a chain of overflow
  /// pages are values, and no damage of the file.
  private func pagesOfEachKind(_ database: Database) throws -> [(name: String, number: Int64)] {
    try database.rows(
      """
      SELECT name || ' ' || pagetype, max(pageno) FROM dbstat WHERE pagetype <> 'overflow'
      GROUP BY name, pagetype ORDER BY name, pagetype
      """
    ) { row in (name: row.text(0), number: row.integer(1)) }
  }

  private func zero(_ page: Int64, of location: String) throws {
    let file = try FileHandle(forUpdating: URL(filePath: location))
    let size = UInt64(Store.pageSize)
    try file.seek(toOffset: UInt64(page - 1) * size)
    file.write(Data(repeating: 0, count: Int(size)))
    try file.close()
  }

  private func gaps(_ store: Store) throws -> [JSONValue] {
    var gaps: [JSONValue] = []
    try store.readJournal(after: 0, limit: 10) { event, _ in
      // `try?`: the test misses a gap that is no JSON.
      if event.kind == "gap", let gap = try? JSONValue(parsing: event.body) { gaps.append(gap) }
      return true
    }
    return gaps
  }

  @Test(arguments: [0, 1, 2, 3]) func `a read that the disk refuses once as a part begins costs no database`(
    _ failures: Int
  ) throws {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: EventLoop().clocks)
    let (epoch, words) = (store.epoch, StoreError.corrupt("a page"))
    var tries = 0
    func begin() throws(StoreError) -> Int {
      try Daemon.begin(with: store, for: []) { () throws(StoreError) -> Int in
        tries += 1
        if tries <= failures { throw words }
        return tries
      }
    }
    if failures < 3 {
      #expect(try begin() == failures + 1)
    } else {
      #expect(throws: words) { try begin() }
      #expect(tries == 3)
    }
    #expect((store.epoch == epoch) == (failures < 2))
  }

  @Test func `a gateway starts with any page damaged, begins a new epoch and tells a gap`() throws {
    let rig = try Rig()
    rig.hub.mood = .unreachable
    try rig.startSynced()
    for number in 0..<40 { rig.air("chan r1 0 message \(number) of forty that fill several pages") }
    try rig.until("all in the store") { try rig.status()["store"]?["messages"]?.integer == 40 }
    rig.link.isPresent = false
    try rig.send("r1", "waits for the link", id: "waiting")
    guard let epoch = rig.daemon?.store.epoch else { throw Rig.InVain(description: "no gateway") }
    let card = rig.generation
    rig.end()
    // Opening a database may change its files.
    let copy = rig.location("pages.db")
    try FileManager.default.copyItem(atPath: rig.location("\(card)/gw.db"), toPath: copy)
    let database = try Database(location: copy)
    let pages = try pagesOfEachKind(database)
    let tables = try database.value("SELECT count(*) FROM sqlite_schema WHERE rootpage > 0")?.integer ?? 0
    #expect(pages.count > Int(tables) && tables > 20, "and of the schema itself: \(pages.count) of \(tables)")
    for (name, page) in pages {
      try rig.putBack(card)
      try zero(page, of: rig.location(rig.storeFile("gw.db")))
      let line = rig.story.count
      try rig.start()
      guard let store = rig.daemon?.store else { throw Rig.InVain(description: "no gateway") }
      // What no start reads is found later.
      if store.epoch == epoch, !store.isDamaged { #expect(try store.confirmDamage(), "\(name)") }
      try rig.until("a new epoch after damage of \(name)") { store.epoch != epoch && !store.isDamaged }
      let told = try gaps(store)
      #expect(
        told.contains { $0["reason"]?.string == "damaged" && $0["epoch"]?.string == epoch }, "\(name): \(told)")
      let saved = store.provenance.setAside ?? ""
      #expect(access(saved, F_OK) == 0 && rig.hasSaid(saved, from: line), "\(name): \(saved)")
      rig.end()
    }
    rig.hub.mood = .well
    try rig.start()
    try rig.until("the hub to learn of it") {
      rig.hub.events.contains { $0.kind == "gap" && $0.body["reason"]?.string == "damaged" }
    }
  }
}
