// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import SQLite
import TestSupport
import Testing

@testable import Store

/// The copies of messages on disk.
@Suite struct WaysTests {
  private func copy(
    _ path: [UInt8], width: Int = 1, at: Int64 = 1_795_000_000_123, code: UInt16? = nil, region: String? = nil
  ) -> HeardCopy {
    HeardCopy(
      Packet(
        route: code == nil ? .flood : .transportFlood, type: .groupText,
        transportCodes: code.map { Packet.TransportCodes(first: $0, second: 0) },
        pathLength: PathLength(raw: UInt8((width - 1) << 6 | path.count / width)), path: path, payload: [1]),
      snr: SNR(quarters: -7), rssi: -101, at: at, region: region)
  }

  private func key(_ beginning: [UInt8], _ end: UInt8) -> PublicKey {
    PublicKey(bytes: beginning + Array(repeating: end, count: 32 - beginning.count))!
  }

  private func write(_ shop: Shop, _ work: (Store) throws(SQLiteError) -> Void) throws {
    shop.store.write(work)
    try shop.store.commitNow()
  }

  private func events(_ shop: Shop) throws -> [JSONValue] {
    var found: [JSONValue] = []
    try shop.store.readJournal(after: 0) { event, isSound in
      // `try?`: an event that is no JSON fails the test that counts them.
      if event.kind == "ways", isSound { found.append((try? JSONValue(parsing: event.body)) ?? .null) }
      return true
    }
    return found
  }

  @Test func `copies of each width and with regions are read as they were, and take 64 bytes at most`() {
    let all = [
      copy([]), copy([1, 2, 3]), copy([1, 2, 3, 4], width: 2), copy([1, 2, 3, 4, 5, 6], width: 3),
      copy([9], code: 0xBEEF), copy([9], code: 1, region: "ottawa"),
    ]
    #expect(HeardCopy.decode(all.flatMap { $0.encode() }) == all)
    let named = copy([9], code: 1, region: "Großräschen-im-Süden-älterer")
    #expect(HeardCopy.decode(named.encode()) == [named] && named.region?.hasPrefix("Großräschen") == true)
    for width in 1...3 {
      let long = copy(Array(repeating: 7, count: 63 / width * width), width: width, code: 1, region: "gatineau")
      let bytes = long.encode()
      #expect(bytes.count <= HeardCopy.mostBytes)
      let read = HeardCopy.decode(bytes)
      #expect(read.first?.length == long.length && read.first?.hashes.last?.count == width)
    }
    // Damaged bytes: whole copies before them remain, and nothing traps.
    let whole = all.flatMap { $0.encode() }
    for end in 0...whole.count { _ = HeardCopy.decode(Array(whole.prefix(end))) }
    for place in whole.indices {
      for bit in 0..<8 as Range<UInt8> {
        var bytes = whole
        bytes[place] ^= 1 << bit
        for copy in HeardCopy.decode(bytes) { _ = copy.hashes.map(\.count) + [copy.encode().count] }
      }
    }
    #expect(HeardCopy.decode(Array(repeating: 0, count: 500)).isEmpty)
    // A name of damaged bytes: each would become three, and the copy longer than its first byte can say.
    var damaged: [UInt8] = [255, 0, 0, 0, 0, 0, 1, 0, 0, Packet.Route.transportFlood.rawValue, 1, 1, 0, 240]
    damaged += [UInt8](repeating: 0xFF, count: 240)
    damaged += [7, 7]
    #expect(HeardCopy.decode(damaged).first?.encode().count ?? 0 <= HeardCopy.mostBytes)
    #expect(HeardCopy.decode(damaged).first?.path == [7])
  }

  @Test func `copies are told once, 8 at most, with all nodes that a hash may mean`() throws {
    let shop = try Shop()
    try write(shop) { store throws(SQLiteError) in
      for (key, name, type) in [
        (key([0xA1, 1], 1), "Hill", NodeType.repeater), (key([0xA1, 2], 2), "Dale", .repeater),
        (key([0xFF, 0xFF], 0xFF), "End", .repeater), (key([0xA1, 3], 3), "Phone", .chat),
      ] as [(PublicKey, Text, NodeType)] {
        _ = try store.upsert(Contact(key: key, type: type, name: name), onRadio: true, heard: false, at: 1)
      }
      for number in 4...6 as ClosedRange<UInt8> {
        _ = try store.upsert(
          Contact(key: self.key([0xA1, number], number), name: "more"), onRadio: true, heard: false, at: 1)
      }
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
    }
    var id: Int64 = 0
    try write(shop) { store throws(SQLiteError) in
      // The second is a duplicate.
      for copies in [[copy([0xA1])], [copy([0xA1, 2], width: 2)]] {
        id = try store.insert(Shop.channel("Alder: hello"), at: Shop.moment, copies: copies).id
      }
    }
    #expect(try events(shop).isEmpty)
    try shop.store.eachNewest(5) { message, hasNews in #expect(message.id == id && hasNews) }
    try write(shop) { store throws(SQLiteError) in
      let more = [copy([0xFF]), copy([0xEE])] + (0..<9).map { copy([$0]) }
      try store.tellCopies(more, of: .received(id), at: Shop.moment)
      try store.tellCopies([], of: .received(id), at: Shop.moment)
      try store.tellCopies([copy([1])], of: .received(id), at: Shop.moment)
      try store.tellCopies([copy([1])], of: .received(99), at: Shop.moment)
    }
    let told = try events(shop)
    #expect(told.count == 1)
    #expect(told.first?["id"]?.integer == id && told.first?["sender_name"]?.string == "Alder")
    #expect(told.first?["identity"]?.string?.count == 32 && told.first?["channel_name"]?.string == "Public")
    #expect(told.first?["ways"]?.array?.count == HeardCopy.most)
    let nodes = told.first?["way_nodes"]?.array ?? []
    func names(_ hash: String) -> [String]? {
      nodes.first { $0["hash"]?.string == hash }?["nodes"]?.array?.compactMap { $0["name"]?.string }
    }
    #expect(Set(names("a1")?.prefix(2) ?? []) == ["Hill", "Dale"] && names("a1")?.count == 4)
    #expect(nodes.first?["more"]?.integer == 2)
    #expect(names("a102") == ["Dale"] && names("ff") == ["End"] && names("ee") == [])
    try shop.store.eachNewest(5) { _, hasNews in #expect(!hasNews) }
  }

  @Test func `a store of an older version takes copies, and a sent message has its own`() throws {
    let scratch = Scratch()
    do {
      let database = try Database(location: scratch.location("gw.db"))
      try database.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
      try database.addTextFunction("spaced") { SearchWords.spaced($0) }
      try database.migrate(Schema.migrations.filter { $0.number <= 21 })
      try database.run(
        """
        INSERT INTO messages(identity, kind, text_type, text, path_length, at, trusted)
        VALUES (x'00112233445566778899AABBCCDDEEFF', 'direct', 0, x'41', 0, 1, 1)
        """)
    }
    let shop = try Shop(in: scratch)
    #expect(try shop.store.copies(of: .received(1)).kept.isEmpty)
    try write(shop) { store throws(SQLiteError) in
      try store.tellCopies([copy([5])], of: .received(1), at: Shop.moment)
    }
    #expect(try shop.store.copies(of: .received(1)).kept.map(\.path) == [[5]])
    var sent = OutgoingMessage(
      key: "k", origin: "control", priority: 0, kind: .channel, channel: "0011223344556677", text: "hello",
      created: Shop.moment, lifetime: 1000)
    try write(shop) { store throws(SQLiteError) in sent = try store.insertOutgoing(sent) ?? sent }
    try write(shop) { store throws(SQLiteError) in
      try store.tellCopies([copy([6])], of: .sent(sent.id), at: Shop.moment)
      try store.updateOutgoing(sent, at: Shop.moment)
    }
    #expect(try shop.store.copies(of: .sent(sent.id)).kept.map(\.path) == [[6]])
    let told = try events(shop)
    #expect(told.count == 2 && told.last?["id"]?.string == "k" && told.last?["heard_by"]?.array?.count == 1)
    #expect(told.last?["channel"]?.string == "0011223344556677")
  }

  @Test func `copies that are not kept are counted, and told with the next that is`() throws {
    let shop = try Shop()
    let id = try shop.insert(Shop.channel("Alder: hello")).id
    func tell(_ count: Int, more: Int = 0) throws {
      try write(shop) { store throws(SQLiteError) in
        try store.tellCopies((0..<count).map { copy([UInt8($0)]) }, more: more, of: .received(id), at: Shop.moment)
      }
    }
    try tell(0, more: 2)
    #expect(try events(shop).isEmpty && shop.store.copies(of: .received(id)).more == 2)
    try tell(7)
    try tell(3, more: 1)
    try tell(0, more: 1000)
    let told = try events(shop)
    #expect(told.map { $0["ways"]?.array?.count } == [7, 8] && told.map { $0["ways_more"]?.integer } == [2, 5])
    let (kept, more) = try shop.store.copies(of: .received(id))
    #expect(kept.count == 8 && more == 255)
  }

  @Test func `an event of copies is written once, and stays the same when further ones come or nodes change`() throws {
    let shop = try Shop()
    let id = try shop.insert(Shop.channel("Alder: hello")).id
    func tell(_ copies: [HeardCopy]) throws {
      try write(shop) { store throws(SQLiteError) in
        try store.tellCopies(copies, of: .received(id), at: Shop.moment)
      }
    }
    try tell([copy([0xA1]), copy([0xB1, 0xB2])])
    let first = try events(shop)
    #expect(first.first?["ways"]?.array?.count == 2)
    try tell([copy([0xC1])])
    try write(shop) { store throws(SQLiteError) in
      let hill = Contact(key: key([0xA1], 1), type: .repeater, name: "Hill")
      _ = try store.upsert(hill, onRadio: true, heard: false, at: 1)
    }
    let both = try events(shop)
    #expect(both.map { $0["ways"]?.array?.count } == [2, 3])
    func content(_ body: JSONValue?) -> String { EventContent.digest(at: 1, kind: "ways", body: body ?? .null) }
    #expect(content(both.first) == content(first.first) && content(both.last) != content(first.first))
    #expect(both.first != first.first, "its node has a name now")
    let size = try shop.store.database.value("SELECT sum(length(body)) FROM journal WHERE kind = 'ways'")?.integer
    #expect(size == 42)
    // A flipped bit of a copy, which no checksum of the message covers.
    try shop.store.database.run("UPDATE messages SET ways = replace(ways, x'a1', x'a0')")
    #expect(try events(shop).isEmpty, "reported as damaged")
  }

  @Test func `a server finds the copies of a message that the second radio received, too`() throws {
    let shop = try Shop()
    for number in 1...2 as ClosedRange<UInt8> {
      _ = try shop.store.attach(key([number], number), name: "radio", at: Int64(number))
    }
    let id = try shop.insert(Shop.direct("hello")).id
    try write(shop) { store throws(SQLiteError) in
      try store.tellCopies([copy([0xA1])], of: .received(id), at: Shop.moment)
    }
    let stored = try #require(try shop.store.message(after: 0))
    var traits = MessageTraits(kind: "direct", time: try #require(stored.senderTime), text: stored.text.bytes)
    traits.sender = try #require(stored.sender).bytes
    #expect(stored.radio == 2 && Store.identity(of: stored).bytes != traits.identity)
    #expect(try events(shop).first?["identity"]?.string == Hex.string(traits.identity))
  }

  @Test func `the events of a message that is deleted stay whole, however many there were`() throws {
    let shop = try Shop(messagesMax: 4)
    var ids: [Int64] = []
    for number in 0..<12 {
      ids.append(try shop.insert(Shop.channel("Alder: \(number)", time: UInt32(number + 1))).id)
      try write(shop) { store throws(SQLiteError) in
        for hash in [0xA0, 0xB0] as [UInt8] {
          try store.tellCopies([copy([hash + UInt8(number)])], of: .received(ids[number]), at: Shop.moment)
        }
      }
    }
    let before = try events(shop)
    let amounts = shop.store.journaled
    var deleted = 0
    try write(shop) { store throws(SQLiteError) in deleted = try store.trimMessages() }
    #expect(deleted == 8)
    #expect(try events(shop) == before && before.count == 24)
    #expect(try shop.store.copies(of: .received(ids[0])).kept.isEmpty)
    let counted = try shop.store.amounts(after: 0)
    #expect(shop.store.journaled.nodes == counted.nodes && counted.nodes.events == amounts.nodes.events)
  }

  @Test func `copies are kept in one row, behind which each has the bytes that it has alone`() {
    let all = [copy([1, 2]), copy([9], code: 1, region: "ottawa"), copy(Array(repeating: 7, count: 63), code: 1)]
    var kept = KeptCopies(all)
    #expect(kept.startBytes == 0 && kept.encode() == all.flatMap { $0.encode() })
    kept.add([], more: 2)
    kept.tell(by: 0x0102_0304_0506)
    let alone = kept.copies.flatMap { $0.encode() }
    let bytes = kept.encode()
    let start: [UInt8] = [0, 1, 2, 3, 4, 5, 6, 2, 0]
    #expect(bytes == start + alone)
    #expect(kept.startBytes == start.count)
    let read = KeptCopies(decoding: bytes)
    #expect(read.more == 2 && read.event == 0x0102_0304_0506 && read.copies.map(\.path.count) == [2, 1, 50])
    // What an event of an earlier program says of the same copies: its checksum went over each one alone.
    var sum = RowChecksum()
    for copy in kept.copies { sum.add(copy.encode()) }
    let reference = WaysReference(of: .received(1), kept, bytes, after: 0)
    #expect(reference.checksum == UInt32(truncatingIfNeeded: sum.value ^ sum.value >> 32))
    #expect(reference.copies(in: read)?.count == 3)
  }

  /// Three copies of three hops are common in a city; eight of 64 bytes each are the bound.
  @Test(arguments: [(3, 3, 1), (8, 6, 1), (8, 6, 3), (8, 17, 3)])
  func `copies and their event cost a message at most 1.1 kB on disk`(_ count: Int, _ hops: Int, _ width: Int) throws {
    func bytes(_ count: Int) throws -> Int64 {
      let shop = try Shop()
      let pages = { try shop.store.database.value("PRAGMA page_count")?.integer ?? 0 }
      try write(shop) { store throws(SQLiteError) in
        for number in 0..<40 as Range<UInt8> {
          _ = try store.upsert(
            Contact(key: key([number &* 6], number), type: .repeater, name: Text("Repeater \(number)")), onRadio: true,
            heard: false, at: 1)
        }
      }
      let before = try pages()
      for number in 0..<1000 {
        let text = "Alder: a message of usual length, number \(number)"
        let arrival = try shop.insert(Shop.channel(text, time: UInt32(number)))
        guard count > 0 else { continue }
        try write(shop) { store throws(SQLiteError) in
          let copies = (0..<count).map { place in
            let path = (0..<hops * width).map { UInt8(truncatingIfNeeded: (number + place * 3 + $0) % 40 * 6) }
            return copy(path, width: width)
          }
          try store.tellCopies(copies, of: .received(arrival.id), at: Shop.moment)
        }
      }
      return (try pages() - before) * 1024 / 1000
    }
    let (without, with) = (try bytes(0), try bytes(count))
    print("\(count) copies of \(hops) hops of \(width) bytes: \(with - without) bytes a message, beside \(without)")
    #expect(with - without <= 1100)
  }
}

extension HeardCopy {
  fileprivate func encode() -> [UInt8] {
    var writer = FrameWriter()
    encode(to: &writer)
    return writer.bytes
  }

  fileprivate static func decode(_ bytes: [UInt8]) -> [HeardCopy] {
    var reader = FrameReader(bytes)
    return decode(&reader)
  }
}
