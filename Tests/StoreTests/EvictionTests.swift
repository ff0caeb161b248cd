// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Testing

@testable import Store

@Suite struct EvictionTests {
  private static let day: Int64 = 86_400_000
  private let now = Shop.moment.milliseconds

  private func key(_ number: UInt8) -> PublicKey { PublicKey(bytes: Array(repeating: number, count: 32))! }

  /// Adds the node `number`, heard this many days ago.
  private func add(
    _ shop: Shop, _ number: UInt8, daysAgo: Int64, type: NodeType = .chat, favourite: Bool = false
  ) {
    let contact = Contact(
      key: key(number), type: type, flags: favourite ? 1 : 0, name: Text("n\(number)"),
      lastModified: UInt32(number))
    shop.store.write { store throws(SQLiteError) in
      _ = try store.upsert(contact, onRadio: true, heard: false, at: now)
      try store.database.run(
        "UPDATE contacts SET seen = seen - ? WHERE key = ?", .integer(daysAgo * Self.day), .blob(contact.key.bytes))
    }
  }

  private func leaving(
    _ shop: Shop, _ types: Set<UInt8> = [1], days: Int64 = 14, limit: Int = 10, except: Set<PublicKey> = []
  ) throws -> [UInt8] {
    try shop.store.evictable(
      types: types, age: days * Self.day, elapsed: shop.store.elapsedNow, limit: limit, except: except
    ).map { $0.contact.key.bytes[0] }
  }

  @Test
  func
    `repeaters first, then the longest unheard; favourites, other types, recent and needed ones stay, and who was talked to`()
    throws
  {
    let shop = try Shop()
    add(shop, 1, daysAgo: 100)
    add(shop, 2, daysAgo: 200, favourite: true)
    add(shop, 3, daysAgo: 80)
    add(shop, 4, daysAgo: 5)
    add(shop, 5, daysAgo: 50, type: .repeater)
    add(shop, 6, daysAgo: 60)
    shop.store.write { store throws(SQLiteError) in
      try store.noteTalk(with: self.key(1).prefix, at: self.now - 90 * Self.day)
      try store.noteTalk(with: self.key(3).prefix, at: self.now - 70 * Self.day)
    }
    try shop.store.commitNow()
    #expect(try leaving(shop) == [6], "talking is now, whatever the clock said")
    #expect(try leaving(shop, [1, 2]) == [5, 6])
    #expect(try leaving(shop, [1, 2], limit: 1) == [5])
    #expect(try leaving(shop, [1, 2], except: [key(5)]) == [6])
    #expect(try leaving(shop, days: 0) == [6, 4, 1, 3] || leaving(shop, days: 0) == [6, 4, 3, 1])
    #expect(try leaving(shop, []).isEmpty)
  }

  @Test func `where everybody is active, those heard longest ago are first, whatever was said with them`() throws {
    let shop = try Shop()
    for (number, minutes) in [(1, 15), (2, 55), (3, 35), (4, 5)] as [(UInt8, Int64)] {
      add(shop, number, daysAgo: 0, favourite: number == 4)
      shop.store.write { store throws(SQLiteError) in
        try store.noteTalk(with: self.key(number).prefix, at: self.now)
        try store.database.run(
          "UPDATE contacts SET seen = seen - ? WHERE key = ?", .integer(minutes * 60_000), .blob(self.key(number).bytes)
        )
      }
    }
    try shop.store.commitNow()
    #expect(try leaving(shop, days: 0) == [2, 3, 1])
    #expect(try leaving(shop, days: 1).isEmpty)
  }

  @Test func `a change of the clock makes no contact older, and a heard contact is recent again`() throws {
    let shop = try Shop()
    add(shop, 1, daysAgo: 20)
    add(shop, 2, daysAgo: 20)
    add(shop, 3, daysAgo: 0)
    shop.store.write { store throws(SQLiteError) in
      try store.noteHeard(self.key(1).prefix, at: 5)
      try store.noteHeard(self.key(3).prefix, at: self.now - 900 * Self.day)
    }
    try shop.store.commitNow()
    #expect(try leaving(shop) == [2])
    shop.store.write { store throws(SQLiteError) in
      let changed = Contact(key: self.key(2), type: .chat, name: "n2", lastModified: 500)
      _ = try store.upsert(changed, onRadio: true, heard: false, at: self.now)
    }
    try shop.store.commitNow()
    #expect(try leaving(shop).isEmpty, "the radio has heard it since, whenever that was by its clock")
  }

  @Test func `the number of unknown nodes is bounded, and nodes that matter here stay`() throws {
    let shop = try Shop(nodesMax: 100)
    func add(_ number: Int, onRadio: Bool = false, flags: UInt8 = 0) throws -> PublicKey {
      let key = try #require(
        PublicKey(bytes: [UInt8(number >> 8), UInt8(number & 255), 1] + Array(repeating: 7, count: 29)))
      shop.store.write { store throws(SQLiteError) in
        let contact = Contact(key: key, type: .chat, flags: flags, name: Text("n\(number)"), lastModified: 1)
        _ = try store.upsert(contact, onRadio: onRadio, heard: true, at: now)
      }
      return key
    }
    let kept = [try add(1, onRadio: true), try add(2, flags: 1), try add(3), try add(4)]
    shop.store.write { store throws(SQLiteError) in
      try store.noteTalk(with: kept[2].prefix, at: now)
      _ = try store.editDocument("node/\(kept[3].hex)/alias", #""Hut""#, at: Shop.moment)
    }
    for number in 5..<2000 { _ = try add(number) }
    try shop.store.commitNow()
    let count = try shop.store.contactCount(onRadio: false)
    #expect((100...150).contains(count), "\(count)")
    for key in kept { #expect(try shop.store.contact(key) != nil) }
    #expect(shop.store.nodeCounts.forgotten == 1999 - count)
    let newest = PublicKey(bytes: [UInt8(1999 >> 8), UInt8(1999 & 255), 1] + Array(repeating: 7, count: 29))
    #expect(try newest.map { try shop.store.contact($0) != nil } == true)
  }

  @Test func `a direct message marks its contact as used, at most once a day`() throws {
    let shop = try Shop()
    add(shop, 1, daysAgo: 100)
    try shop.insert(Shop.direct("hello", from: key(1).prefix.value))
    #expect(try leaving(shop, days: 1).isEmpty)
    #expect(try shop.store.isEvicted(key(1)) == false)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.markRemoved(self.key(1))
      try store.setEvicted(self.key(1), true)
    }
    try shop.store.commitNow()
    #expect(try shop.store.isEvicted(key(1)) && !shop.store.isEvicted(key(2)))
  }

  @Test func `of the contacts that a list lacks, those count as overwritten that the radio has lost`() throws {
    let shop = try Shop()
    for number in 1...3 { add(shop, UInt8(number), daysAgo: 1) }
    // No radio keeps it through a restart.
    add(shop, 4, daysAgo: 1, type: NodeType.none)
    var lost: [String] = []
    shop.store.write { store throws(SQLiteError) in
      lost = try store.removeContacts(notIn: [key(3)], at: Shop.moment) { $0 != key(2) }
    }
    try shop.store.commitNow()
    #expect(lost == ["n1"])
    #expect(try shop.store.isEvicted(key(1)) && !shop.store.isEvicted(key(2)))
    #expect(try shop.store.contact(key(3))?.onRadio == true)
    #expect(try !shop.store.isEvicted(key(4)) && shop.store.contact(key(4))?.onRadio == false)
    #expect(try shop.seqs().count == 3)
  }
}
