// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import TestSupport
import Testing

@testable import Store

@Suite struct MessageAgeTests {
  private static let now = Moment(milliseconds: 1_795_000_000_000, trusted: true)
  private static let seconds: UInt32 = 1_795_000_000

  @Test func `the sender's time makes a message older, never newer, and an impossible time is ignored`() {
    func age(_ time: UInt32?, offset: Int64? = nil, _ wait: RadioWait = .unknown, trusted: Bool = true) -> Int64? {
      MessageAge.seconds(
        senderTime: time, received: Moment(milliseconds: Self.now.milliseconds, trusted: trusted), offset: offset,
        wait: wait)
    }
    #expect(age(Self.seconds - 10_800) == 10_800)
    #expect(age(Self.seconds - 10_800, trusted: false) == nil, "our own clock tells nothing")
    #expect(age(Self.seconds + 10_800) == nil && age(.max) == nil && age(0) == nil && age(nil) == nil)
    #expect(age(Self.seconds - 31 * 86_400) == nil, "likelier a clock that was never set")
    #expect(age(Self.seconds - 10_800, .none) == nil, "it has just come over the air: that clock is likelier wrong")
    #expect(age(Self.seconds - 10_800, .atMost(seconds: 60)) == nil, "it cannot have waited so long")
    #expect(age(Self.seconds - 10_800, .atMost(seconds: 12_000)) == 10_800)
    // A clock that is an hour ahead by the node's adverts.
    #expect(age(Self.seconds, offset: 3600, .none) == 3600)
    #expect(age(Self.seconds + 3600, offset: 3600, .none) == nil, "new")
    #expect(age(Self.seconds + 3600, offset: 3600, .unknown) == 0)
    #expect(age(Self.seconds + 9000, offset: 3600, .none) == nil)
    for offset in [Int64.min, -1, 0, .max] { _ = age(.max, offset: offset, .none) }
    #expect(
      MessageAge.seconds(
        senderTime: 1, received: Moment(milliseconds: .min, trusted: true), offset: 5, wait: .unknown) == nil)
  }

  /// The clock of a node does not move with ours.
  @Test(arguments: [Int64(3600), -7200])
  func `while our clock is doubted, and after that, no message is older than it is`(
    step: Int64
  ) throws {
    let (scratch, machine) = (Scratch(), InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
    let key = PublicKey(bytes: Array(repeating: 5, count: 32))!
    var number: UInt32 = 0
    /// The age of a message that its sender wrote so many seconds ago.
    func age(_ seconds: Int64 = 0) throws -> Int64? {
      number += 1
      let now = Moment(milliseconds: machine.wallMilliseconds, trusted: true)
      let sent = UInt32((now.milliseconds - machine.wallOffset) / 1000 - seconds)
      let message = QueuedMessage.contact(
        ContactMessage(
          snr: nil, sender: key.prefix, path: ReceivedPath(raw: 0), senderTime: sent, text: Text("\(number)")))
      store.write { store throws(SQLiteError) in _ = try store.insert(message, at: now) }
      try store.commitNow()
      var found: Int64?
      try store.eachMessage(limit: 1) {
        found = $0.age
        return true
      }
      return found
    }
    store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, name: "right"), onRadio: true, heard: true, at: 1)
      try store.noteClock(
        of: key, advert: UInt32(machine.wallMilliseconds / 1000),
        at: Moment(milliseconds: machine.wallMilliseconds, trusted: true))
    }
    #expect(try age() == nil && age(500) == 500)
    machine.wallOffset = step * 1000
    #expect(store.clockDoubt == .moved(step * 1000))
    #expect(try age() == nil && age(500) == 500, "the steps of our clock are known")
    store.confirmClock()
    #expect(try store.clockDoubt == nil && age() == nil && age(500) == nil, "its clock was compared with another time")
    store.write { store throws(SQLiteError) in
      try store.noteClock(
        of: key, advert: UInt32(machine.wallMilliseconds / 1000 - step),
        at: Moment(milliseconds: machine.wallMilliseconds, trusted: true))
    }
    #expect(try age() == nil && age(500) == 500)
  }

  @Test func `an event shows that its message waited, and its age by the sender's known clock offset`() throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let key = PublicKey(bytes: Array(repeating: 5, count: 32))!
    func insert(_ text: Text, sent: UInt32, _ wait: RadioWait) throws -> JSONValue {
      let message = QueuedMessage.contact(
        ContactMessage(snr: nil, sender: key.prefix, path: ReceivedPath(raw: 0), senderTime: sent, text: text))
      store.write { store throws(SQLiteError) in _ = try store.insert(message, at: Self.now, wait: wait) }
      try store.commitNow()
      var body = JSONValue.null
      try store.readJournal(after: store.lastSeq - 1) { event, _ in
        body = (try? JSONValue(parsing: event.body)) ?? .null
        return true
      }
      var row: StoredMessage?
      try store.eachMessage(limit: 1) {
        row = $0; return true
      }
      #expect(row?.wait == wait && row?.age == body["age_s"]?.integer)
      return body
    }
    let live = try insert("now", sent: Self.seconds - 5000, .none)
    #expect(live["waited"] == nil && live["waited_s"] == nil && live["age_s"] == nil)
    let unknown = try insert("some time", sent: Self.seconds + 99, .unknown)
    #expect(unknown["waited"]?.bool == true && unknown["waited_s"] == nil && unknown["age_s"] == nil)
    let known = try insert("a while", sent: Self.seconds - 50, .atMost(seconds: 70))
    #expect(known["waited"]?.bool == true && known["waited_s"]?.integer == 70 && known["age_s"]?.integer == 50)
    store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, name: "late"), onRadio: true, heard: true, at: 1)
      try store.noteClock(of: key, advert: Self.seconds - 5000, at: Self.now)
    }
    #expect(try insert("by a slow clock", sent: Self.seconds - 5000, .none)["age_s"] == nil)
    #expect(try insert("held back", sent: Self.seconds - 9000, .none)["age_s"]?.integer == 4000)
  }
}
