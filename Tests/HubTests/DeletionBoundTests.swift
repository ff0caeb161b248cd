// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// What a gateway's token can delete, and what that costs.
@Suite struct DeletionBoundTests {
  private let scratch = Scratch(inMemory: true)

  private func store() throws -> HubStore { try HubStore(location: scratch.location("hub.db")) }

  private func event(_ seq: Int64, _ kind: String, _ body: String, at: Int64? = nil) throws -> HubEvent {
    HubEvent(seq: seq, at: at ?? seq, trusted: true, kind: kind, body: try JSONValue(parsing: body))
  }

  private func message(_ seq: Int64, _ text: String, at: Int64? = nil) throws -> HubEvent {
    let body = #"{"kind":"channel","channel":"0011223344556677","sender_time":\#(seq),"text":"\#(text)"}"#
    return try event(seq, "message", body, at: at)
  }

  private func deletion(_ seq: Int64, of seqs: ClosedRange<Int64>) throws -> HubEvent {
    let named = seqs.map { #"{"seq":\#($0),"at":\#($0)}"# }.joined(separator: ",")
    return try event(seq, "deletion", #"{"events":[\#(named)]}"#)
  }

  private func take(_ events: [HubEvent], epoch: String = "e", _ store: HubStore) async throws {
    let batch = PreparedBatch(events, of: epoch, in: nil, from: "g", after: nil, at: 9)
    #expect(try await store.take([batch]) == [.acknowledged(events.last?.seq ?? 0)])
  }

  private func texts(_ word: String, _ store: HubStore) async throws -> Int64 {
    try await store.number("SELECT count(*) FROM events WHERE body LIKE '%\(word)%'")
  }

  private func goOn(_ store: HubStore) async throws -> Int {
    var steps = 0
    while try await store.continueDeletions() {
      steps += 1
      try #require(steps < 100)
    }
    return steps
  }

  @Test func `one event that names events of many epochs is worked off in turns`() async throws {
    let (store, epochs, events) = (try store(), 30, Int64(100))
    for number in 1...epochs {
      try await take(try (1...events).map { try message($0, "secret\(number)") }, epoch: "e\(number)", store)
    }
    let all = try await texts("secret", store)
    #expect(all == Int64(epochs) * events)
    try await take([try deletion(events + 1, of: 1...events)], epoch: "e1", store)
    var left = try await texts("secret", store)
    #expect(all - left <= 200 && left > 0)
    var steps = 0
    while try await store.continueDeletions() {
      let now = try await texts("secret", store)
      #expect(left - now <= 200)
      (left, steps) = (now, steps + 1)
      try #require(steps < 100)
    }
    #expect(left == 0)
    #expect(try await store.number("SELECT count(*) FROM deletions") == 0)
    #expect(try await store.number("SELECT count(*) FROM messages WHERE body <> ''") == 0)
    // In an epoch that comes later, too.
    try await take([try message(1, "secret again", at: 1)], epoch: "f", store)
    #expect(try await texts("secret", store) == 0)
  }

  @Test func `a message with more events of copies than a turn empties goes with all of them`() async throws {
    let store = try store()
    try await take([try message(1, "secret")], store)
    let copies = try (2...600 as ClosedRange<Int64>).map { seq in
      try event(
        seq, "ways", #"{"kind":"channel","identity":"\#(try identity())","channel":"0011223344556677","secret":1}"#)
    }
    try await take(copies, store)
    #expect(try await texts("secret", store) == 600)
    try await take([try deletion(601, of: 1...1)], store)
    _ = try await goOn(store)
    #expect(try await texts("secret", store) == 0)
  }

  /// As events of copies name message 1.
  private func identity() throws -> String {
    try #require(HubStore.identity(ofCopies: try message(1, "secret").body))
  }

  @Test func `a text under the id of a deleted one is another message, and the deleted one stays away`() async throws {
    func sent(_ seq: Int64, _ text: String, created: Int64, at: Int64? = nil) throws -> HubEvent {
      try event(seq, "outgoing", #"{"id":"alarm-17","text":"\#(text)","created_at":\#(created)}"#, at: at)
    }
    let store = try store()
    try await take([try sent(1, "first", created: 1), try deletion(2, of: 1...1)], store)
    #expect(try await texts("first", store) == 0)
    // Behind a restore: the same id and number, and the old one under another number.
    try await take(
      [
        try sent(1, "second", created: 7, at: 7), try sent(2, "first", created: 7, at: 8),
        try sent(3, "first", created: 1),
      ],
      epoch: "f", store)
    #expect(try await texts("second", store) == 1)
    #expect(try await texts("first", store) == 1)
  }

  @Test func `a deletion of what is no message deletes nothing`() async throws {
    let store = try store()
    let others = [
      ("gap", #"{"lane":"messages","first":1,"last":4,"reason":"full"}"#),
      ("alert", #"{"id":7,"rule":"backlogged","state":"begin","since":1,"text":"x"}"#),
      ("contact", #"{"key":"ab","name":"N"}"#), ("radio", #"{"name":"R"}"#), ("channel", #"{"name":"C"}"#),
      ("command", #"{"id":"c","command":"reboot","result":{}}"#), ("document", #"{"key":"k"}"#), ("power", "{}"),
      ("later", "{}"),
    ]
    let events = try others.enumerated().map { try event(Int64($0.offset + 1), $0.element.0, $0.element.1) }
    let last = Int64(events.count)
    try await take(events + [try deletion(last + 1, of: 1...last)], store)
    // Those that come behind it, as well.
    try await take([try deletion(last + 2, of: (last + 3)...(last + 3))], store)
    try await take([try event(last + 3, "gap", #"{"lane":"messages","first":1,"last":2}"#)], store)
    #expect(try await goOn(store) == 0)
    let kinds = try await store.number("SELECT count(*) FROM events WHERE kind <> 'deletion'")
    #expect(kinds == last + 1)
  }

  @Test func `at the bound of what is remembered messages are still deleted`() async throws {
    let store = try store()
    try await store.fillDeletedNames(500_000)
    try await take([try message(1, "secret"), try deletion(2, of: 1...1)], store)
    #expect(try await texts("secret", store) == 0)
    #expect(try await store.number("SELECT count(*) FROM deleted_messages") == 500_000)
  }
}

extension HubStore {
  fileprivate func fillDeletedNames(_ count: Int) throws {
    try database.run(
      """
      INSERT INTO deleted_messages WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(count))
      SELECT 'g', 'event/' || i || '/x' FROM n
      """)
  }
}
