// SPDX-License-Identifier: MIT

import Companion
import Foundation
import MeshCrypto
import SQLite
import TestSupport
import Testing
import Timing

@testable import Store

/// Received messages are events of the journal without a row there.
@Suite struct MessageJournalTests {
  private func events(
    of store: Store, after: Int64 = 0, limit: Int = .max, lane: Lane? = nil
  ) throws -> [(seq: Int64, kind: String, body: String, isSound: Bool, size: Int64)] {
    var found: [(Int64, String, String, Bool, Int64)] = []
    try store.readJournal(after: after, limit: limit, lane: lane) { event, isSound in
      found.append((event.seq, event.kind, String(decoding: event.body, as: UTF8.self), isSound, Int64(event.size)))
      return true
    }
    return found
  }

  /// Opens the store again, as after a kill.
  private func reopened(_ shop: Shop) throws -> Shop {
    let copy = Scratch()
    for suffix in ["", "-wal", ".id"] {
      let location = shop.store.location + suffix
      guard FileManager.default.fileExists(atPath: location) else { continue }
      try FileManager.default.copyItem(atPath: location, toPath: copy.location("gw.db" + suffix))
    }
    var settings = shop.store.settings
    settings.location = copy.location("gw.db")
    return Shop(scratch: copy, store: try Store(settings))
  }

  @Test func `messages and other events are read in one order, by lane and in parts`() throws {
    let shop = try Shop()
    try shop.append(1)
    try shop.insert(Shop.direct("one", time: 1))
    try shop.insert(Shop.channel("Alder: two", time: 2))
    shop.store.write { store throws(SQLiteError) in
      _ = try store.append(.advert, at: Shop.moment, body: Array("{\"advert\":1}".utf8))
    }
    try shop.insert(Shop.direct("three", time: 3))
    let all = try events(of: shop.store)
    #expect(all.map(\.seq) == [1, 2, 3, 4, 5])
    #expect(all.map(\.kind) == ["message", "message", "message", "advert", "message"])
    #expect(all.allSatisfy { $0.isSound })
    #expect(all[1].body.contains("\"text\":\"one\"") && all[4].body.contains("\"text\":\"three\""))
    for after in 0...5 as ClosedRange<Int64> {
      for limit in 0...6 {
        let part = try events(of: shop.store, after: after, limit: limit)
        #expect(part.map(\.body) == all.filter { $0.seq > after }.prefix(limit).map(\.body), "after \(after), \(limit)")
      }
    }
    let nodes = try events(of: shop.store, lane: .nodes)
    #expect(nodes.map(\.seq) == [1, 2, 3, 4, 5] && nodes.map(\.body.isEmpty) == [true, true, true, false, true])
    // A reader that has enough gets no more events.
    var count = 0
    try shop.store.readJournal(after: 0) { _, _ in
      count += 1
      return count < 3
    }
    #expect(count == 3)
    #expect(try shop.store.database.value("SELECT count(*) FROM journal")?.integer == 2)
  }

  @Test func `an event describes the channel and the contact as they were when the message arrived`() throws {
    let shop = try Shop()
    let key = try #require(PublicKey(bytes: [0xAA, 0xBB, 0xCC, 0xDD] + [UInt8](repeating: 1, count: 28)))
    shop.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "#trees", secret: .hashtag("#trees")))
      _ = try store.upsert(Contact(key: key, name: "Birch"), onRadio: true, heard: false, at: 1)
    }
    try shop.insert(Shop.channel("Alder: hello"))
    try shop.insert(
      .contact(
        ContactMessage(
          snr: nil, sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0), textType: .signedPlain, senderTime: 4,
          author: [0xAA, 0xBB, 0xCC, 0xDD], text: "post")))
    let before = try events(of: shop.store)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "#hills", secret: .hashtag("#trees")))
      _ = try store.upsert(Contact(key: key, name: "Rowan"), onRadio: true, heard: false, at: 2)
    }
    try shop.store.commitNow()
    let bodies = try events(of: shop.store).filter { $0.kind == "message" }.map(\.body)
    #expect(bodies == before.filter { $0.kind == "message" }.map(\.body))
    #expect(bodies[0].contains("#trees") && bodies[1].contains("Birch"))
    #expect(shop.insertAgain()?.isDuplicate == true)
    #expect(
      try events(of: shop.store).filter { $0.kind == "message" }.map(\.body) == bodies, "copies are not part of it")
  }

  /// Messages, other events, rolled back turns, trimming of both kinds and restarts, in any order: the journal agrees with a list.
  @Test(arguments: 1...12) func `after random operations the journal equals a list of the events`(seed: UInt64) throws {
    var random = SeededRandom(seed: seed)
    var shop = try Shop(journalMaxSize: seed % 3 == 0 ? 4000 : 1 << 20, messagesMax: seed % 2 == 0 ? 7 : 1000)
    var expected: [(seq: Int64, lane: Lane, body: String)] = []
    var time: UInt32 = 0
    try shop.store.keepOnlyCursors(of: ["hub"])
    for step in 0..<120 {
      let store = shop.store
      switch Int.random(in: 0..<10, using: &random) {
      case 0...3:
        time += 1
        let words = "message \(time)" + String(repeating: "é", count: Int.random(in: 0..<40, using: &random))
        var arrival: MessageArrival?
        store.write { store throws(SQLiteError) in
          arrival = try store.insert(Shop.direct(words, time: time), at: Shop.moment)
        }
        try store.commitNow()
        guard case .stored(_, let seq)? = arrival else {
          Issue.record("it is a new one: seed \(seed), step \(step)")
          return
        }
        let body = try #require(try events(of: store, after: seq - 1, limit: 1).first?.body)
        #expect(body.contains(words))
        expected.append((seq, .messages, body))
      case 4, 5:
        let kind: EventKind = [.advert, .outgoing, .packet].randomElement(using: &random) ?? .advert
        let body = "{\"n\":\(step)}"
        var seq: Int64 = 0
        store.write { store throws(SQLiteError) in seq = try store.append(kind, at: Shop.moment, body: Array(body.utf8))
        }
        try store.commitNow()
        expected.append((seq, kind.lane, body))
      case 6:
        // The whole turn fails.
        store.write { store throws(SQLiteError) in
          _ = try store.insert(Shop.direct("never", time: .max), at: Shop.moment)
          throw SQLiteError(code: 13, message: "a test's")
        }
        store.commit(everything: true)
      case 7:
        let trim = store.trimJournal(now: Shop.moment)
        store.commit(everything: true)
        if let trim { expected.removeAll { $0.seq <= trim.trim.last } }
      case 8:
        store.write { store throws(SQLiteError) in _ = try store.trimMessages() }
        store.commit(everything: true)
      default:
        let size = store.journalSize
        store.settle()
        shop = try reopened(shop)
        #expect(shop.store.journalSize == size, "seed \(seed), step \(step)")
      }
      let now = shop.store
      let found = try events(of: now)
      #expect(found.map(\.seq) == expected.map(\.seq), "seed \(seed), step \(step)")
      #expect(
        found.map(\.body) == expected.map(\.body) && found.allSatisfy { $0.isSound }, "seed \(seed), step \(step)")
      let after = Int64.random(in: 0...(now.lastSeq + 1), using: &random)
      let rest = expected.filter { $0.seq > after }
      #expect(try events(of: now, after: after).map(\.seq) == rest.map(\.seq), "seed \(seed), step \(step)")
      let amounts = try now.amounts(after: after)
      for lane in Lane.allCases {
        let ours = rest.filter { $0.lane == lane }
        let bytes = found.filter { event in ours.contains { $0.seq == event.seq } }.reduce(0) { $0 + $1.size }
        #expect(amounts[lane] == LaneAmount(events: Int64(ours.count), bytes: bytes), "seed \(seed), step \(step)")
        #expect(now.newestSeq[lane] >= (ours.last?.seq ?? 0))
      }
      let all = found.reduce(0) { $0 + $1.size + JournalState.rowOverhead }
      #expect(now.journalSize.bytes == all, "seed \(seed), step \(step)")
    }
  }

  @Test func `a flipped bit in a message loses no other event, and is reported`() throws {
    let shop = try Shop()
    for number in 1...40 {
      try shop.insert(Shop.channel("Alder: message \(number)", time: UInt32(number)))
      if number % 3 == 0 { try shop.append(1) }
    }
    let intact = try events(of: shop.store)
    try shop.store.database.execute("CREATE TEMP TABLE kept AS SELECT * FROM messages")
    let last = shop.store.lastSeq
    var random = SeededRandom(seed: 5)
    var unsound = 0
    for _ in 0..<300 {
      let id = Int64.random(in: 1...40, using: &random)
      let seq = try #require(
        try shop.store.database.value("SELECT seq FROM messages WHERE id = ?", .integer(id))?.integer)
      let bit = Int.random(in: 0..<62, using: &random)
      let column: String
      if Bool.random(using: &random) {
        column = ["seq", "event_start", "at", "checksum", "sender_time"].randomElement(using: &random) ?? "seq"
        try shop.store.database.run(
          "UPDATE messages SET \(column) = (\(column) | ?1) & ~(\(column) & ?1) WHERE id = ?2",
          .integer(1 << Int64(bit)),
          .integer(id))
      } else {
        column = ["text", "sender_name", "kind"].randomElement(using: &random) ?? "text"
        let kept = try shop.store.database.value(
          "SELECT CAST(\(column) AS BLOB) FROM messages WHERE id = ?", .integer(id))
        var bytes = try #require(kept?.blob)
        bytes[bit % bytes.count] ^= 1 << UInt8(bit % 7)
        let value: SQLiteValue = column == "kind" ? .text(String(decoding: bytes, as: UTF8.self)) : .blob(bytes)
        try shop.store.database.run("UPDATE messages SET \(column) = ? WHERE id = ?", value, .integer(id))
      }
      for after in [0, seq - 1, seq, seq + 1, last - 1] {
        let found = try events(of: shop.store, after: after)
        let sound = found.filter { $0.isSound }
        // A flipped bit beyond the range of a number has no effect, and the event is unchanged.
        let isHarmless = found.count == sound.count && sound.contains { $0.seq == seq }
        let wanted = intact.filter { $0.seq > after && ($0.seq != seq || isHarmless) }
        let (seqs, bodies) = (sound.map(\.seq) == wanted.map(\.seq), sound.map(\.body) == wanted.map(\.body))
        #expect(seqs && bodies, "\(column) of \(id), bit \(bit), after \(after)")
        #expect(found.count - sound.count <= 1)
        unsound += found.count - sound.count
      }
      try shop.store.database.run(
        "UPDATE messages SET \(column) = (SELECT \(column) FROM kept WHERE id = ?1) WHERE id = ?1", .integer(id))
    }
    #expect(unsound > 100)
    #expect(try events(of: shop.store).map(\.body) == intact.map(\.body))
  }

  @Test func `many damaged messages side by side cost a reader no more than sound ones of that number`() throws {
    let shop = try Shop()
    for number in 1...1200 { try shop.insert(Shop.channel("Alder: message \(number)", time: UInt32(number))) }
    let database = shop.store.database
    var looks = 0
    database.endWithTask {
      looks += 1
      return false
    }
    #expect(try events(of: shop.store).allSatisfy { $0.isSound })
    let usual = looks
    try database.run("UPDATE messages SET sender_time = sender_time + 1 WHERE id BETWEEN 10 AND 1190")
    looks = 0
    #expect(try events(of: shop.store).count { !$0.isSound } == 1181)
    for after: Int64 in [5, 600, 1195] { _ = try events(of: shop.store, after: after, limit: 20) }
    // Each look at the rows behind a damaged one, up to the next sound one, would be half a million rows.
    #expect(looks <= 20 * (usual + 1), "\(looks) looks of the database, \(usual) for sound messages")
  }

  @Test func `the number of a damaged newest message is not used again`() throws {
    for (column, value) in [("seq", SQLiteValue.integer(3)), ("text", .blob([1])), ("checksum", .null), ("seq", .null)]
    {
      let shop = try Shop()
      for number in 1...9 { try shop.insert(Shop.direct("message", time: UInt32(number))) }
      try shop.store.database.run("UPDATE messages SET \(column) = ? WHERE id >= 8", value)
      let copy = try reopened(shop)
      let store = copy.store
      #expect(store.lastSeq >= 9, "\(column)")
      store.write { store throws(SQLiteError) in _ = try store.insert(Shop.direct("next", time: 99), at: Shop.moment) }
      try store.commitNow()
      let newest = try #require(try events(of: store).last?.seq)
      #expect(newest > 9, "\(column)")
    }
  }

  @Test func `a store of an older version has each event once, and continues after it`() throws {
    let scratch = Scratch()
    do {
      let database = try Database(location: scratch.location("gw.db"))
      try database.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
      try database.addTextFunction("spaced") { SearchWords.spaced($0) }
      try database.migrate(Schema.migrations.filter { $0.number <= 13 })
      for number in 1...6 as ClosedRange<Int64> {
        try database.run(
          """
          INSERT INTO messages(identity, kind, text_type, text, path_length, at, trusted, seq)
          VALUES (?, 'direct', 0, x'41', 0, 1, 1, ?)
          """, .blob([UInt8(number)]), number < 3 ? .null : .integer(number + 3))
        let body = Array("{\"old\":\(number)}".utf8)
        try database.run(
          "INSERT INTO journal VALUES (?, 1, 1, 'message', ?, ?)", .integer(number + 3), .blob(body),
          .integer(RowChecksum.of(seq: number + 3, at: 1, kind: "message", body: body)))
      }
    }
    let shop = try Shop(in: scratch)
    #expect(try shop.insert(Shop.direct("new")) == .stored(id: 7, seq: 10))
    let found = try events(of: shop.store)
    #expect(found.map(\.seq) == Array(4...10) && found.allSatisfy { $0.isSound })
    #expect(found[5].body == "{\"old\":6}" && found[6].body.contains("new"))
    #expect(shop.store.journalSize.oldest == 4)
  }
}

extension Shop {
  fileprivate init(scratch: Scratch, store: Store) { (self.scratch, self.store) = (scratch, store) }

  fileprivate func insertAgain() -> MessageArrival? { try? insert(Shop.channel("Alder: hello", time: 7)) }
}
