// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import SQLite
import Testing
import Timing

@testable import Store

/// The list of conversations, compared with a full recount of all messages.
@Suite struct ConversationListTests {
  private let radio = PublicKey(bytes: Array(repeating: 9, count: 32))!

  private func shop() throws -> Shop {
    let shop = try Shop()
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

  @Test func `a muted conversation stays muted, counts unread messages, and needs no message`() throws {
    let shop = try shop()
    _ = try list(shop)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    func mute(_ isMuted: Bool) throws {
      shop.store.write { store throws(SQLiteError) in try store.setMuted(name, isMuted, ofRadio: store.radio) }
      try shop.store.commitNow()
    }
    try mute(true)
    #expect(try list(shop).map(\.newest) == [.first])
    try shop.insert(Shop.channel("Bob: anyone?", time: 1))
    #expect(try list(shop).map(\.isMuted) == [true])
    #expect(try list(shop).map(\.unread) == [1])
    #expect(try read(shop, name, .last))
    #expect(try shop.store.conversation(name, ofRadio: shop.store.radio)?.isMuted == true)
    try mute(false)
    #expect(try list(shop).map(\.isMuted) == [false])
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
