// SPDX-License-Identifier: MIT

import Companion
import SQLite
import TestSupport
import Testing

@testable import Store

@Suite struct EvictionTests {
  private static let day: Int64 = 86_400_000
  private let now = Shop.moment.milliseconds

  private func key(_ number: UInt8) -> PublicKey { PublicKey(bytes: Array(repeating: number, count: 32))! }

  /// Node `number`, heard so many days ago.
  private func add(
    _ shop: Shop, _ number: UInt8, daysAgo: Int64, type: NodeType = .chat, favourite: Bool = false, clock: Bool = true
  ) {
    let heard = now - daysAgo * Self.day
    let contact = Contact(
      key: key(number), type: type, flags: favourite ? 1 : 0, name: Text("n\(number)"),
      lastModified: clock ? UInt32(heard / 1000) : 77)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.upsert(contact, onRadio: true, heard: false, at: heard)
    }
  }

  @Test
  func
    `the longest unheard first, after them those with whom there was a word; favourites, other types and recent ones stay`()
    throws
  {
    let shop = try Shop()
    add(shop, 1, daysAgo: 100)
    add(shop, 2, daysAgo: 200, favourite: true)
    add(shop, 3, daysAgo: 300)
    add(shop, 4, daysAgo: 5)
    add(shop, 5, daysAgo: 50, type: .repeater)
    add(shop, 6, daysAgo: 60, clock: false)
    shop.store.write { store throws(SQLiteError) in
      try store.noteTalk(with: self.key(3).prefix, at: self.now - 90 * Self.day)
    }
    try shop.store.commitNow()
    func leaving(_ types: Set<UInt8> = [1], limit: Int = 10) throws -> [UInt8] {
      try shop.store.evictable(types: types, unheardSince: now - 14 * Self.day, limit: limit).map {
        $0.contact.key.bytes[0]
      }
    }
    #expect(try leaving() == [1, 6, 3])
    #expect(try leaving([1, 2]) == [1, 6, 5, 3])
    #expect(try leaving(limit: 1) == [1])
    #expect(try leaving([]).isEmpty)
  }

  @Test func `a direct message is a word with somebody, noted once a day`() throws {
    let shop = try Shop()
    add(shop, 1, daysAgo: 100)
    try shop.insert(Shop.direct("hello", from: key(1).prefix.value))
    #expect(try shop.store.evictable(types: [1], unheardSince: now - Self.day, limit: 9).isEmpty)
    #expect(try shop.store.isEvicted(key(1)) == false)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.markRemoved(self.key(1))
      try store.setEvicted(self.key(1), true)
    }
    try shop.store.commitNow()
    #expect(try shop.store.isEvicted(key(1)) && !shop.store.isEvicted(key(2)))
  }
}
