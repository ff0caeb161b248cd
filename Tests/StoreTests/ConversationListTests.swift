// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import SQLite
import TestSupport
import Testing
import Timing

@testable import Store

/// The list of conversations, compared with a full recount of all messages.
@Suite struct ConversationListTests {
  private let radio = PublicKey(bytes: Array(repeating: 9, count: 32))!

  private func shop(in scratch: Scratch = Scratch()) throws -> Shop {
    let shop = try Shop(in: scratch)
    _ = try shop.store.attach(radio, name: Text("Hilltop"), at: 0)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
      _ = try store.setChannel(Channel(slot: 1, name: "#weather", secret: .hashtag("#weather")))
    }
    try shop.store.commitNow()
    return shop
  }

  private func list(_ shop: Shop) throws -> [Conversation] {
    while try !shop.store.isListUpToDate() {
      shop.store.write { store throws(SQLiteError) in _ = try store.listConversations() }
      try shop.store.commitNow()
    }
    return try shop.store.conversations(ofRadio: shop.store.radio)
  }

  private func index(_ shop: Shop) throws {
    var isDone = false
    while !isDone {
      shop.store.write { store throws(SQLiteError) in isDone = try store.indexMessages() }
      try shop.store.commitNow()
    }
  }

  private func read(_ shop: Shop, _ name: ConversationName, _ place: MessagePlace) throws -> Bool {
    _ = try list(shop)
    try index(shop)
    var isMoved = false
    shop.store.write { store throws(SQLiteError) in
      isMoved = try store.markRead(name, upTo: place, ofRadio: store.radio)
    }
    try shop.store.commitNow()
    return isMoved
  }

  private func send(_ shop: Shop, _ key: String, to recipient: PublicKey) throws {
    shop.store.write { store throws(SQLiteError) in
      _ = try store.insertOutgoing(
        OutgoingMessage(
          key: key, origin: "control", priority: 0, kind: .direct, recipient: recipient, text: "ours",
          created: Shop.moment, lifetime: 1000))
    }
    try shop.store.commitNow()
  }

  @Test func `messages from before the list are not unread, and later ones are`() throws {
    let shop = try shop()
    for time in 1...5 { try shop.insert(Shop.direct("old \(time)", time: UInt32(time), from: 0xA1)) }
    #expect(try list(shop).map(\.unread) == [0])
    try shop.insert(Shop.direct("new", time: 9, from: 0xA1))
    try shop.insert(Shop.channel("Bob: to all @[Hilltop]", time: 10))
    let found = try list(shop)
    #expect(found.map(\.unread) == [1, 1])
    #expect(found.map(\.isMentioned) == [true, false])
    #expect(found.map(\.name) == [.channel(ChannelSecret.publicChannel.digest), .node(KeyPrefix(value: 0xA1))])
  }

  @Test func `in a new store all messages are unread, and reading in steps does not change that`() throws {
    let shop = try shop()
    #expect(try list(shop).isEmpty)
    for time in 1...30 { try shop.insert(Shop.direct("new \(time)", time: UInt32(time), from: UInt64(time % 3))) }
    #expect(try list(shop).map(\.unread) == [10, 10, 10])
  }

  @Test func `reading up to a message counts the later ones as unread, and never moves back`() throws {
    let shop = try shop()
    _ = try list(shop)
    for time in 1...10 { try shop.insert(Shop.channel("Bob: \(time)", time: UInt32(time))) }
    try shop.insert(Shop.direct("apart", time: 50, from: 0xB2))
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    #expect(try read(shop, name, MessagePlace(message: 4)))
    #expect(try shop.store.conversation(name, ofRadio: shop.store.radio)?.unread == 6)
    #expect(try !read(shop, name, MessagePlace(message: 2)))
    #expect(try shop.store.conversation(name, ofRadio: shop.store.radio)?.unread == 6)
    // A position beyond the end counts as the end: later messages are unread.
    #expect(try read(shop, name, .last))
    #expect(try shop.store.conversation(name, ofRadio: shop.store.radio)?.unread == 0)
    try shop.insert(Shop.channel("Bob: later", time: 60))
    #expect(try list(shop).first { $0.name == name }?.unread == 1)
    #expect(try list(shop).first { $0.name == .node(KeyPrefix(value: 0xB2)) }?.unread == 1)
    #expect(try !read(shop, .channel("0000000000000000"), .last))
  }

  private func change(_ shop: Shop, in name: ConversationName?, _ work: Store.Work) throws {
    _ = try list(shop)
    try index(shop)
    shop.store.write { store throws(SQLiteError) in
      try work(store)
      _ = try store.recountUnread(in: name)
    }
    try shop.store.commitNow()
    try recount(shop.store)
  }

  /// Returns the number of conversations of each step.
  @discardableResult
  private func recount(_ store: Store) throws -> [Int] {
    var steps: [Int] = []
    while try store.isRecountDue() {
      store.write { store throws(SQLiteError) in steps.append(try store.recountNext().count) }
      try store.commitNow()
      guard steps.count < 100 else { break }
    }
    return steps
  }

  @Test func `many conversations are counted again in steps, also after a restart between them`() throws {
    let scratch = Scratch()
    do {
      let shop = try shop(in: scratch)
      _ = try list(shop)
      shop.store.write { store throws(SQLiteError) in
        for time in 1...5000 as ClosedRange<UInt32> {
          _ = try store.insert(Shop.direct("\(time)", time: time, from: UInt64(0xA1 + time % 5)), at: Shop.moment)
        }
      }
      try shop.store.commitNow()
      #expect(try list(shop).map(\.unread) == [1000, 1000, 1000, 1000, 1000])
      try index(shop)
      var counted = 0
      shop.store.write { store throws(SQLiteError) in
        try store.add(.key([0, 0, 0, 0, 0, 0xA5]))
        counted = try store.recountUnread(in: nil).count
      }
      try shop.store.commitNow()
      #expect(counted == 0, "not in the turn of the block")
      shop.store.write { store throws(SQLiteError) in counted = try store.recountNext().count }
      try shop.store.commitNow()
      #expect(try counted == 3 && shop.store.isRecountDue())
    }
    let shop = try shop(in: scratch)
    #expect(try recount(shop.store) == [2])
    #expect(try list(shop).map(\.unread).sorted() == [0, 1000, 1000, 1000, 1000])
  }

  @Test func `what is unread is counted again once the search index has all messages`() throws {
    let shop = try shop()
    _ = try list(shop)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    for time in 1...4 { try shop.insert(Shop.channel("Bob: \(time)", time: UInt32(time))) }
    _ = try list(shop)
    var counted = 1
    shop.store.write { store throws(SQLiteError) in
      try store.setLevel(.nothing, of: name, ofRadio: store.radio)
      counted = try store.recountUnread(in: name).count + store.recountNext().count
    }
    try shop.store.commitNow()
    #expect(counted == 0)
    #expect(try list(shop).map(\.unread) == [4])
    try index(shop)
    #expect(try recount(shop.store) == [1])
    #expect(try list(shop).map(\.unread) == [0])
  }

  @Test func `of more unread messages than are counted again the newest are, and a mention at the end stays`() throws {
    let shop = try shop()
    _ = try list(shop)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    let many: UInt32 = 10_050
    for time in 1...many { try shop.insert(Shop.channel("Bob: \(time)", time: time)) }
    try shop.insert(Shop.channel("Bob: @[Hilltop] last", time: many + 1))
    try change(shop, in: name) { store throws(SQLiteError) in
      try store.setLevel(.mentions, of: name, ofRadio: store.radio)
    }
    let found = try #require(try list(shop).first)
    #expect(found.unread == 1 && found.isMentioned)
  }

  @Test func `a level counts what it lets pass, before and after it is set, and needs no message`() throws {
    let shop = try shop()
    _ = try list(shop)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    func set(_ level: ConversationLevel) throws -> Int64? {
      try change(shop, in: name) { store throws(SQLiteError) in
        try store.setLevel(level, of: name, ofRadio: store.radio)
      }
      return try list(shop).first?.unread
    }
    #expect(try set(.nothing) == 0)
    #expect(try list(shop).map(\.newest) == [.first])
    try shop.insert(Shop.channel("Bob: anyone?", time: 1))
    try shop.insert(Shop.channel("Bob: ask @[Hilltop]", time: 2))
    try shop.insert(Shop.channel("Bob: @[Hilltop] are you there?", time: 3))
    #expect(try list(shop).map(\.level) == [.nothing])
    #expect(try list(shop).map(\.unread) == [0])
    #expect(try list(shop).map(\.isMentioned) == [false])
    #expect(try set(.direct) == 1)
    #expect(try list(shop).map(\.isMentioned) == [true])
    #expect(try set(.mentions) == 2)
    #expect(try set(.all) == 3)
    #expect(try read(shop, name, MessagePlace(message: 1)))
    #expect(try set(.direct) == 1)
    try shop.insert(Shop.channel("Bob: @[Hilltop] hello", time: 4))
    #expect(try list(shop).map(\.unread) == [2])
    #expect(try read(shop, name, .last))
    #expect(try set(.all) == 0)
    #expect(try list(shop).map(\.isMentioned) == [false])
  }

  @Test func `messages of a blocked key or name are not unread, and count again once it is unblocked`() throws {
    let shop = try shop()
    _ = try list(shop)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    let blocks: [(Block, ConversationName?)] = [
      (.key([0, 0, 0, 0, 0, 0xA1]), nil), (.name("Bob", channel: name.channel ?? ""), name),
    ]
    func unread() throws -> [Int64] {
      try list(shop).sorted { "\($0.name)" < "\($1.name)" }.map(\.unread)
    }
    func insert(_ time: UInt32) throws {
      try shop.insert(Shop.direct("@[Hilltop] hi", time: time, from: 0xA1))
      try shop.insert(Shop.direct("hi", time: time, from: 0xB2))
      try shop.insert(Shop.channel("Bob: @[Hilltop] hi", time: time))
      try shop.insert(Shop.channel("Bob: hi", slot: 1, time: time))
      try shop.insert(Shop.channel("Bobby: hi", time: time))
    }
    try insert(1)
    #expect(try unread().reduce(0, +) == 5)
    for (block, place) in blocks {
      try change(shop, in: place) { store throws(SQLiteError) in try store.add(block) }
    }
    let left = try unread()
    #expect(left.reduce(0, +) == 3)
    #expect(try list(shop).allSatisfy { !$0.isMentioned })
    try insert(2)
    #expect(try unread() == left.map { $0 * 2 })
    #expect(try shop.store.blocks().count == 2)
    for (block, place) in blocks {
      try change(shop, in: place) { store throws(SQLiteError) in try store.remove(block) }
    }
    #expect(try unread().reduce(0, +) == 10)
    #expect(try shop.store.blocks().isEmpty)
  }

  @Test func `a message that comes to the indexes before the list is counted once`() throws {
    let shop = try shop()
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    _ = try list(shop)
    for time in 1...3 { try shop.insert(Shop.channel("Bob: \(time)", time: UInt32(time))) }
    _ = try list(shop)
    try shop.insert(Shop.channel("Bob: meanwhile", time: 4))
    try index(shop)
    shop.store.write { store throws(SQLiteError) in
      _ = try store.markRead(name, upTo: MessagePlace(message: 1), ofRadio: store.radio)
    }
    try shop.store.commitNow()
    #expect(try list(shop).map(\.unread) == [3])
  }

  @Test func `a reaction is not unread, and our own message is the newest`() throws {
    let shop = try shop()
    _ = try list(shop)
    let birch = PublicKey(bytes: Array(repeating: 7, count: 32))!
    try shop.insert(Shop.direct("hello", time: 1, from: birch.prefix.value))
    try shop.insert(Shop.direct("👍\n0123abcd", time: 2, from: birch.prefix.value))
    #expect(try list(shop).map(\.unread) == [1])
    try send(shop, "k1", to: birch)
    let found = try list(shop)
    #expect(found.count == 1)
    #expect(found.first?.newest == MessagePlace(message: 2, outgoing: 1))
  }

  @Test(arguments: 1...20 as ClosedRange<UInt64>) func `after random messages the unread counts equal a full recount`(
    _ seed: UInt64
  ) throws {
    let shop = try shop()
    var random = SeededRandom(seed: seed)
    var unread: [ConversationName: Int64] = [:]
    _ = try list(shop)
    for time in 1...200 {
      switch Int.random(in: 0..<10, using: &random) {
      case 0..<4:
        let sender = UInt64.random(in: 1...3, using: &random)
        try shop.insert(Shop.direct("d \(time)", time: UInt32(time), from: sender))
        unread[.node(KeyPrefix(value: sender)), default: 0] += 1
      case 4..<7:
        let slot = UInt8.random(in: 0...1, using: &random)
        try shop.insert(Shop.channel("Bob: \(time)", slot: slot, time: UInt32(time)))
        let secret: ChannelSecret = slot == 0 ? .publicChannel : .hashtag("#weather")
        unread[.channel(secret.digest), default: 0] += 1
      case 7: _ = try list(shop)
      default:
        guard let conversation = try list(shop).randomElement(using: &random) else { continue }
        let place = MessagePlace(message: Int64.random(in: 0...Int64(time), using: &random))
        guard try read(shop, conversation.name, place) else { continue }
        var left: Int64 = 0
        try index(shop)
        var query = MessageQuery(after: place)
        query.conversation = conversation.name
        try shop.store.eachRow(query, limit: 1000) { _ in
          left += 1
          return true
        }
        unread[conversation.name] = left
      }
    }
    let found = Dictionary(uniqueKeysWithValues: try list(shop).map { ($0.name, $0.unread) })
    #expect(found == unread, "seed \(seed)")
  }

  @Test(arguments: [
    "", "channel:", "channel:xyz", "channel:00112233445566", "node:0011", "node:00112233445566778899",
    "Channel:0011223344556677",
    "node:00112233445g", "channel:001122334455667\u{301}", "node:\u{212A}01122334455",
  ]) func `an invalid name of a conversation is refused`(_ text: String) { #expect(ConversationName(text) == nil) }

  @Test(arguments: ["channel:0011223344556677", "node:001122334455"])
  func `a name of a conversation parses and prints unchanged`(
    _ text: String
  ) {
    #expect(ConversationName(text)?.description == text)
  }
}
