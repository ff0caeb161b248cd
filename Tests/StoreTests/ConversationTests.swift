// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Testing

@testable import Store

@Suite struct ConversationTests {
  private let birch = PublicKey(bytes: Array(repeating: 7, count: 32))!

  /// Messages in this order, while the clock goes anywhere: r: received, s: sent.
  private func filled(_ turns: String, clock: (Int) -> Int64 = { Int64($0) * 1000 }) throws -> Shop {
    let shop = try Shop()
    for (number, turn) in turns.enumerated() {
      let moment = Moment(milliseconds: clock(number), trusted: true)
      shop.store.write { store throws(SQLiteError) in
        guard turn == "s" else {
          _ = try store.insert(
            Shop.direct("word \(number)", time: UInt32(number), from: birch.prefix.value), at: moment)
          return
        }
        _ = try store.insertOutgoing(
          OutgoingMessage(
            key: "k\(number)", origin: "control", priority: 0, kind: .direct, recipient: birch,
            text: Text("word \(number)"), created: moment, lifetime: 1000))
      }
      try shop.store.commitNow()
    }
    return shop
  }

  private func numbers(
    _ shop: Shop, _ query: MessageQuery = MessageQuery(), _ directions: MessageQuery.Directions = .both,
    oldestFirst: Bool = true, limit: Int = 1000
  ) throws -> [(text: String, place: MessagePlace)] {
    var query = query
    query.directions = directions
    var found: [(text: String, place: MessagePlace)] = []
    try shop.store.eachRow(query, oldestFirst: oldestFirst, limit: limit) { row in
      switch row {
      case .received(let message): found.append((String(message.text.string.dropFirst(5)), row.place))
      case .sent(let message, _): found.append((String(message.text.string.dropFirst(5)), row.place))
      }
      return true
    }
    return found
  }

  @Test func `both directions are listed in the order of storage, whatever the clock did`() throws {
    let turns = "srrssrsrrrss"
    let shop = try filled(turns) { $0.isMultiple(of: 3) ? 1_000_000 : Int64(50 - $0) }
    let all = (0..<turns.count).map(String.init)
    #expect(try numbers(shop).map(\.text) == all)
    #expect(try numbers(shop, oldestFirst: false).map(\.text) == all.reversed())
    #expect(try numbers(shop, MessageQuery(), .sent).map(\.text) == ["0", "3", "4", "6", "10", "11"])
    #expect(try numbers(shop, MessageQuery(), .received).map(\.text) == ["1", "2", "5", "7", "8", "9"])
    #expect(try numbers(shop, oldestFirst: false, limit: 3).map(\.text) == ["11", "10", "9"])
  }

  private func full<Row>(_ rows: [Row]) -> [Row]? { rows.isEmpty ? nil : rows }

  @Test(arguments: 1...5) func `pages of any size are complete in both directions`(size: Int) throws {
    let shop = try filled("ssrsrrsssrrs") { Int64(100 - $0) }
    var (forth, back): ([String], [String]) = ([], [])
    var query = MessageQuery()
    while let page = try full(numbers(shop, query, limit: size)), let last = page.last {
      forth += page.map(\.text)
      query.after = try #require(MessagePlace(last.place.description), "as a client gives it back")
    }
    query = MessageQuery()
    while let page = try full(numbers(shop, query, oldestFirst: false, limit: size)), let last = page.last {
      back += page.map(\.text)
      query.before = last.place
    }
    #expect(forth == (0..<12).map(String.init) && back == forth.reversed())
  }

  @Test(arguments: Int64(1)...5)
  func `parts of any size have each row once, in both directions`(span: Int64) throws {
    let shop = try filled("ssrsrrsssrrs") { Int64(100 - $0) }
    let kinds: [MessageQuery.Directions] = [.both, .sent, .received]
    for directions in kinds {
      var query = MessageQuery()
      query.directions = directions
      let all = try numbers(shop, query, directions).map(\.text)
      var (forth, back): ([String], [String]) = ([], [])
      var rest: MessageQuery? = query
      while let next = rest {
        let (part, more) = try shop.store.oldestPart(of: next, span: span)
        forth += try numbers(shop, part, directions).map(\.text)
        rest = more
      }
      rest = query
      while let next = rest {
        let (part, more) = try shop.store.newestPart(of: next, span: span)
        back += try numbers(shop, part, directions, oldestFirst: false).map(\.text)
        rest = more
      }
      #expect(forth == all && back == all.reversed())
    }
  }

  @Test func `a part looks at a bounded number of messages`() throws {
    let shop = try Shop()
    shop.store.write { store throws(SQLiteError) in
      for number in 1...5000 {
        _ = try store.insert(Shop.direct("word \(number)", time: UInt32(number)), at: Shop.moment)
      }
    }
    try shop.store.commitNow()
    var sizes: [Int] = []
    var rest: MessageQuery? = MessageQuery()
    while let next = rest {
      let (part, more) = try shop.store.oldestPart(of: next)
      sizes.append(try numbers(shop, part, .received, limit: 5000).count)
      rest = more
    }
    #expect(sizes.reduce(0, +) == 5000 && sizes.allSatisfy { $0 <= 2048 }, "\(sizes)")
  }

  @Test func `a sent message is found by its words, also after old messages are deleted`() throws {
    let shop = try filled("rsrs")
    func index() throws {
      shop.store.write { store throws(SQLiteError) in _ = try store.indexMessages() }
      try shop.store.commitNow()
    }
    #expect(try shop.store.unindexedMessages() == 4)
    try index()
    #expect(try shop.store.unindexedMessages() == 0)
    #expect(try numbers(shop, MessageQuery(words: "word")).map(\.text) == ["0", "1", "2", "3"])
    #expect(try numbers(shop, MessageQuery(words: "3 WORD")).map(\.text) == ["3"])
    #expect(try numbers(shop, MessageQuery(words: "word -3")).map(\.text) == ["0", "1", "2"])
    var query = MessageQuery(words: "word")
    query.with = Contact(
      key: birch, type: .chat, flags: 0, outPath: nil, name: "Birch", lastAdvert: 0, latitude: 0, longitude: 0,
      lastModified: 0)
    #expect(try numbers(shop, query).count == 4)
    query.with?.key = PublicKey(bytes: Array(repeating: 8, count: 32))!
    #expect(try numbers(shop, query).isEmpty)
    query = MessageQuery(since: 1000, until: 2000)
    #expect(try numbers(shop, query).map(\.text) == ["1", "2"])
    // More messages than the store keeps: the first one is deleted, with its words.
    let worth = Store.worthTrimming(Store.maxOutgoing)
    var trimmed: [Int] = []
    shop.store.write { store throws(SQLiteError) in
      for key in ["k1", "k8", "k9"] {
        if key == "k8" {
          try store.database.run(
            "UPDATE sqlite_sequence SET seq = \(Store.maxOutgoing + worth - 2) WHERE name = 'outgoing'")
        }
        if key != "k1" {
          _ = try store.insertOutgoing(
            OutgoingMessage(
              key: key, origin: "control", priority: 0, kind: .direct, recipient: birch, text: Text("word \(key)"),
              created: Shop.moment, lifetime: 1000))
        }
        guard var message = try store.readOutgoing(key: key) else { return }
        (message.state, message.endedAt) = (.failed, 5)
        try store.updateOutgoing(message, at: Shop.moment)
        trimmed.append(try store.trimOutgoing())
      }
    }
    try shop.store.commitNow()
    #expect(trimmed == [0, 0, 1], "not before it is worth it")
    #expect(try shop.store.outgoing(key: "k1") == nil)
    for _ in 0..<50 { try index() }
    #expect(try numbers(shop, MessageQuery(words: "word"), .sent).map(\.text) == ["3", "k8", "k9"])
    try shop.store.translating { () throws(SQLiteError) in
      try shop.store.database.execute("INSERT INTO sent_words(sent_words) VALUES ('integrity-check')")
    }
  }

  @Test(arguments: ["", "x", "1.", "-1", "1.0", "1.-2", "1.2.3", "99999999999999999999"])
  func `an invalid position is refused`(text: String) { #expect(MessagePlace(text) == nil) }
}
