// SPDX-License-Identifier: MIT

import Companion
import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// Damage beyond what a power cut can do: flipped bits, and pages that are lost, zeroed or from elsewhere. What is damaged
/// is told, with its range; nothing else than what was stored is ever served as stored.
@Suite struct DamageTests {
  /// A closed store with this many events, half of them messages, and a mark. Returns its events.
  private func filled(_ settings: Store.Settings) throws -> (events: [JournalEvent], epoch: String) {
    let store = try Store(settings)
    for round in 0..<40 as Range<UInt32> {
      store.write { store throws(SQLiteError) in
        _ = try store.insert(Shop.direct("message \(round) with some words", time: round + 1), at: Shop.moment)
        let moment = Moment(milliseconds: Shop.moment.milliseconds + Int64(round), trusted: round % 3 != 0)
        try store.append(.telemetry, at: moment, body: Array("{\"reading\":\(round)}".utf8))
        try store.setCursor(of: "hub", to: Int64(round))
      }
      try store.commitNow()
    }
    try store.checkpoint()
    try store.markProgress()
    var events: [JournalEvent] = []
    try store.readJournal(after: 0) { event, isSound in
      #expect(isSound)
      events.append(event)
      return true
    }
    return (events, store.epoch)
  }

  private struct Random {
    var state: UInt64

    mutating func next(_ bound: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % bound
    }
  }

  enum Damage: CaseIterable { case bit, page, pageElsewhere, end }

  private static func apply(_ damage: Damage, to file: inout [UInt8], _ random: inout Random) -> String {
    let size = Int(Store.pageSize)
    let page = random.next(file.count / size) * size
    switch damage {
    case .bit:
      let (place, bit) = (random.next(file.count), random.next(8))
      file[place] ^= 1 << bit
      return "bit \(bit) of byte \(place)"
    case .page:
      file.replaceSubrange(page..<page + size, with: [UInt8](repeating: 0, count: size))
      return "page at \(page) is zeros"
    case .pageElsewhere:
      let other = random.next(file.count / size) * size
      file.replaceSubrange(page..<page + size, with: Array(file[other..<other + size]))
      return "page at \(page) is that at \(other)"
    case .end:
      file.removeLast(size * (1 + random.next(file.count / size / 2)))
      return "the file ends at \(file.count)"
    }
  }

  @Test(arguments: Damage.allCases)
  private func `a damaged database serves nothing else than what was stored, or tells it`(
    damage: Damage
  ) throws {
    let scratch = Scratch(inMemory: true)
    let settings = Store.Settings(location: scratch.location("gw.db"))
    let (events, epoch) = try filled(settings)
    let whole = try Array(Data(contentsOf: URL(filePath: settings.location)))
    let files = try [".id", ".mark"].map { ($0, try Data(contentsOf: URL(filePath: settings.location + $0))) }
    var random = Random(state: 46)
    var told = 0
    for round in 0..<(damage == .bit ? 200 : 50) {
      for name in try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path()) {
        unlink(scratch.location(name))
      }
      for (suffix, content) in files { try content.write(to: URL(filePath: settings.location + suffix)) }
      var file = whole
      let what = "\(damage) \(round): \(Self.apply(damage, to: &file, &random))"
      try Data(file).write(to: URL(filePath: settings.location))
      let store: Store
      do throws(StoreError) {
        store = try Store(settings)
      } catch {
        // Refused with a reason that somebody reads, and nothing is changed.
        told += 1
        continue
      }
      if let saved = store.provenance.setAside {
        #expect(try Array(Data(contentsOf: URL(filePath: saved))) == file, "\(what)")
        #expect(store.epoch != epoch && store.provenance.loss?.last == events.last?.seq, "\(what)")
        told += 1
        continue
      }
      var found: [Int64: (event: JournalEvent, isSound: Bool)] = [:]
      do throws(StoreError) {
        try store.readJournal(after: 0) { event, isSound in
          found[event.seq] = (event, isSound)
          return true
        }
      } catch {
        // A running gateway checks the whole database then, and replaces it.
        #expect(store.isDamaged, "\(what): \(error)")
        told += 1
        continue
      }
      if store.epoch == epoch {
        #expect(store.lastSeq >= events.last?.seq ?? 0, "\(what): numbers would be used again")
      }
      for event in events where event.seq < store.identity.epochFirst || store.epoch == epoch {
        guard found[event.seq]?.isSound == true else { continue }
        let served = try #require(found[event.seq]).event
        #expect(served == event, "\(what): event \(event.seq) is served as it never was")
      }
      if events.contains(where: { found[$0.seq]?.isSound != true }) || store.epoch != epoch { told += 1 }
      // What never was is not served either.
      for (seq, served) in found where seq > events.count && served.event.kind != "gap" {
        #expect(!served.isSound, "\(what): event \(seq) never was")
      }
    }
    #expect(told > 10)
  }

  @Test func `a damaged cursor beyond the journal skips no events`() throws {
    let scratch = Scratch(inMemory: true)
    let settings = Store.Settings(location: scratch.location("gw.db"))
    let (events, _) = try filled(settings)
    let store = try Store(settings)
    store.write { store throws(SQLiteError) in
      try store.database.run("UPDATE cursors SET seq = 1048576, nodes = -5 WHERE upstream = 'hub'")
    }
    try store.commitNow()
    #expect(try store.openCursor(of: "hub", fromStart: false).cursor == ByLane(messages: 0, nodes: 0, packets: 39))
    #expect(events.count == 80)
  }

  /// Pages of the log belong to a later state of the database. SQLite may find that at the first write only, and nothing in a check of the whole.
  @Test(arguments: [15, 200, 600, 1500])
  func `a gateway starts with an older copy of its database beside the present log`(_ count: Int) throws {
    let (shop, scratch) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    let settings = Store.Settings(location: scratch.location("gw.db"))
    func copy(_ suffix: String) throws {
      try FileManager.default.copyItem(
        atPath: shop.scratch.location("gw.db\(suffix)"), toPath: settings.location + suffix)
    }
    for number in 1...count {
      try shop.insert(Shop.direct("message \(number)", time: UInt32(number)))
      guard number == 5 else { continue }
      try shop.store.checkpoint()
      try copy("")
    }
    for suffix in ["-wal", ".id", ".mark"] { try copy(suffix) }
    let store = try Store(settings)
    store.write { store throws(SQLiteError) in _ = try store.insert(Shop.direct("new", time: 7000), at: Shop.moment) }
    try store.commitNow()
    if let saved = store.provenance.setAside { #expect(access(saved, F_OK) == 0) }
  }
}
