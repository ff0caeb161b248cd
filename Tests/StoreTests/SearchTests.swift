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
    shop.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
      _ = try store.setChannel(Channel(slot: 1, name: "#weather", secret: .hashtag("#weather")))
    }
    let texts: [(QueuedMessage, Int64)] = [
      (Shop.direct("Storm over the ridge", time: 1, from: alice.prefix.value), 1000),
      (Shop.channel("Bob: the battery of the repeater is low", time: 2), 2000),
      (Shop.channel("Älice: Stürm at the RIDGE, battery fine", slot: 1, time: 3), 3000),
      (Shop.channel("Bob: test", slot: 1, time: 4), 4000),
      (Shop.direct("ridge the over", time: 5), 5000),
    ]
    for (message, at) in texts {
      shop.store.write { store throws(SQLiteError) in
        _ = try store.insert(message, at: Moment(milliseconds: at, trusted: true))
      }
    }
    try shop.store.commitNow()
    try index(shop)
    return shop
  }

  private func index(_ shop: Shop) throws {
    var isDone = false
    while !isDone {
      shop.store.write { store throws(SQLiteError) in isDone = try store.indexMessages() }
      try shop.store.commitNow()
    }
  }

  private func find(
    _ shop: Shop, _ query: MessageQuery, oldestFirst: Bool = false, limit: Int = 100
  ) throws -> [Int64] {
    var (query, ids) = (query, [Int64]())
    query.directions = .received
    try shop.store.eachRow(query, oldestFirst: oldestFirst, limit: limit) { row in
      if case .received(let message) = row { ids.append(message.id) }
      return true
    }
    return ids
  }

  @Test(arguments: [
    ("ridge", [5, 3, 1]), ("RIDGE battery", [3]), ("sturm", [3]), ("\"over the ridge\"", [1]), ("batt*", [3, 2]),
    ("ridge -storm", [5, 3]), ("nothing", []), ("the \" ridge", [5, 3, 1]), ("ridge OR test", []), ("text:ridge", []),
    ("ridge) OR (text", []), ("ridge 😀", [5, 3, 1]), ("ridge\"\u{301}x", []), ("\"ridge\u{600}\"", [5, 3, 1]),
  ])
  func `a search finds words, phrases and beginnings, and respects excluded words`(words: String, ids: [Int64]) throws {
    #expect(try find(try filled(), MessageQuery(words: words)) == ids)
  }

  @Test(arguments: [
    ("bob", [4, 2]), ("alice ridge", [3]), ("battery bob", [2]), ("bob ridge", []), ("battery -bob", [3]),
    ("ali*", [3]), ("\"bob test\"", []),
  ])
  func `each word is found in the text or in the sender's name`(words: String, ids: [Int64]) throws {
    let shop = try filled()
    #expect(try find(shop, MessageQuery(words: words)) == ids)
    // Our own messages have no sender in their index.
    var query = MessageQuery(words: words)
    query.directions = .both
    try shop.store.eachRow(query, limit: 10) { _ in true }
  }

  @Test(arguments: ["", "   ", "-test", "😀 !!", "ab*", String(repeating: "word ", count: 33)])
  func `an invalid search is refused`(words: String) throws {
    let shop = try filled()
    #expect(throws: SearchError.self) { try self.find(shop, MessageQuery(words: words)) }
  }

  @Test(arguments: [
    ("天气", [2, 1]), ("山顶", [1]), ("\"天气 很好\"", [1]), ("气天", []), ("天气 -好", [2]), ("天*", [2, 1]), ("リピータ", [3]),
    ("小明 天气", [1]),
    ("電池", [3]), ("พายุ", [4]), ("저전력", [5]), ("중계기*", [5]), ("relay", [3]), ("relay電", []), ("𠮷野", [6]), ("好", [1]),
  ])
  func `words in scripts without spaces are found inside a sentence`(words: String, ids: [Int64]) throws {
    let shop = try unspaced()
    #expect(try find(shop, MessageQuery(words: words)) == ids)
  }

  @Test func `a sender with a Chinese name is found by its messages on a channel`() throws {
    let shop = try unspaced()
    #expect(try find(shop, MessageQuery(from: Contact(key: alice, name: "王小明"))) == [1])
  }

  @Test func `deleted Chinese messages leave the index`() throws {
    let shop = try unspaced(messagesMax: 2)
    shop.store.write { store throws(SQLiteError) in _ = try store.trimMessages() }
    try shop.store.commitNow()
    #expect(try find(shop, MessageQuery(words: "天气")).isEmpty)
    #expect(try find(shop, MessageQuery(words: "저전력")) == [5])
    let words = try shop.store.database.value(
      "SELECT count(*) FROM words WHERE words MATCH 'text : 天 OR text : relay OR text : 电'")
    #expect(words?.integer == 0)
  }

  /// The index of the previous version treated a Chinese sentence as one word.
  @Test(arguments: [true, false])
  func `an index of an older version is rebuilt only if it contains a script without spaces`(isChinese: Bool) throws {
    let scratch = Scratch()
    let location = scratch.location("gw.db")
    do {
      let database = try Database(location: location)
      try database.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
      try database.migrate(Array(Schema.migrations.prefix(10)))
      for (number, text) in ["a ridge", isChinese ? "今天山顶的天气很好" : "the weather", "battery"].enumerated() {
        try database.run(
          """
          INSERT INTO messages(identity, kind, sender, text_type, sender_time, text, path_length, at, trusted)
            VALUES (?, 'direct', x'000000000001', 0, 1, ?, 0, ?, 1)
          """, .blob([UInt8(number)]), .blob(Array(text.utf8)), .integer(Int64(number)))
      }
      try database.execute(
        """
        INSERT INTO words(rowid, text, sender, place) SELECT id, text, sender, place FROM message_words;
        INSERT INTO meta VALUES ('search_indexed', 3)
        """)
    }
    let shop = try Shop(in: scratch)
    #expect(try shop.store.unindexedMessages() == (isChinese ? 3 : 0))
    try index(shop)
    #expect(try find(shop, MessageQuery(words: isChinese ? "天气" : "weather")) == [2])
    #expect(try find(shop, MessageQuery(words: "ridge")) == [1])
  }

  private func unspaced(messagesMax: Int64 = 500_000) throws -> Shop {
    let shop = try Shop(messagesMax: messagesMax)
    let texts = [
      "王小明: 今天山顶的天气很好", "Bob: 天气坏，电池低", "Ken: relayのリピータの電池", "ช้าง: มีพายุที่ภูเขา",
      "Kim: 중계기는 저전력입니다", "𠮷: 𠮷野家",
    ]
    for (number, text) in texts.enumerated() {
      shop.store.write { store throws(SQLiteError) in
        _ = try store.insert(
          Shop.channel(text, time: UInt32(number)), at: Moment(milliseconds: Int64(number), trusted: true))
      }
    }
    try shop.store.commitNow()
    try index(shop)
    return shop
  }

  @Test func `messages are found by sender, channel and time, oldest or newest first, page by page`() throws {
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

  @Test func `deleted messages leave the index`() throws {
    let shop = try filled(messagesMax: 2)
    shop.store.write { store throws(SQLiteError) in _ = try store.trimMessages() }
    try shop.store.commitNow()
    #expect(try find(shop, MessageQuery(words: "ridge")) == [5])
    // Compares the index with the messages, and fails if they differ.
    shop.store.write { store throws(SQLiteError) in
      try store.database.run("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    }
    try shop.store.commitNow()
    #expect(try shop.store.unindexedMessages() == 0)
  }

  @Test func `the index is updated in steps, and reports how far behind it is`() throws {
    let shop = try Shop()
    for number in 0..<600 {
      shop.store.write { store throws(SQLiteError) in
        _ = try store.insert(Shop.channel("Bob: number \(number)", time: UInt32(number)), at: Shop.moment)
      }
    }
    try shop.store.commitNow()
    #expect(try shop.store.unindexedMessages() == 600)
    shop.store.write { store throws(SQLiteError) in #expect(try store.indexMessages() == false) }
    try shop.store.commitNow()
    #expect(try shop.store.unindexedMessages() == 344)
    try index(shop)
    #expect(try find(shop, MessageQuery(words: "number 599")) == [600])
  }

  @Test func `the index stays small, however many messages are deleted`() throws {
    let shop = try Shop(messagesMax: 512)
    func bytes() throws -> Int64 {
      try shop.store.database.value("SELECT sum(length(block)) FROM words_data")?.integer ?? 0
    }
    var most: Int64 = 0
    for round in 0..<60 {
      for number in round * 128..<(round + 1) * 128 {
        shop.store.write { store throws(SQLiteError) in
          _ = try store.insert(
            Shop.channel("Bob: m\(number) the weather of day \(number % 97)", time: UInt32(number)), at: Shop.moment)
        }
      }
      try index(shop)
      shop.store.write { store throws(SQLiteError) in _ = try store.trimMessages() }
      try shop.store.commitNow()
      most = max(most, try bytes())
    }
    shop.store.write { store throws(SQLiteError) in
      try store.database.run("INSERT INTO words(words) VALUES ('optimize')")
    }
    try shop.store.commitNow()
    let least = try bytes()
    #expect(most < 5 * least, "\(most) bytes, of which \(least) are of messages that are kept")
  }
}
