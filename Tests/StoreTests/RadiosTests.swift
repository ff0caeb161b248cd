// SPDX-License-Identifier: MIT

import Companion
import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

@Suite struct RadiosTests {
  private func key(_ number: UInt8) -> PublicKey { PublicKey(bytes: Array(repeating: number, count: 32))! }

  private func attach(_ shop: Shop, _ number: UInt8) throws -> Bool {
    try shop.store.attach(key(number), name: Text("r\(number)"), at: 1000 + Int64(number))
  }

  private func texts(_ shop: Shop, ofRadio radio: Int64?) throws -> [String] {
    var texts: [String] = []
    try shop.store.eachRow(MessageQuery(radio: radio), oldestFirst: true, limit: 1000) { row in
      if case .received(let message) = row { texts.append(message.text.string) }
      return true
    }
    return texts
  }

  @Test func `each radio has its own messages, and a channel message that both hear is shared`() throws {
    let shop = try Shop()
    #expect(try !attach(shop, 1), "the first is no other")
    try shop.insert(Shop.direct("to the first"))
    try shop.insert(Shop.channel("A: to all"))
    try shop.insert(Shop.channel("A: before the second came", time: 8))
    #expect(try attach(shop, 2))
    #expect(try shop.insert(Shop.direct("to the first")) == .stored(id: 4, seq: 4), "the same words to another radio")
    #expect(try shop.insert(Shop.direct("to the first")).isDuplicate)
    #expect(try shop.insert(Shop.channel("A: to all")).isDuplicate)
    #expect(try texts(shop, ofRadio: 1) == ["to the first", "to all", "before the second came"])
    #expect(try texts(shop, ofRadio: 2) == ["to all", "to the first"], "an earlier one that it heard, too")
    #expect(try texts(shop, ofRadio: nil).count == 4)
    #expect(try shop.store.messageCount(ofRadio: 1) == 3)
    #expect(try shop.store.message(after: 0)?.id == 2, "for programs that share it, too")
    #expect(try shop.store.messageCount(after: 0, atMost: 100) == 2)
    #expect(try shop.store.messageCount(after: 2, atMost: 100) == 1)
    #expect(try shop.store.messageCount(after: 0, atMost: 1) == 1)
    #expect(try shop.store.lastMessageID(ofRadio: 2) == 4)
    #expect(try attach(shop, 1), "and it is back")
    #expect(try shop.insert(Shop.direct("to the first")).isDuplicate)
    #expect(try shop.store.lastMessageID(ofRadio: 1) == 3)
    #expect(try shop.store.deletedCount(after: 0) == 0)
    try shop.store.database.run("DELETE FROM messages WHERE id <= 2")
    #expect(try shop.store.deletedCount(after: 0) == 2 && shop.store.deletedCount(after: 1) == 1)
    #expect(try shop.store.deletedCount(after: 2) == 0)
  }

  @Test func `the attached radio is known after a restart, also with a held message of the radio before`() throws {
    let scratch = Scratch()
    func open() throws -> Store { try Store(Store.Settings(location: scratch.location("gw.db"))) }
    do {
      let store = try open()
      _ = try store.attach(key(1), name: "r1", at: 1)
      _ = try store.attach(key(2), name: "r2", at: 2)
      store.write { store throws(SQLiteError) in
        _ = try store.insert(Shop.direct("late"), at: Shop.moment, by: 1)
        _ = try store.insert(Shop.direct("now"), at: Shop.moment)
      }
      try store.commitNow()
    }
    let store = try open()
    #expect(store.radio == 2 && store.radioKey == key(2) && store.radios.map(\.name.string) == ["r1", "r2"])
    #expect(try store.lastMessageID(ofRadio: 1) == 1 && store.lastMessageID(ofRadio: 2) == 2)
    var bodies: [String] = []
    try store.readJournal(after: 0) { event, _ in
      bodies.append(String(decoding: event.body, as: UTF8.self))
      return true
    }
    #expect(bodies.map { $0.contains("\"radio\":\"010101010101\"") } == [true, false])
    #expect(bodies.map { $0.contains("\"radio\":\"020202020202\"") } == [false, true])
  }

  @Test func `while only one radio is known, no event names it`() throws {
    let shop = try Shop()
    _ = try attach(shop, 1)
    try shop.insert(Shop.direct("hello"))
    try shop.store.readJournal(after: 0) { event, _ in
      #expect(!String(decoding: event.body, as: UTF8.self).contains("radio"))
      return true
    }
  }

  @Test func `another radio's unsent messages are held, and are taken over as new ones`() throws {
    let shop = try Shop()
    _ = try attach(shop, 1)
    var message = OutgoingMessage(
      key: "k", origin: "control", priority: 0, kind: .direct, recipient: key(9), text: "hello", created: Shop.moment,
      lifetime: 1000, radio: 1)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.insertOutgoing(message)
      _ = try store.insert(Shop.direct("an answer"), at: Shop.moment)
    }
    try shop.store.commitNow()
    _ = try attach(shop, 2)
    func live() throws -> [String] { try shop.store.liveOutgoing().map(\.key) }
    #expect(try live().isEmpty && shop.store.heldCount() == 1)
    message = try #require(try shop.store.outgoing(key: "k"))
    message.radio = 2
    shop.store.write { [message] store throws(SQLiteError) in try store.adoptOutgoing(message) }
    try shop.store.commitNow()
    #expect(try live() == ["k"] && shop.store.heldCount() == 0)
    #expect(try shop.store.place(ofOutgoing: message.id) == MessagePlace(message: 1, outgoing: message.id))
  }

  @Test func `a message that the old database refused keeps its radio in a new database`() throws {
    let shop = try Shop()
    _ = try attach(shop, 1)
    _ = try attach(shop, 2)
    let taken = TakenMessage(Shop.direct("late"), at: Shop.moment, wait: .none, by: key(2).prefix)
    #expect(shop.store.hold([taken]) && shop.store.number(ofRadio: taken.radio) == 2)
    _ = try shop.store.replaceDamaged(unsent: 0)
    _ = try attach(shop, 2)
    _ = try attach(shop, 1)
    #expect(shop.store.number(ofRadio: taken.radio) == 1 && shop.store.number(ofRadio: key(1).prefix) == 2)
    #expect(shop.store.heldMessages == [taken], "not the number that it had")
  }

  @Test func `a contact's eviction from one radio's table does not apply to another's`() throws {
    let shop = try Shop()
    _ = try attach(shop, 1)
    let contact = Contact(
      key: key(9), type: .chat, flags: 0, outPath: nil, name: "nine", lastAdvert: 0, latitude: 0, longitude: 0,
      lastModified: 0)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.upsert(contact, onRadio: true, heard: false, at: 1)
      _ = try store.markRemoved(contact.key)
      try store.setEvicted(contact.key, true)
    }
    try shop.store.commitNow()
    #expect(try shop.store.isEvicted(contact.key))
    _ = try attach(shop, 2)
    #expect(try !shop.store.isEvicted(contact.key))
    #expect(try shop.store.contactCount(ofRadio: 1) == 1 && shop.store.contactCount(ofRadio: 2) == 0)
  }

  /// A database of the previous version, as on a card.
  private func old(_ location: String, radio: PublicKey?) throws {
    let database = try Database(location: location)
    try database.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
    try database.migrate(Array(Schema.migrations.prefix(6)))
    if let radio { try database.run("INSERT INTO meta VALUES ('radio_key', ?)", .blob(radio.bytes)) }
    for number in 1...20 {
      try database.run(
        """
        INSERT INTO messages(identity, kind, sender, text_type, sender_time, text, path_length, at, trusted)
          VALUES (?, 'direct', x'000000000001', 0, ?, ?, 0, ?, 1)
        """, .blob(Store.identity(of: Self.direct("\(number)", time: UInt32(number))).bytes), .integer(Int64(number)),
        .blob(Array("\(number)".utf8)), .integer(Int64(number) * 1000))
    }
    for at in [500, 5500, 5500, 99_000] {
      try database.run(
        """
        INSERT INTO outgoing(key, origin, priority, kind, text, state, attempt, tries, floods, codes, created_at,
          created_trusted, lifetime, heard, airtime) VALUES (hex(randomblob(4)), 'control', 0, 'channel', x'41', 'pending',
          0, 0, 0, x'', ?, 1, 1000, 0, 0)
        """, .integer(Int64(at)))
    }
    try database.run("INSERT INTO reactions VALUES (7, 'aabbccddeeff', 'h', 'aabbccddeeff', 'x', 3, 4, 5)")
  }

  private static func direct(_ text: String, time: UInt32) -> StoredMessage {
    StoredMessage(
      id: 0, kind: .direct, sender: KeyPrefix(value: 1), textType: .plain, senderTime: time, text: Text(text),
      path: ReceivedPath(raw: 0), received: Shop.moment, copies: 1, radio: 1)
  }

  @Test(arguments: [true, false])
  func `an older database belongs to its last synchronised radio, or else to the first attached one`(isKnown: Bool)
    throws
  {
    let scratch = Scratch()
    try old(scratch.location("gw.db"), radio: isKnown ? key(1) : nil)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    #expect(store.radioKey == (isKnown ? key(1) : nil))
    #expect(try !store.attach(key(1), name: "r1", at: 1))
    #expect(try store.lastMessageID(ofRadio: 1) == 20 && store.messageCount(ofRadio: 1) == 20)
    var places: [Int64] = []
    var query = MessageQuery()
    query.directions = .sent
    try store.eachRow(query, oldestFirst: true, limit: 10) { row in
      places.append(row.place.message)
      return true
    }
    #expect(places == [0, 5, 5, 20], "by their times")
    #expect(try store.reactions(to: .received(3)).count == 1)
    var arrival: MessageArrival?
    store.write { store throws(SQLiteError) in
      arrival = try store.insert(Shop.direct("3", time: 3), at: Moment(milliseconds: 4000, trusted: true))
    }
    try store.commitNow()
    #expect(arrival?.isDuplicate == true, "an earlier message is still known")
    #expect(try store.attach(key(2), name: "r2", at: 2))
    #expect(try store.lastMessageID(ofRadio: 2) == 0 && store.heldCount() == 4)
  }
}
