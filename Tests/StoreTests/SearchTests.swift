// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import SQLite
import TestSupport
import Testing

@testable import Store

@Suite struct SearchTests {
  private let alice = PublicKey(bytes: [0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6] + Array(repeating: 1, count: 26))!

  private func filled(messagesMax: Int64 = 500_000) throws -> Shop {
    let shop = try Shop(messagesMax: messagesMax)
    shop.store.write({ store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
      _ = try store.setChannel(Channel(slot: 1, name: "#weather", secret: .hashtag("#weather")))
    }) { _ in }
    let texts: [(QueuedMessage, Int64)] = [
      (Shop.direct("Storm over the ridge", time: 1, from: alice.prefix.value), 1000),
      (Shop.channel("Bob: the battery of the repeater is low", time: 2), 2000),
      (Shop.channel("Älice: Stürm at the RIDGE, battery fine", slot: 1, time: 3), 3000),
      (Shop.channel("Bob: test", slot: 1, time: 4), 4000),
      (Shop.direct("ridge the over", time: 5), 5000),
    ]
    for (message, at) in texts {
      shop.store.write({ store throws(SQLiteError) in
        _ = try store.insert(message, at: Moment(milliseconds: at, trusted: true))
      }) { _ in }
    }
    try shop.store.commitNow()
    try index(shop)
    return shop
  }

  private func index(_ shop: Shop) throws {
    var isDone = false
    while !isDone {
      shop.store.write({ store throws(SQLiteError) in isDone = try store.indexMessages() }) { _ in }
      try shop.store.commitNow()
    }
  }

  private func find(
    _ shop: Shop, _ query: MessageQuery, oldestFirst: Bool = false, limit: Int = 100
  ) throws -> [Int64] {
    var ids: [Int64] = []
    try shop.store.eachMessage(query, oldestFirst: oldestFirst, limit: limit) { message in
      ids.append(message.id)
      return true
    }
    return ids
  }

  @Test(arguments: [
    ("ridge", [5, 3, 1]), ("RIDGE battery", [3]), ("sturm", [3]), ("\"over the ridge\"", [1]), ("batt*", [3, 2]),
    ("ridge -storm", [5, 3]), ("nothing", []), ("the \" ridge", [5, 3, 1]), ("ridge OR test", []), ("text:ridge", []),
    ("ridge) OR (text", []), ("ridge 😀", [5, 3, 1]), ("ridge\"\u{301}x", []), ("\"ridge\u{600}\"", [5, 3, 1]),
  ])
  func `words, phrases, beginnings and what must not be there`(words: String, ids: [Int64]) throws {
    #expect(try find(try filled(), MessageQuery(words: words)) == ids)
  }

  @Test(arguments: ["", "   ", "-test", "😀 !!", "ab*", String(repeating: "word ", count: 33)])
  func `what cannot be looked for is refused`(words: String) throws {
    let shop = try filled()
    #expect(throws: SearchError.self) { try self.find(shop, MessageQuery(words: words)) }
  }

  @Test func `by sender, channel and time, oldest or newest first, page by page`() throws {
    let shop = try filled()
    let contact = Contact(key: alice, name: "Älice")
    #expect(try find(shop, MessageQuery(from: contact)) == [3, 1], "directly, and under its name on a channel")
    #expect(try find(shop, MessageQuery(channel: .hashtag("#weather"))) == [4, 3])
    #expect(try find(shop, MessageQuery(words: "battery", channel: .publicChannel)) == [2])
    #expect(try find(shop, MessageQuery(since: 2000, until: 4000)) == [4, 3, 2])
    #expect(try find(shop, MessageQuery(words: "ridge", since: 1001, until: 4999)) == [3])
    #expect(try find(shop, MessageQuery(since: 9000)).isEmpty)
    #expect(try find(shop, MessageQuery(until: 999)).isEmpty)
    #expect(try find(shop, MessageQuery(words: "ridge"), oldestFirst: true, limit: 2) == [1, 3])
    #expect(try find(shop, MessageQuery(words: "ridge", after: 3), oldestFirst: true) == [5])
    #expect(try find(shop, MessageQuery(words: "ridge", before: 5)) == [3, 1])
  }

  @Test func `messages that are removed leave the index, too`() throws {
    let shop = try filled(messagesMax: 2)
    shop.store.write({ store throws(SQLiteError) in _ = try store.trimMessages() }) { _ in }
    try shop.store.commitNow()
    #expect(try find(shop, MessageQuery(words: "ridge")) == [5])
    // Compares the index with the messages, and fails if they differ.
    shop.store.write({ store throws(SQLiteError) in
      try store.database.run("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    }) { _ in }
    try shop.store.commitNow()
    #expect(try shop.store.unindexedMessages() == 0)
  }

  @Test func `the index follows in steps, and says how far behind it is`() throws {
    let shop = try Shop()
    for number in 0..<600 {
      shop.store.write({ store throws(SQLiteError) in
        _ = try store.insert(Shop.channel("Bob: number \(number)", time: UInt32(number)), at: Shop.moment)
      }) { _ in }
    }
    try shop.store.commitNow()
    #expect(try shop.store.unindexedMessages() == 600)
    shop.store.write({ store throws(SQLiteError) in #expect(try store.indexMessages() == false) }) { _ in }
    try shop.store.commitNow()
    #expect(try shop.store.unindexedMessages() == 344)
    try index(shop)
    #expect(try find(shop, MessageQuery(words: "number 599")) == [600])
  }
}
