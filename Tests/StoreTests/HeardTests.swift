// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Testing

@testable import Store

/// A node counts as heard by everything that only it can have sent.
@Suite struct HeardTests {
  private let key = PublicKey(bytes: Array(repeating: 7, count: 32))!
  private let begin = Shop.moment.milliseconds

  private func shop() throws -> Shop {
    let shop = try Shop()
    try write(shop) { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: self.key, name: "n7"), onRadio: true, heard: false, at: self.begin)
    }
    return shop
  }

  private func write(_ shop: Shop, _ work: Store.Work) throws {
    shop.store.write(work)
    try shop.store.commitNow()
  }

  private func moment(_ minutes: Int64) -> Moment { Moment(milliseconds: begin + minutes * 60_000, trusted: true) }

  /// The minutes from the begin to the stored time.
  private func heard(_ shop: Shop) throws -> Int64? {
    try shop.store.contact(key)?.lastHeard.map { ($0 - begin) / 60_000 }
  }

  private func message(_ number: UInt32, _ sender: KeyPrefix) -> QueuedMessage {
    .contact(
      ContactMessage(
        snr: nil, sender: sender, path: ReceivedPath(raw: 0), textType: .plain, senderTime: number, text: "hello"))
  }

  @Test func `a node's messages, acknowledgements and answers mark it as heard, and others' do not`() throws {
    let shop = try shop()
    #expect(try heard(shop) == nil)
    let other = PublicKey(bytes: Array(repeating: 8, count: 32))!
    try write(shop) { store throws(SQLiteError) in
      _ = try store.insert(self.message(1, other.prefix), at: self.moment(1))
      _ = try store.insert(
        .channel(
          ChannelMessage(snr: nil, slot: 0, path: ReceivedPath(raw: 0), senderTime: 1, text: "n7: I say it is me")),
        at: self.moment(1))
    }
    #expect(try heard(shop) == nil)
    try write(shop) { store throws(SQLiteError) in
      _ = try store.insert(self.message(1, self.key.prefix), at: self.moment(2))
    }
    #expect(try heard(shop) == 2)

    var sent = OutgoingMessage(
      key: "k", origin: "control", priority: 0, kind: .direct, recipient: key, text: "x", created: moment(20),
      lifetime: 1000)
    try write(shop) { store throws(SQLiteError) in
      sent = try store.insertOutgoing(sent) ?? sent
      sent.state = .failed
      try store.updateOutgoing(sent, at: self.moment(21))
    }
    #expect(try heard(shop) == 2, "nobody answered")
    sent.state = .delivered
    try write(shop) { store throws(SQLiteError) in try store.updateOutgoing(sent, at: self.moment(22)) }
    #expect(try heard(shop) == 22)
    try write(shop) { store throws(SQLiteError) in
      try store.keepReading(of: self.key, kind: .telemetry, body: Array("{}".utf8), at: self.moment(40))
    }
    #expect(try heard(shop) == 40)
  }

  /// Otherwise each message would write a page of the contacts' table.
  @Test func `a node's time is written once in ten minutes, and a wrong clock does not block that`() throws {
    let shop = try shop()
    for minute in Int64(0)...25 {
      try write(shop) { store throws(SQLiteError) in
        _ = try store.insert(self.message(UInt32(minute), self.key.prefix), at: self.moment(minute))
      }
      #expect(try heard(shop) == minute / 11 * 11)
    }
    try write(shop) { store throws(SQLiteError) in
      _ = try store.insert(self.message(90, self.key.prefix), at: self.moment(1_000_000))
      _ = try store.insert(self.message(91, self.key.prefix), at: self.moment(30))
    }
    #expect(try heard(shop) == 30)
  }
}
