// SPDX-License-Identifier: MIT

import Companion
import Documents
import MeshCrypto
import SQLite
import Testing

@testable import Store

/// Texts that look the same differ if their bytes do: memory and database must agree on this.
@Suite struct OutsideTextTests {
  private let one = "caf\u{E9}"
  private let two = "cafe\u{301}"

  @Test func `texts that differ after a NUL stay different`() throws {
    let database = try Database(location: ":memory:")
    try database.execute("CREATE TABLE t(name TEXT PRIMARY KEY)")
    try database.run("INSERT INTO t(name) VALUES (?)", .text("a\0b"))
    try database.run("INSERT INTO t(name) VALUES (?)", .text("a\0\u{301}c"))
    #expect(try database.value("SELECT count(*) FROM t WHERE name = ?", .text("a\0b"))?.integer == 1)
    #expect(try database.value("SELECT count(*) FROM t WHERE name = ?", .text("a"))?.integer == 0)
    #expect(try database.value("SELECT name FROM t WHERE name = ?", .text("a\0b"))?.text == "a\u{FFFD}b")
  }

  @Test func `a node that is no room says nothing in the name of somebody else`() throws {
    let shop = try Shop()
    for (number, type) in [(UInt8(1), NodeType.room), (2, .chat), (3, .repeater)] {
      let key = PublicKey(bytes: [UInt8](repeating: number, count: 32))!
      shop.store.write { store throws(SQLiteError) in
        _ = try store.upsert(Contact(key: key, type: type, name: "Public"), onRadio: true, heard: false, at: 1)
      }
      try shop.store.commitNow()
      try shop.insert(
        .contact(
          ContactMessage(
            snr: nil, sender: key.prefix, path: ReceivedPath(raw: 0), textType: .signedPlain, senderTime: 5,
            author: [0xAA, 0xBB, 0xCC, 0xDD], text: "pay now")))
    }
    var found: [String] = []
    try shop.store.eachMessage(limit: 10) {
      found.append("\($0.kind) \($0.author == nil)")
      return true
    }
    #expect(found.sorted() == ["direct true", "direct true", "room false"])
  }

  @Test func `an upstream whose name has another form of é counts as removed, and begins again`() throws {
    let shop = try Shop()
    try shop.store.keepOnlyCursors(of: [one])
    try shop.store.keepOnlyCursors(of: [two])
    let removed = try shop.store.removedUpstreams()
    #expect(removed.count == 1 && removed[0].name.utf8.elementsEqual(one.utf8))
  }

  @Test func `of two values that look the same, both ends choose the same one`() {
    func document(_ value: String) -> Document { Document(key: "k", value: value, updatedAt: 5, byHub: false) }
    let (first, second) = (document("\"\(one)\""), document("\"\(two)\""))
    #expect(first != second && !first.hasSameValue(as: second))
    #expect(first.wins(over: second) != second.wins(over: first))
    #expect(
      !first.wins(over: first) && document("").wins(over: Document(key: "k", value: nil, updatedAt: 4, byHub: true)))
  }

  @Test func `a hub's value that only looks like ours replaces it`() throws {
    let shop = try Shop()
    let moment = Moment(milliseconds: 1, trusted: true)
    let key = "node/" + String(repeating: "a", count: 64) + "/alias"
    func apply(_ value: String) throws -> Bool {
      var isNew = false
      shop.store.write { store throws(SQLiteError) in
        let document = Document(key: key, value: value, updatedAt: 7, byHub: true)
        isNew = try store.applyDocument(document, via: "hub", acknowledged: .max, at: moment)
      }
      try shop.store.commitNow()
      return isNew
    }
    #expect(try apply("\"\(one)\"") == true)
    #expect(try apply("\"\(one)\"") == false)
    #expect(try apply("\"\(two)\"") == true)
    let kept = try shop.store.document(key)?.value
    #expect(kept.map { Array($0.utf8) } == Array("\"\(two)\"".utf8))
  }

  @Test func `a text with a lookalike of a hash at its end is no reaction`() {
    #expect(ReactionText(reading: Text("\u{1F44D}\nKbcdefgh"), inChannel: false)?.hash == "kbcdefgh")
    #expect(ReactionText(reading: Text("\u{1F44D}\n\u{212A}bcdef"), inChannel: false) == nil)
  }

  @Test func `a program that shares the radio is recognised by the bytes of its origin`() {
    var message = OutgoingMessage(
      key: "k", origin: OutgoingMessage.sharedOrigin + "\u{301}x", priority: 0, kind: .direct, text: "hello",
      created: Moment(milliseconds: 1, trusted: true), lifetime: 1000)
    message.state = .sent
    #expect(message.hasEnded, "that program repeats its own messages")
  }
}
