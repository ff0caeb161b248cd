// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import SQLite
import Testing

@testable import Store

@Suite struct ReactionTests {
  @Test func `a sender whose name is the word for ourselves is not taken for us`() throws {
    let shop = try Shop()
    shop.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
    }
    try shop.store.commitNow()
    try shop.insert(Shop.channel("Bob: hello", time: 2))
    let hash = TextDigest.reactionHash("hello", senderTime: 2)
    try shop.insert(Shop.channel("self: 👍@[Bob]\n\(hash)", time: 3))
    func found() throws -> [String] {
      try shop.store.reactions(to: .received(1)).map { "\($0.emoji) \($0.sender) \($0.isOurs)" }
    }
    #expect(try found() == ["👍 self false"])
    shop.store.write { store throws(SQLiteError) in
      try store.keepOwnReaction(
        ReactionText(emoji: "👍", targetSender: "Bob", hash: hash), conversation: ChannelSecret.publicChannel.digest,
        outgoing: 1, at: Shop.moment)
    }
    try shop.store.commitNow()
    #expect(try found() == ["👍 self false", "👍 self true"])
    var events: [Bool] = []
    try shop.store.readJournal(after: 0) { event, _ in
      // `try?`: a body that is no JSON says nothing.
      let body = try? JSONValue(parsing: event.body)
      if event.kind == "reaction" { events.append(body?["ours"]?.bool == true) }
      return true
    }
    #expect(events == [false, true])
  }
}
