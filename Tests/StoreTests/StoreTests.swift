// SPDX-License-Identifier: MIT

import Companion
import Foundation
import JSON
import MeshCrypto
import SQLite
import TestSupport
import Testing

@testable import Store

struct Shop {
  let scratch: Scratch
  let store: Store

  init(
    in scratch: Scratch = Scratch(), maxSize: Int64 = 1 << 30, journalMaxSize: Int64 = 256 << 20,
    messagesMax: Int64 = 500_000, nodesMax: Int64 = 5000
  ) throws {
    self.scratch = scratch
    store = try Store(
      Store.Settings(
        location: scratch.location("gw.db"), maxSize: maxSize, journalMaxSize: journalMaxSize, messagesMax: messagesMax,
        nodesMax: nodesMax)
    )
  }

  static let moment = Moment(milliseconds: 1_795_000_000_000, trusted: true)

  static func direct(_ text: String, time: UInt32 = 7, from sender: UInt64 = 1) -> QueuedMessage {
    .contact(
      ContactMessage(
        snr: nil, sender: KeyPrefix(value: sender), path: ReceivedPath(raw: 0), senderTime: time, text: Text(text)))
  }

  static func channel(_ text: String, slot: UInt8 = 0, time: UInt32 = 7) -> QueuedMessage {
    .channel(ChannelMessage(snr: nil, slot: slot, path: ReceivedPath(raw: 0), senderTime: time, text: Text(text)))
  }

  @discardableResult
  func insert(_ message: QueuedMessage) throws -> MessageArrival {
    var arrival: MessageArrival?
    store.write { store throws(SQLiteError) in arrival = try store.insert(message, at: Shop.moment) }
    try store.commitNow()
    return try #require(arrival)
  }

  func append(_ count: Int, body: [UInt8] = Array("{}".utf8)) throws {
    store.write { store throws(SQLiteError) in
      for _ in 0..<count { try store.append(.message, at: Shop.moment, body: body) }
    }
    try store.commitNow()
  }

  func seqs(after: Int64 = 0) throws -> [Int64] {
    var seqs: [Int64] = []
    try store.readJournal(after: after) { event, _ in
      seqs.append(event.seq)
      return true
    }
    return seqs
  }
}

@Suite struct MessageTests {
  @Test func `the reply of a remote command line is not journaled, because it may contain a password`() throws {
    let shop = try Shop()
    try shop.insert(
      .contact(
        ContactMessage(
          snr: nil, sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0), textType: .cliData, senderTime: 7,
          text: "password now: secret")))
    try shop.store.readJournal(after: 0) { event, _ in
      #expect(!String(decoding: event.body, as: UTF8.self).contains("secret"))
      return true
    }
    try shop.store.eachMessage(limit: 1) {
      #expect($0.text == "password now: secret")
      return true
    }
  }

  @Test func `the oldest messages are deleted with the identities that recognise their duplicates`() throws {
    let shop = try Shop(messagesMax: 100)
    for number in 1...130 { try shop.insert(Shop.direct("\(number)")) }
    var removed = 0
    shop.store.write { store throws(SQLiteError) in removed = try store.trimMessages() }
    try shop.store.commitNow()
    #expect(removed == 30)
    #expect(try shop.store.messageCount() == 100 && shop.store.lastMessageID() == 130)
    #expect(try shop.insert(Shop.direct("31")).isDuplicate)
    #expect(try !shop.insert(Shop.direct("30")).isDuplicate)
  }

  @Test func `reactions leave with the message that they are to`() throws {
    let shop = try Shop(messagesMax: 100)
    func react(_ targets: ClosedRange<Int64>) throws {
      shop.store.write { store throws(SQLiteError) in
        for target in targets where target != 0 {
          try store.database.run(
            "INSERT INTO reactions VALUES (NULL, 'aabbccddeeff', ?, 'aabbccddeeff', 'x', ?, 1000, 5, 1)",
            .text("\(target)"), .integer(target))
        }
      }
      try shop.store.commitNow()
    }
    for number in 1...130 { try shop.insert(Shop.direct("\(number)")) }
    try react(1...130)
    shop.store.write { store throws(SQLiteError) in _ = try store.trimMessages() }
    try shop.store.commitNow()
    func targets() throws -> [Int64] {
      try shop.store.database.rows("SELECT target FROM reactions ORDER BY target") { $0.integer(0) }
    }
    #expect(try targets() == Array(31...130))
    // Ours: one that is trimmed, and the newest.
    let newest = Store.maxOutgoing + 700
    shop.store.write { store throws(SQLiteError) in
      for (key, id) in [("old", 1), ("new", newest)] {
        var message = OutgoingMessage(
          key: key, origin: "control", priority: 1, kind: .channel, channel: "aabb", text: "x", created: Shop.moment,
          lifetime: 60_000)
        message.endedAt = 7
        let stored = try store.insertOutgoing(message)
        try store.database.run("UPDATE outgoing SET id = ? WHERE id = ?", .integer(id), .integer(stored?.id ?? 0))
      }
    }
    try shop.store.commitNow()
    try react(-newest...(-newest))
    try react(-1...(-1))
    var removed = 0
    shop.store.write { store throws(SQLiteError) in removed = try store.trimOutgoing() }
    try shop.store.commitNow()
    #expect(removed == 1)
    #expect(try targets() == [-newest] + Array(31...130))
  }

  @Test func `our own words on a channel are recognised, however much was sent since`() throws {
    let shop = try Shop()
    shop.store.write { store throws(SQLiteError) in
      for number in 0..<600 as Range<UInt32> {
        var message = OutgoingMessage(
          key: "\(number)", origin: "proxy/app", priority: 1, kind: number == 0 ? .channel : .direct,
          channel: number == 0 ? "aabb" : nil, text: Text("words \(number)"), created: Shop.moment, lifetime: 60_000)
        message.senderTime = 1000 + number
        _ = try store.insertOutgoing(message)
      }
    }
    try shop.store.commitNow()
    #expect(try shop.store.hasSaid("words 0", on: "aabb", senderTime: 1000))
    #expect(try !shop.store.hasSaid("words 0", on: "aabb", senderTime: 1001), "another time")
    #expect(try !shop.store.hasSaid("words 0", on: "ccdd", senderTime: 1000), "another channel")
    #expect(try !shop.store.hasSaid("words", on: "aabb", senderTime: 1000), "other words")
    var plan = ""
    try shop.store.database.every(
      "EXPLAIN QUERY PLAN SELECT 1 FROM outgoing WHERE sender_time = 1 AND kind = 'channel' AND channel = 'x'"
    ) { plan += $0.text(3) }
    #expect(plan.contains("outgoing_said"), "\(plan)")
  }

  @Test func `a room's post names its author, if only one contact fits`() throws {
    let shop = try Shop()
    func add(_ last: UInt8, _ name: Text) throws {
      let key = PublicKey(bytes: [0xAA, 0xBB, 0xCC, 0xDD] + [UInt8](repeating: last, count: 28))!
      shop.store.write { store throws(SQLiteError) in
        _ = try store.upsert(Contact(key: key, name: name), onRadio: true, heard: false, at: 1)
      }
      try shop.store.commitNow()
    }
    func post(_ time: UInt32) throws -> Text? {
      try shop.insert(
        .contact(
          ContactMessage(
            snr: nil, sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0), textType: .signedPlain, senderTime: time,
            author: [0xAA, 0xBB, 0xCC, 0xDD], text: "hello")))
      var name: Text?
      try shop.store.eachMessage(limit: 1) {
        name = $0.authorName
        return true
      }
      return name
    }
    #expect(try post(1) == nil)
    try add(1, "Alder")
    #expect(try post(2) == "Alder")
    try add(2, "Birch")
    #expect(try post(3) == nil, "two fit")
  }

  @Test func `a store of the first version is upgraded`() throws {
    let scratch = Scratch()
    do {
      let database = try Database(location: scratch.location("gw.db"))
      try database.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
      try database.migrate([Schema.migrations[0]])
    }
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    #expect(try store.lastSenderTime() == 0)
  }

  @Test func `a message is stored once, its copies are counted`() throws {
    let shop = try Shop()
    #expect(try shop.insert(Shop.direct("hello")) == .stored(id: 1, seq: 1))
    #expect(try shop.insert(Shop.direct("hello")).isDuplicate)
    #expect(try shop.insert(Shop.direct("hello", time: 8)) == .stored(id: 2, seq: 2))
    #expect(try shop.insert(Shop.direct("hello", from: 2)) == .stored(id: 3, seq: 3))
    #expect(try shop.insert(Shop.channel("A: hello")) == .stored(id: 4, seq: 4))
    #expect(try shop.insert(Shop.channel("B: hello")) == .stored(id: 5, seq: 5), "another name is another sender")
    var copies: [Int] = []
    try shop.store.eachMessage(limit: 10) {
      copies.append($0.copies)
      return true
    }
    #expect(copies == [2, 1, 1, 1, 1])
    #expect(try shop.seqs() == [1, 2, 3, 4, 5])
  }

  @Test func `a message that a node without a clock repeats hours later is a separate message`() throws {
    let shop = try Shop(messagesMax: 150)
    func hear(
      _ hours: Int64, time: UInt32 = 1_715_770_351, wait: RadioWait = .none, trusted: Bool = true, room: Bool = false
    ) throws -> Bool {
      let message = ContactMessage(
        snr: nil, sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0), textType: room ? .signedPlain : .plain,
        senderTime: time, author: room ? [1, 2, 3, 4] : nil, text: "ready")
      let moment = Moment(milliseconds: Shop.moment.milliseconds + hours * 3_600_000, trusted: trusted)
      var arrival = MessageArrival.duplicate(of: 0)
      shop.store.write { store throws(SQLiteError) in
        arrival = try store.insert(.contact(message), at: moment, wait: wait)
      }
      try shop.store.commitNow()
      return !arrival.isDuplicate
    }
    #expect(try hear(0) && !hear(1))
    #expect(try hear(5) && !hear(6), "and retries are its copies")
    #expect(try !hear(50, wait: .unknown) && !hear(50, wait: .atMost(seconds: 200_000)), "it may be that one")
    #expect(try !hear(50, trusted: false))
    let now = UInt32(Shop.moment.milliseconds / 1000)
    #expect(try hear(0, time: now) && !hear(5, time: now), "a clock that goes")
    #expect(try !hear(26, time: now) && !hear(999, time: now), "and a recorded repetition")
    #expect(try hear(0, room: true) && !hear(90, room: true))
    // This also applies to indexed messages, and to those that remain when the oldest are deleted.
    for number in 1...140 { try shop.insert(Shop.direct("\(number)", from: 2)) }
    #expect(try hear(200) && !hear(201))
    for number in 1...130 { try shop.insert(Shop.direct("\(number)", from: 3)) }
    shop.store.write { store throws(SQLiteError) in _ = try store.trimMessages() }
    try shop.store.commitNow()
    #expect(try !hear(201))
    let again = try RecentIdentities(shop.store.database)
    #expect(again.messages <= RecentIdentities.step)
  }

  @Test func `the same channel in another slot is the same channel`() throws {
    let shop = try Shop()
    let secret = ChannelSecret.hashtag("#trees")
    shop.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 1, name: "#trees", secret: secret))
      _ = try store.setChannel(Channel(slot: 2, name: "#trees", secret: secret))
    }
    #expect(try !shop.insert(Shop.channel("A: x", slot: 1)).isDuplicate)
    #expect(try shop.insert(Shop.channel("A: x", slot: 2)).isDuplicate)
  }

  @Test func `the longest known name before a separator is the sender`() throws {
    let shop = try Shop()
    func split(_ text: String) throws -> [String?] {
      let (name, rest) = try shop.store.splitSender(Text(text))
      return [name?.string, rest.string]
    }
    #expect(try split("Alder: hi") == ["Alder", "hi"])
    #expect(try split("no sender here") == [nil, "no sender here"])
    #expect(try split("Al: der: hi") == ["Al", "der: hi"])
    let key = PublicKey(bytes: Array(repeating: 9, count: 32))!
    shop.store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, name: "Al: der"), onRadio: true, heard: false, at: 1)
    }
    try shop.store.commitNow()
    #expect(try split("Al: der: hi") == ["Al: der", "hi"])
    #expect(try split("Alder: ") == ["Alder", ""])
  }

  @Test func `bytes that are not UTF-8 are kept unchanged`() throws {
    let shop = try Shop()
    let bytes: [UInt8] = [0x41, 0xC3, 0x28, 0xFF]
    try shop.insert(
      .contact(
        ContactMessage(
          snr: SNR(quarters: -5), sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0xFF), senderTime: 1,
          text: Text(bytes: bytes))))
    try shop.store.eachMessage(limit: 1) { message in
      #expect(message.text.bytes == bytes)
      #expect(message.snr == SNR(quarters: -5))
      return true
    }
    try shop.store.readJournal(after: 0) { event, _ in
      let body = try? JSONValue(parsing: event.body)
      #expect(body?["text_hex"]?.string == "41c328ff")
      return true
    }
  }
}

@Suite struct ContactTests {
  private let key = PublicKey(bytes: Array(repeating: 3, count: 32))!

  @Test func `an unchanged record costs no write, and a new time stamp alone is no change`() throws {
    let shop = try Shop()
    func keep(_ contact: Contact) throws -> ContactChange {
      var change: ContactChange?
      shop.store.write { store throws(SQLiteError) in
        change = try store.upsert(contact, onRadio: true, heard: false, at: 5)
      }
      try shop.store.commitNow()
      return try #require(change)
    }
    var contact = Contact(key: key, name: "Birch", lastModified: 10)
    #expect(try keep(contact) == .added)
    #expect(try keep(contact) == .unchanged)
    contact.lastModified = 11
    #expect(try keep(contact) == .unchanged)
    contact.name = "Birch 2"
    #expect(try keep(contact) == .changed)
    #expect(try shop.store.contact(key)?.contact == contact)
    #expect(try shop.store.contact(prefix: key.prefix)?.contact.key == key)
  }

  @Test func `a contact that is missing in a complete list is no longer on the radio`() throws {
    let shop = try Shop()
    let other = PublicKey(bytes: Array(repeating: 4, count: 32))!
    shop.store.write { [key] store throws(SQLiteError) in
      for key in [key, other] {
        _ = try store.upsert(Contact(key: key, name: "n"), onRadio: true, heard: false, at: 5)
      }
      try store.removeContacts(notIn: [other], at: Shop.moment)
    }
    try shop.store.commitNow()
    #expect(try shop.store.contactCount(onRadio: true) == 1)
    #expect(try shop.store.contactCount(onRadio: false) == 2, "it is remembered")
    #expect(try shop.seqs().count == 1)
    shop.store.write { store throws(SQLiteError) in try store.markAllRemoved(at: Shop.moment) }
    try shop.store.commitNow()
    #expect(try shop.store.contactCount(onRadio: true) == 0)
    #expect(try shop.seqs().count == 2, "servers learn that another radio does not have it, either")
  }
}

@Suite struct JournalTests {
  @Test func `the sequence numbers of a rolled back turn are used again`() throws {
    let shop = try Shop()
    try shop.append(2)
    let first = shop.store.write { store throws(SQLiteError) in
      try store.append(.message, at: Shop.moment, body: [])
      throw SQLiteError(code: 13, message: "pretended")
    }
    let second = shop.store.write { _ throws(SQLiteError) in }
    shop.store.commit()
    guard case .failed(.full) = first.state, first === second else {
      Issue.record("everybody of that turn sees it")
      return
    }
    try shop.append(1)
    #expect(try shop.seqs() == [1, 2, 3])
  }

  @Test func `sequence numbers are never reused, neither after trimming nor after a restart`() throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"), journalMaxSize: 1)
    var last: Int64 = 0
    for _ in 0..<3 {
      let store = try Store(settings)
      store.write { store throws(SQLiteError) in
        for _ in 0..<10 { try store.append(.message, at: Shop.moment, body: [1]) }
      }
      try store.commitNow()
      #expect(store.lastSeq == last + 10)
      last = store.lastSeq
      store.trimJournal(now: Shop.moment)
      try store.commitNow()
      #expect(store.journalSize.oldest == last, "the newest row stays")
    }
  }

  @Test func `a new epoch remembers each upstream's acknowledged position in the epoch before`() throws {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let before = ByLane<Int64>(messages: 7, nodes: 5, packets: 0)
    let after = ByLane<Int64>(messages: 90, nodes: 5, packets: 0)
    for told in [before, after] {
      store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: told, told: told) }
      try store.commitNow()
      #expect(try store.told("hub") == told)
      if told == before { try store.renewEpoch() }
    }
    #expect(try store.told("hub", beforeEpoch: true) == before)
    #expect(try store.told("nobody") == ByLane(all: 0))
  }

  @Test func `trimming deletes received events first, and leaves a range for unreceived ones`() throws {
    let shop = try Shop(journalMaxSize: 10)
    try shop.store.keepOnlyCursors(of: ["a", "b"])
    try shop.append(100)
    shop.store.write { store throws(SQLiteError) in
      try store.setCursor(of: "a", to: 90)
      try store.setCursor(of: "b", to: 40)
    }
    try shop.store.commitNow()
    func trim() throws {
      shop.store.trimJournal(now: Shop.moment)
      try shop.store.commitNow()
    }
    try trim()
    #expect(shop.store.journalSize.oldest == 41)
    #expect(try shop.store.trims(of: .messages, after: 0).isEmpty, "nobody misses that")
    try trim()
    try trim()
    #expect(shop.store.journalSize.oldest == 100)
    // Each upstream lacks whole ranges: `a` has had the first.
    let ranges = [(41, 90, 50), (91, 99, 9)].map { first, last, count in
      LaneTrim(lane: .messages, first: first, last: last, count: count, reason: "quota")
    }
    #expect(try shop.store.trims(of: .messages, after: 0) == ranges)
    #expect(try shop.store.leftOut(of: "a").givenUp == 9 && shop.store.leftOut(of: "b").givenUp == 59)
  }

  @Test func `an open alert survives the deletion of its event`() throws {
    let shop = try Shop(journalMaxSize: 100_000)
    try shop.store.keepOnlyCursors(of: ["a"])
    for subject in ["open", "over"] {
      shop.store.write { store throws(SQLiteError) in
        let alert = StoredAlert(id: 0, rule: "journal_loss", subject: subject, text: "lost", beganAt: 5)
        try store.beginAlert(alert, Store.AlertEvent(), at: Shop.moment)
      }
    }
    shop.store.write { store throws(SQLiteError) in
      try store.endAlert("journal_loss", "over", Store.AlertEvent(), elapsed: 1, at: Shop.moment)
    }
    for _ in 0..<3 {
      try shop.append(300, body: Array(repeating: 1, count: 1000))
      while shop.store.trimJournal(now: Shop.moment) != nil { try shop.store.commitNow() }
      var told: [String] = []
      try shop.store.readJournal(after: 0, limit: 1000, lane: .messages) { event, _ in
        if event.kind == "alert" { told.append(String(decoding: event.body, as: UTF8.self)) }
        return true
      }
      #expect(
        told.count == 1 && told[0].contains(#""again":true"#) && told[0].contains(#""subject":"open""#), "\(told)")
    }
  }

  @Test func `a flipped bit in a row is detected`() throws {
    let shop = try Shop()
    try shop.append(3, body: Array("{\"a\":1}".utf8))
    try shop.store.database.run("UPDATE journal SET body = ? WHERE seq = 2", .blob(Array("{\"a\":3}".utf8)))
    var sound: [Bool] = []
    try shop.store.readJournal(after: 0) { _, isSound in
      sound.append(isSound)
      return true
    }
    #expect(sound == [true, false, true])
  }

  @Test func `each document is announced once, however many there are`() throws {
    let shop = try Shop()
    let keys = (0..<200).map { "node/\(1000 + $0)/alias" }
    shop.store.write { store throws(SQLiteError) in
      for key in keys { _ = try store.editDocument(key, "\"a\"", at: Shop.moment) }
    }
    try shop.store.commitNow()
    let edits = shop.store.lastSeq
    shop.store.write { store throws(SQLiteError) in try store.announceDocuments(at: Shop.moment) }
    try shop.store.commitNow()
    var told: [String] = []
    try shop.store.readJournal(after: edits) { event, _ in
      // `try?`: a body that is no JSON is missing below.
      told.append((try? JSONValue(parsing: event.body))?["key"]?.string ?? "")
      return true
    }
    #expect(told == keys)
  }
}
