// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Testing

@testable import Store

/// The journal's events about a message, and the records of refused ones.
@Suite struct MessageEventsTests {
  private func outgoing(_ key: String) -> OutgoingMessage {
    OutgoingMessage(
      key: key, origin: "control", priority: 0, kind: .direct,
      recipient: PublicKey(bytes: Array(repeating: 5, count: 32)),
      text: "hello", created: Shop.moment, lifetime: 1000)
  }

  @Test func `a message has its event, and one from before that version has none`() throws {
    let shop = try Shop()
    try shop.append(3)
    let arrival = try shop.insert(Shop.direct("one"))
    guard case .stored(let id, let seq) = arrival else {
      Issue.record("it is a new one")
      return
    }
    #expect(seq > 3)
    #expect(try shop.store.events(ofMessage: id) == MessageEvents(text: seq, newest: seq))
    // The event with this number belongs to the message.
    try shop.store.readJournal(after: seq - 1, limit: 1) { event, _ in
      #expect(event.kind == "message")
      return false
    }
    try shop.store.database.run("UPDATE messages SET seq = NULL")
    #expect(try shop.store.events(ofMessage: id) == nil)
    #expect(try shop.store.events(ofMessage: 99) == nil)
  }

  @Test func `a sent message has the event of its text and the event of its newest state`() throws {
    let shop = try Shop()
    try shop.append(2)
    var message = outgoing("k")
    shop.store.write { store throws(SQLiteError) in message = try store.insertOutgoing(message) ?? message }
    try shop.store.commitNow()
    #expect(try shop.store.events(ofOutgoing: message.id) == MessageEvents(text: 3, newest: 3))
    message.state = .failed
    shop.store.write { store throws(SQLiteError) in try store.updateOutgoing(message, at: Shop.moment) }
    try shop.store.commitNow()
    #expect(try shop.store.events(ofOutgoing: message.id) == MessageEvents(text: 3, newest: 4))
    // As a new message it gets new events, with its text.
    shop.store.write { store throws(SQLiteError) in try store.adoptOutgoing(message) }
    try shop.store.commitNow()
    #expect(try shop.store.events(ofOutgoing: message.id) == MessageEvents(text: 5, newest: 5))
    #expect(try shop.store.outgoing(key: "k")?.state == .failed)
  }

  @Test func `a message that is held again after a restart has no second event that says so`() throws {
    let shop = try Shop()
    var message = outgoing("k")
    shop.store.write { store throws(SQLiteError) in message = try store.insertOutgoing(message) ?? message }
    try shop.store.commitNow()
    func newest(after state: OutgoingState, isWhole: Bool = false, isTold: Bool = true) throws -> Int64? {
      var changed = message
      changed.state = state
      shop.store.write { [changed] store throws(SQLiteError) in
        try store.updateOutgoing(changed, at: Shop.moment, isWhole: isWhole, isTold: isTold)
      }
      try shop.store.commitNow()
      return try shop.store.events(ofOutgoing: changed.id)?.newest
    }
    #expect(try newest(after: .heldForRecipient, isWhole: true) == 2)
    #expect(try newest(after: .sending, isTold: false) == 2)
    // The gateway was started again in a later round.
    #expect(try newest(after: .heldForRecipient, isWhole: true) == 2)
    #expect(try shop.store.outgoing(key: "k")?.state == .heldForRecipient)
    #expect(try newest(after: .sent) == 3)
    #expect(try newest(after: .heldForRecipient, isWhole: true) == 4)
  }

  @Test func `attempts are read from the journal, with their time, route and acknowledgement`() throws {
    let shop = try Shop()
    var (message, other) = (outgoing("k"), outgoing("k2"))
    message.recipient = PublicKey(bytes: Array(repeating: 7, count: 32))
    func save(_ message: OutgoingMessage, at: Int64) throws {
      shop.store.write { store throws(SQLiteError) in
        try store.updateOutgoing(message, at: Moment(milliseconds: at, trusted: true))
      }
      try shop.store.commitNow()
    }
    shop.store.write { store throws(SQLiteError) in
      message = try store.insertOutgoing(message) ?? message
      other = try store.insertOutgoing(other) ?? other
    }
    try shop.store.commitNow()
    #expect(try shop.store.attempts(toSend: message).isEmpty)
    let codes = (1...3).map { AckCode(bytes: [0, 0, 0, $0])! }
    for attempt in 1...3 {
      message.state = .sending
      (message.attempts.next, message.senderTime) = (UInt8(attempt), 5)
      message.attempts.codes.append(codes[attempt - 1])
      try save(message, at: Int64(attempt * 1000))
      try save(other, at: Int64(attempt * 1000 + 1))
      message.state = .sent
      (message.attempts.accepted, message.attempts.floods) = (attempt, max(0, attempt - 2))
      try save(message, at: Int64(attempt * 1000 + 400))
    }
    message.state = .delivered
    try save(message, at: 9000)
    #expect(
      try shop.store.attempts(toSend: message) == [
        OutgoingAttempt(number: 1, at: 1000, isFlood: false, code: codes[0]),
        OutgoingAttempt(number: 2, at: 2000, isFlood: false, code: codes[1]),
        OutgoingAttempt(number: 3, at: 3000, isFlood: true, code: codes[2]),
      ])
    // Events that the journal has lost are not invented.
    try shop.store.database.run("DELETE FROM journal WHERE at < 2500")
    let left = try shop.store.attempts(toSend: message)
    #expect(left.map(\.number) == [1, 2, 3])
    #expect(left.map(\.at) == [nil, nil, 3000])
    #expect(left.map(\.isFlood) == [nil, nil, true])
    #expect(try shop.store.attempts(toSend: other).isEmpty)
  }

  @Test func `one dead letter or all are retried, and dropped ones are known only by their numbers`() throws {
    let shop = try Shop()
    try shop.append(5)
    shop.store.write { store throws(SQLiteError) in
      for seq in [2, 4] as [Int64] {
        let event = JournalEvent(seq: seq, at: 1, trusted: true, kind: "message", body: Array("{\"x\":1}".utf8))
        try store.bury(event, upstream: "hub", status: 422, reason: "no", at: 1)
      }
    }
    try shop.store.commitNow()
    let store = shop.store
    #expect(try store.retryDeadLetters(of: "hub", seq: 3) == 0)
    #expect(try store.retryDeadLetters(of: "other", seq: 4) == 0)
    #expect(try store.retryDeadLetters(of: "hub", seq: 4) == 1)
    func letters(marked: Bool) throws -> [Int64] {
      var seqs: [Int64] = []
      try store.eachDeadLetter(of: "hub", marked: marked) {
        seqs.append($0.event.seq)
        return true
      }
      return seqs
    }
    #expect(try letters(marked: true) == [4])
    #expect(try letters(marked: false) == [2, 4])
    #expect(try store.retryDeadLetters(of: nil) == 2)
    #expect(try store.letter(2, of: "hub") == .dead)
    #expect(try store.dropDeadLetters(of: "hub", seq: 3) == 0)
    #expect(try store.dropDeadLetters(of: "hub", seq: 4) == 1)
    #expect(try letters(marked: false) == [2])
    #expect(try store.dropDeadLetters(of: "hub") == 1)
    #expect(try letters(marked: false) == [])
    #expect(try store.deadLetterCounts(of: "hub") == DeadLetterCounts())
    #expect(try store.letter(2, of: "hub") == .dropped)
    #expect(try store.letter(3, of: "hub") == nil)
    #expect(try store.retryDeadLetters(of: "hub") == 0)
    #expect(try store.dropDeadLetters(of: "hub") == 0)
    // Its last attempt was under way when it was dropped.
    store.write { store throws(SQLiteError) in
      let event = JournalEvent(seq: 2, at: 1, trusted: true, kind: "message", body: Array("{\"x\":2}".utf8))
      let isKept = try store.bury(event, upstream: "hub", status: 422, reason: "no", at: 2, tried: 1)
      #expect(!isKept)
    }
    try store.commitNow()
    #expect(try store.letter(2, of: "hub") == .dropped)
    // The upstream gets the event again, as after a restore, and refuses it again, so it is a dead letter again.
    store.write { store throws(SQLiteError) in
      let event = JournalEvent(seq: 2, at: 1, trusted: true, kind: "message", body: Array("{\"x\":2}".utf8))
      try store.bury(event, upstream: "hub", status: 422, reason: "still no", at: 2)
    }
    try store.commitNow()
    var bodies: [String] = []
    try store.eachDeadLetter(of: "hub") {
      bodies.append(String(decoding: $0.event.body, as: UTF8.self))
      return true
    }
    #expect(bodies == ["{\"x\":2}"])
  }

  @Test func `of too many dead letters the oldest are dropped, and their number is told`() throws {
    let shop = try Shop()
    func bury(_ seqs: ClosedRange<Int64>) throws -> Int {
      var dropped = 0
      shop.store.write { store throws(SQLiteError) in
        for seq in seqs {
          let event = JournalEvent(seq: seq, at: 1, trusted: true, kind: "message", body: Array("{}".utf8))
          try store.bury(event, upstream: "hub", status: 422, reason: "no", at: 1)
          dropped += try store.boundDeadLetters(of: "hub")
        }
      }
      try shop.store.commitNow()
      return dropped
    }
    #expect(try bury(1...10_000) == 0)
    #expect(try bury(10_001...10_001) == 101)
    #expect(try shop.store.deadLetterCounts(of: "hub").refused == 9900)
    #expect(try shop.store.letter(101, of: "hub") == .dropped && shop.store.letter(102, of: "hub") == .dead)
    #expect(try bury(10_002...10_101) == 0)
    #expect(try bury(10_102...10_102) == 101)
  }

  @Test func `a refusal clears the marks that a dead letter had when it was sent, and no later ones`() throws {
    let shop = try Shop()
    try shop.append(1)
    let store = shop.store
    func bury(tried: Int64) throws {
      store.write { store throws(SQLiteError) in
        let event = JournalEvent(seq: 1, at: 1, trusted: true, kind: "message", body: Array("{}".utf8))
        try store.bury(event, upstream: "hub", status: 422, reason: "no", at: 1, tried: tried)
      }
      try store.commitNow()
    }
    func marks() throws -> Int64 {
      var marks: Int64 = -1
      try store.eachDeadLetter(of: "hub") {
        marks = $0.marks
        return true
      }
      return marks
    }
    try bury(tried: 0)
    #expect(try marks() == 0)
    _ = try store.retryDeadLetters(of: "hub")
    let tried = try marks()
    _ = try store.retryDeadLetters(of: "hub")
    try bury(tried: tried)
    #expect(try marks() == 1)
    try bury(tried: marks())
    #expect(try marks() == 0)
  }
}
