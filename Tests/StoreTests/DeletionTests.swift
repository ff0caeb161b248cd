// SPDX-License-Identifier: MIT

import Companion
import Foundation
import JSON
import MeshCrypto
import SQLite
import TestSupport
import Testing

@testable import Store

extension Shop {
  fileprivate init(on store: Store, in scratch: Scratch) { (self.store, self.scratch) = (store, scratch) }
}

/// Messages that people delete.
@Suite struct DeletionTests {
  static let peer = PublicKey(bytes: [0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6] + Array(repeating: 1, count: 26))!

  static func write(_ store: Store, _ work: (Store) throws(SQLiteError) -> Void) throws {
    store.write(work)
    try store.commitNow()
  }

  /// As before each request: lists and indexes are complete.
  static func prepare(_ store: Store) throws {
    var isDone = false
    while !isDone { try write(store) { store throws(SQLiteError) in isDone = try store.indexMessages() } }
    isDone = false
    while !isDone { try write(store) { store throws(SQLiteError) in isDone = try store.listConversations() } }
  }

  /// As the gateway does in the background. `most`: it is cut off after so many pieces.
  static func goOn(_ store: Store, most: Int = .max) throws {
    var (step, pieces) = (Store.DeletionStep.goesOn, 0)
    while step != .idle, pieces < most {
      try write(store) { store throws(SQLiteError) in step = try store.continueDeletions(at: Shop.moment) }
      pieces += 1
      guard step == .logIsLeft else { continue }
      try store.overwriteLog()
      try write(store) { store throws(SQLiteError) in try store.endDeletions() }
    }
  }

  static func events(_ store: Store) throws -> [(event: JournalEvent, isSound: Bool)] {
    var found: [(JournalEvent, Bool)] = []
    try store.readJournal(after: 0) { event, isSound in
      found.append((event, isSound))
      return true
    }
    return found
  }

  /// The words that any file of the folder has.
  static func found(_ words: [String], in scratch: Scratch) throws -> [String] {
    let files = try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path())
    let bytes = files.compactMap { FileManager.default.contents(atPath: scratch.location($0)) }
    return words.filter { word in bytes.contains { $0.range(of: Data(word.utf8)) != nil } }
  }

  private func sent(_ store: Store, _ key: String, _ text: String, ends: Bool = true) throws -> OutgoingMessage {
    var message = OutgoingMessage(
      key: key, origin: "hub", priority: 0, kind: .channel, channel: ChannelSecret.publicChannel.digest,
      text: Text(text), created: Shop.moment, lifetime: 1000)
    try Self.write(store) { store throws(SQLiteError) in message = try store.insertOutgoing(message) ?? message }
    guard ends else { return message }
    (message.state, message.senderTime, message.endedAt) = (.sent, 99, Shop.moment.milliseconds)
    try Self.write(store) { store throws(SQLiteError) in try store.updateOutgoing(message, at: Shop.moment) }
    return message
  }

  /// Whether the indexes have exactly the words of the rows.
  static func checkIndexes(_ store: Store) throws {
    for index in ["words", "sent_words"] {
      do throws(SQLiteError) {
        try store.database.run("INSERT INTO \(index)(\(index), rank) VALUES ('integrity-check', 1)")
      } catch {
        Issue.record("\(index): \(error)")
      }
    }
  }

  private func copy(_ path: [UInt8]) -> HeardCopy {
    HeardCopy(
      Packet(
        route: .flood, type: .groupText, transportCodes: nil, pathLength: PathLength(raw: UInt8(path.count)),
        path: path, payload: [1]), snr: SNR(quarters: -7), rssi: -101, at: 1_795_000_000_123, region: nil)
  }

  private func filled() throws -> Shop {
    let shop = try Shop()
    try Self.write(shop.store) { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
      _ = try store.upsert(Contact(key: Self.peer, name: "Birch"), onRadio: true, heard: false, at: 1)
    }
    return shop
  }

  @Test func `of a deleted message nothing is left but its place and the hash that recognises it`() throws {
    let shop = try filled()
    let store = shop.store
    let channel = ChannelSecret.publicChannel.digest
    let spoken = Shop.channel("Zephyrine: quagmire tonight", time: 5)
    try shop.insert(spoken)
    try shop.insert(Shop.channel("Alder: marigold stays", time: 6))
    try Self.write(store) { store throws(SQLiteError) in
      try store.tellCopies([copy([1, 2])], of: .received(1), at: Shop.moment)
      try store.tellCopies([copy([3])], of: .received(1), at: Shop.moment)
    }
    let hash = TextDigest.reactionHash("quagmire tonight", senderTime: 5)
    try shop.insert(Shop.channel("Heliotrope: 👍@[Zephyrine]\n\(hash)", time: 7))
    let ours = try sent(store, "k1", "obsidian plan")
    let waiting = try sent(store, "k2", "verdigris waits", ends: false)
    try Self.write(store) { store throws(SQLiteError) in
      try store.append(
        .command, at: Shop.moment,
        body: Array(
          #"{"upstream":"hub","id":"c","command":"send","result":{"messages":[{"id":"k1","text":"obsidian plan"}]}}"#
            .utf8))
      let event = JournalEvent(
        seq: 1, at: 1, trusted: true, kind: "message", body: Array(#"{"text":"quagmire tonight"}"#.utf8))
      try store.bury(event, upstream: "hook", status: 422, reason: "no", at: 1)
    }
    try Self.prepare(store)
    try Self.checkIndexes(store)
    let before = try Self.events(store)
    let words = ["quagmire", "Zephyrine", "Heliotrope", "obsidian", "marigold", "verdigris"]
    #expect(try Self.found(words, in: shop.scratch) == words)

    var deleted = 0
    try Self.write(store) { store throws(SQLiteError) in
      deleted = try store.delete(messages: [1, 3, 77], outgoing: [ours.id, waiting.id], at: Shop.moment)
    }
    #expect(deleted == 3)
    #expect(try store.deletedSoFar() == 3)
    try Self.goOn(store)
    #expect(try store.deletedSoFar() == nil)
    #expect(try Self.found(words, in: shop.scratch) == ["marigold", "verdigris"])

    // Each event has its place, and what was deleted is told.
    let after = try Self.events(store)
    #expect(after.allSatisfy { $0.isSound })
    #expect(after.prefix(before.count).map { $0.event.seq } == before.map { $0.event.seq })
    let changed = zip(before, after).filter { $0.event.body != $1.event.body }.map { $0.0.event.kind }
    #expect(Set(changed) == ["message", "ways", "reaction", "outgoing", "command"])
    #expect(after.filter { $0.event.kind == "ways" }.allSatisfy { $0.event.isDeleted })
    let told = try #require(after.last?.event)
    #expect(told.kind == "deletion" && told.seq == Int64(before.count) + 1)
    let entries = try JSONValue(parsing: told.body)["events"]?.array ?? []
    #expect(Set(entries.compactMap { $0["id"]?.integer }) == [1, 3])
    let named = entries.filter { $0["outgoing"]?.string == "k1" }
    let told2 = named.compactMap { entry in before.first { $0.event.seq == entry["seq"]?.integer }?.event }
    #expect(named.count == 2 && told2.map(\.at) == named.map { $0["at"]?.integer ?? 0 })
    #expect(told2.allSatisfy { $0.kind == "outgoing" })
    #expect(try store.messageCount() == 1)

    // Nothing finds it, and nothing brings it back.
    #expect(try store.message(id: 1) == nil && store.message(id: 2) != nil)
    #expect(try store.outgoing(key: "k1") == nil && store.hasOutgoing(key: "k1"))
    #expect(try store.hasSaid("obsidian plan", on: channel, senderTime: 99))
    #expect(try !store.hasSaid("obsidian plan", on: channel, senderTime: 98))
    var rows: [MessagePlace] = []
    var both = MessageQuery()
    both.directions = [.received, .sent]
    try store.eachRow(both, limit: 100) { row in
      rows.append(row.place)
      return true
    }
    #expect(rows.map(\.message).filter { $0 == 1 }.isEmpty && rows.count == 2)
    #expect(try shop.insert(spoken).isDuplicate)
    try Self.write(store) { store throws(SQLiteError) in
      try store.tellCopies([copy([9])], of: .received(1), at: Shop.moment)
      var late = ours
      late.heard = 3
      try store.updateOutgoing(late, at: Shop.moment)
      #expect(try store.insertOutgoing(ours) == nil)
    }
    #expect(try Self.events(store).count == after.count)
    #expect(try Self.found(["quagmire", "obsidian"], in: shop.scratch).isEmpty)
    #expect(try store.database.value("PRAGMA integrity_check(1)")?.text == "ok")
    try Self.checkIndexes(store)
  }

  @Test func `a conversation goes in pieces, up to a time, and goes on after a kill`() throws {
    var shop = try filled()
    try Self.write(shop.store) { store throws(SQLiteError) in
      for number in 1...300 as ClosedRange<UInt32> {
        let at = Moment(milliseconds: Int64(number) * 1000, trusted: true)
        _ = try store.insert(Shop.channel("Alder: spoken \(number)", time: number), at: at)
        _ = try store.insert(Shop.direct("whispered \(number)", time: number, from: Self.peer.prefix.value), at: at)
      }
    }
    try Self.prepare(shop.store)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    #expect(try shop.store.deletable(name, before: 200_000).received == 199)
    try Self.write(shop.store) { store throws(SQLiteError) in try store.delete(name, before: 200_000) }
    try Self.goOn(shop.store, most: 2)
    #expect(try shop.store.deletedSoFar() == 100)
    try shop.insert(Shop.channel("Alder: later", time: 150))
    shop = try reopened(shop)
    try Self.goOn(shop.store)
    try Self.prepare(shop.store)
    var (channel, direct) = (0, 0)
    try shop.store.eachRow(MessageQuery(), limit: 1000) { row in
      if case .received(let message) = row { if message.kind == .channel { channel += 1 } else { direct += 1 } }
      return true
    }
    #expect(channel == 102 && direct == 300)
    #expect(try shop.store.deletable(name, before: nil).received == 102)
    let one = try #require(try shop.store.conversation(name, ofRadio: shop.store.radio))
    #expect(one.newest == MessagePlace(message: 601))
    try Self.write(shop.store) { store throws(SQLiteError) in try store.delete(name, before: nil) }
    try Self.goOn(shop.store)
    #expect(try shop.store.conversation(name, ofRadio: shop.store.radio) == nil)
    #expect(try shop.store.conversations(ofRadio: shop.store.radio).count == 1)
    #expect(try Self.found(["spoken", "later"], in: shop.scratch).isEmpty)
    #expect(try Self.events(shop.store).allSatisfy { $0.isSound })
  }

  @Test func `what had not ended when a conversation is deleted stays, although it ends meanwhile`() throws {
    let shop = try filled()
    let ended = try sent(shop.store, "k1", "obsidian plan")
    var waiting = try sent(shop.store, "k2", "verdigris waits", ends: false)
    try Self.prepare(shop.store)
    let name = ConversationName.channel(ChannelSecret.publicChannel.digest)
    var found: Store.Deletable?
    try Self.write(shop.store) { store throws(SQLiteError) in found = try store.delete(name, before: nil) }
    #expect(found == Store.Deletable(received: 0, sent: 1, waiting: 1))
    (waiting.state, waiting.senderTime, waiting.endedAt) = (.sent, 100, Shop.moment.milliseconds)
    try Self.write(shop.store) { store throws(SQLiteError) in try store.updateOutgoing(waiting, at: Shop.moment) }
    try Self.goOn(shop.store)
    try Self.prepare(shop.store)
    #expect(try shop.store.outgoing(key: "k2")?.text == "verdigris waits")
    #expect(try shop.store.outgoing(id: ended.id) == nil)
    #expect(try shop.store.deletable(name, before: nil) == Store.Deletable(received: 0, sent: 1, waiting: 0))
    #expect(try Self.found(["obsidian", "verdigris"], in: shop.scratch) == ["verdigris"])
  }

  @Test func `a count of messages counts no places of deleted ones, also when the oldest go`() throws {
    let shop = try Shop(messagesMax: 20)
    for number in 1...20 as ClosedRange<UInt32> { try shop.insert(Shop.channel("Alder: \(number)", time: number)) }
    try Self.prepare(shop.store)
    try Self.write(shop.store) { store throws(SQLiteError) in
      _ = try store.delete(messages: [1, 2, 19], outgoing: [], at: Shop.moment)
    }
    #expect(try shop.store.messageCount() == 17)
    for number in 21...30 as ClosedRange<UInt32> { try shop.insert(Shop.channel("Alder: \(number)", time: number)) }
    try Self.write(shop.store) { store throws(SQLiteError) in _ = try store.trimMessages() }
    let there = try shop.store.database.value("SELECT count(*) FROM messages WHERE kind <> 'deleted'")?.integer
    #expect(try shop.store.messageCount() == there && there == 19)
  }

  /// The same files, as after a kill.
  private func reopened(_ shop: Shop) throws -> Shop {
    let copy = Scratch()
    for suffix in ["", "-wal", ".id", ".mark"] {
      let location = shop.store.location + suffix
      guard FileManager.default.fileExists(atPath: location) else { continue }
      try FileManager.default.copyItem(atPath: location, toPath: copy.location("gw.db" + suffix))
    }
    var settings = shop.store.settings
    settings.location = copy.location("gw.db")
    return Shop(on: try Store(settings), in: copy)
  }
}
