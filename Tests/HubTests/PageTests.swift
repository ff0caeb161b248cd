// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

@testable import Hub

/// Limits of the data that a gateway's token can make a hub store, send and keep in memory.
@Suite struct PageTests {
  private let scratch = Scratch(inMemory: true)

  private func store() throws -> HubStore { try HubStore(location: scratch.location("hub.db")) }

  private func batch(_ events: [(seq: Int64, kind: String, body: JSONValue)]) throws -> EventBatch {
    let list = events.map { event in
      JSONValue.object([
        ("seq", .integer(event.seq)), ("at", .integer(event.seq)), ("trusted", .bool(true)),
        ("kind", .string(event.kind)), ("body", event.body),
      ])
    }
    return try EventBatch(.object([("epoch", .string("e")), ("events", .array(list))]))
  }

  private func batch(_ seq: Int64, _ kind: String, _ body: JSONValue) throws -> EventBatch {
    try batch([(seq, kind, body)])
  }

  private func message(_ seq: Int64, _ text: String) -> JSONValue {
    .object([
      ("kind", .string("direct")), ("sender", .string("aabbccddeeff")), ("sender_time", .integer(seq)),
      ("text", .string(text)),
    ])
  }

  @Test func `a page ends at 1 MiB, and all pages together are complete`() async throws {
    let store = try store()
    let text = String(repeating: "x", count: 300_000)
    let count: Int64 = 12
    for seq in 1...count {
      _ = try await store.take(batch(seq, "message", message(seq, text)), from: "g", at: seq)
      let contact = JSONValue.object([("key", .string("k\(1000 + seq)")), ("name", .string(text))])
      _ = try await store.take(batch(count + seq, "contact", contact), from: "h", at: seq)
    }
    func read(_ name: String, _ page: (String) async throws -> [UInt8]) async throws -> Int {
      var (rows, after, pages) = (0, "", 0)
      while true {
        let bytes = try await page(after)
        #expect(bytes.count <= 1 << 20, "\(name): \(bytes.count) bytes")
        let json = try JSONValue(parsing: bytes)
        rows += json[name]?.array?.count ?? 0
        pages += 1
        guard let next = json["next"] else { break }
        after = next.string ?? "\(next.integer ?? 0)"
      }
      #expect(pages >= 3)
      return rows
    }
    #expect(
      try await read("events") {
        try await store.events(gateway: "g", kind: nil, after: Int64($0) ?? 0, limit: 1000)
      } == count)
    #expect(
      try await read("messages") {
        try await store.events(gateway: "g", kind: "message", after: Int64($0) ?? 0, limit: 1000)
      } == count)
    #expect(try await read("contacts") { try await store.contacts(gateway: "h", after: $0, limit: 1000) } == count)
    #expect(
      try await read("messages") {
        try await store.joinedMessages(channel: nil, after: Int64($0) ?? 0, limit: 1000)
      } == count)
  }

  @Test func `a page of a channel's messages ends at 1 MiB with their hearers`() async throws {
    let store = try store()
    let channel = "0011223344556677"
    let messages = (1...300).map { number -> (seq: Int64, kind: String, body: JSONValue) in
      let body: [(String, JSONValue)] = [
        ("kind", .string("channel")), ("channel", .string(channel)), ("sender_time", .integer(Int64(number))),
        ("text", .string("hello")),
      ]
      return (Int64(number), "message", .object(body))
    }
    let heard = try batch(messages)
    for number in 0..<40 {
      _ = try await store.take(heard, from: "\(String(repeating: "g", count: 60))\(number)", at: 1)
    }
    var (query, rows, pages) = (ListQuery(after: 0, limit: 1000, channel: channel), 0, 0)
    while pages < 10 {
      let bytes = try await store.messages(query)
      #expect(bytes.count <= 1 << 20, "\(bytes.count) bytes")
      let page = try JSONValue(parsing: bytes)
      rows += page["messages"]?.array?.count ?? 0
      pages += 1
      guard let next = page["next"]?.integer else { break }
      query.after = next
    }
    #expect(rows == 300 && pages > 1)
  }

  @Test func `a row that is larger than a page is a page of its own`() async throws {
    let store = try store()
    for seq in 1...2 as ClosedRange<Int64> {
      let body = message(seq, String(repeating: "y", count: 2_000_000))
      _ = try await store.take(batch(seq, "message", body), from: "g", at: seq)
    }
    let first = try JSONValue(parsing: try await store.events(gateway: "g", kind: nil, after: 0, limit: 100))
    #expect(first["events"]?.array?.count == 1)
    let next = try #require(first["next"]?.integer)
    let second = try JSONValue(parsing: try await store.events(gateway: "g", kind: nil, after: next, limit: 100))
    #expect(second["events"]?.array?.count == 1 && second["next"] == nil)
  }

  @Test func `states, documents and ended commands of a gateway are each bounded`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let store = stores.writer
    for number in 0..<40 {
      let taken = try await stores.setState("s\(number)", .object([("n", .integer(1))]), of: "g", at: 1)
      #expect(taken == (number < HubBounds.states))
    }
    #expect(try await stores.setState("s3", .object([("n", .integer(2))]), of: "g", at: 2), "a known one may change")
    let large = JSONValue.object([("x", .string(String(repeating: "z", count: HubBounds.stateBytes)))])
    #expect(try await stores.setState("s3", large, of: "g", at: 2) == false)
    let states = try JSONValue(parsing: try await store.states(of: "g"))
    #expect(states.fields?.count == Int(HubBounds.states) && states["s3"]?["body"]?["n"]?.integer == 2)

    // Stored through the gateway's journal, in batches.
    for start in stride(from: 0, to: 11_000, by: 1000) {
      let events = (start..<start + 1000).map { number -> (seq: Int64, kind: String, body: JSONValue) in
        (
          Int64(number + 1), "document",
          JSONValue.object([
            ("key", .string(noteKey(number))), ("value", .string("v")), ("updated_at", .integer(Int64(number))),
          ])
        )
      }
      _ = try await store.take(batch(events), from: "g", at: 1)
    }
    #expect(try await store.document(noteKey(9999), of: "g") != nil)
    #expect(try await store.document(noteKey(10_000), of: "g") == nil)
    #expect(try await store.editDocument(noteKey(20_000), "1", of: "g", at: 5) == nil)
    #expect(try await store.editDocument(noteKey(1), "1", of: "g", at: 5) != nil)

    let request = JSONValue.object([("command", .string("status"))])
    let answer = JSONValue.object([("ok", .bool(true)), ("x", .string(String(repeating: "a", count: 100_000)))])
    for number in 0..<1300 {
      try await store.record(
        request, answer: number == 1299 ? answer : .object([("ok", .bool(true))]), id: "c\(number)", for: "g", by: "me",
        at: Int64(number))
    }
    #expect(try await store.command("c0", of: "g") == nil)
    let last = try #require(try await store.command("c1299", of: "g"))
    #expect(last.answer?.utf8.count ?? 0 < 200 && last.answer?.contains("too_large") == true)
    #expect(try await store.commands(of: "g", limit: 5000).count <= HubBounds.endedCommands + 100)
  }

  @Test func `each gateway has its own daily limit of bytes`() async {
    let start = ContinuousClock.now
    let limiter = RateLimiter(perSecond: 0, bytesPerDay: 86_400, now: start)
    #expect(await limiter.admit("g", events: 1, bytes: 50_000, now: start) == nil)
    #expect(await limiter.admit("g", events: 1, bytes: 50_000, now: start) == 13_600)
    #expect(await limiter.admit("h", events: 1, bytes: 50_000, now: start) == nil)
    #expect(await limiter.admit("g", events: 1, bytes: 50_000, now: start + .seconds(13_600)) == nil)
    // A batch larger than a day's bytes: it is accepted when all bytes are left, and leaves a debt.
    #expect(await limiter.admit("i", events: 1, bytes: 100_000, now: start) == nil)
    #expect(await limiter.admit("i", events: 0, bytes: 0, now: start) == 13_856)
    let events = RateLimiter(perSecond: 10, now: start)
    #expect(await events.admit("g", events: 10, bytes: 1, now: start) == nil)
    #expect(await events.admit("g", events: 5, bytes: 1, now: start) == 1)
    #expect(await events.admit("g", events: 5, bytes: 1, now: start + .milliseconds(600)) == nil)
    // Data that cannot be refused counts, too, and keeps a gateway out for a day at most.
    await limiter.count("j", bytes: 80_000, now: start)
    #expect(await limiter.admit("j", bytes: 6401, now: start) == 1)
    await limiter.count("j", bytes: 1 << 40, now: start)
    #expect(await limiter.admit("j", bytes: 1, now: start) == 86_656)
  }

  @Test func `a gateway that is over its limit stays so, however many others come`() async {
    let start = ContinuousClock.now
    let limiter = RateLimiter(perSecond: 0, bytesPerDay: 86_400, now: start)
    #expect(await limiter.admit("g", events: 1, bytes: 86_400, now: start) == nil)
    // Each of these is as a new one again before the next comes.
    for number in 0..<25_000 {
      _ = await limiter.admit("h\(number)", bytes: 0, now: start + .seconds(1 + number / 10))
    }
    #expect(await limiter.admit("g", events: 1, bytes: 86_400, now: start + .seconds(2500)) != nil)

    var kept = KeptForGateways<Int>(most: 8)
    for number in 0..<100 {
      kept.keep(1, of: "busy") { $0 == 0 }
      kept.keep(number.isMultiple(of: 2) ? 0 : 1, of: "\(number)") { $0 == 0 }
      #expect(kept.count <= 8)
    }
    #expect(kept["busy"] == 1 && kept["99"] == 1, "those that were used last")
  }

  @Test func `all messages of a gateway on its link count, and a state beyond the limit is not stored`() async throws {
    let text = String(repeating: "x", count: 400)
    for other in [#"{"type":"state","name":"b","body":{"b":"\#(text)"}}"#, #"{"type":"response","id":"\#(text)"}"#] {
      let rig = try LinkRig(bytesPerDay: 1000)
      _ = try await rig.hello(version: 2)
      try await rig.tell(#"{"type":"state","name":"a","body":{"a":"\#(text)"}}"#)
      try await rig.tell(other)
      let kept = String(decoding: try await rig.store.states(of: "g"), as: UTF8.self)
      try await rig.tell(#"{"type":"state","name":"a","body":{}}"#)
      #expect(String(decoding: try await rig.store.states(of: "g"), as: UTF8.self) == kept)
      #expect(kept.contains(text))
      #expect(try await rig.ship([LinkRig.event(1, "boot")])["type"]?.string == "busy")
    }
  }

  @Test func `memory for slow readers is limited for each holder and in all, and is returned`() {
    let memory = TransferMemory(largest: 1 << 20)
    var shares: [TransferMemory.Share?] = (0..<8).map { _ in memory.reserve(1 << 20, for: "greedy") }
    #expect(!shares.contains { $0 == nil })
    #expect(memory.reserve(1 << 20, for: "greedy") == nil, "one holder has 8 MiB")
    #expect(memory.reserve(1 << 20, for: "other") != nil)
    shares += (0..<7).flatMap { holder in (0..<8).map { _ in memory.reserve(1 << 20, for: "h\(holder)") } }
    #expect(!shares.contains { $0 == nil })
    #expect(memory.reserve(1 << 20, for: "late") == nil, "all have 64 MiB")
    shares = []
    #expect(memory.reserve(8 << 20, for: "greedy") != nil)
  }

  @Test func `the waiting bytes of one gateway are limited`() {
    let admission = Admission()
    for _ in 0..<4 { #expect(admission.enter("g", bytes: 1 << 20) == nil) }
    #expect(admission.enter("g", bytes: 100) != nil && admission.enter("h", bytes: 100) == nil)
    admission.leave("g", bytes: 1 << 20)
    #expect(admission.enter("g", bytes: 100) == nil && admission.waiting.batches == 5)
  }

  @Test func `a batch beyond the waiting bytes may retry soon, and a single batch may be of any size`() {
    let admission = Admission()
    for gateway in 0..<30 { #expect(admission.enter("g\(gateway)", bytes: 1 << 20) == nil) }
    #expect((1...4).contains(admission.enter("late", bytes: 3 << 20) ?? 0))
    #expect(Admission().enter("g", bytes: 64 << 20) == nil)
  }

  @Test func `a value that the database can never store is refused, and a temporary failure is retried`() {
    #expect(["22021", "22P05", "54000"].map(PostgresHubDatabase.kind) == [.unfit, .unfit, .unfit])
    #expect(["53100", "08006", "57P01", ""].map(PostgresHubDatabase.kind).allSatisfy { $0 == .unavailable })
    #expect(PostgresHubDatabase.kind(of: "40001") == .conflict && PostgresHubDatabase.kind(of: "42P01") == .other)
  }

  @Test func `the number of a batch is read although the batch is invalid`() {
    #expect(LinkSession.batch(of: Array(#"{"type":"events","n":12,"after":3,"events":[{"#.utf8)) == 12)
    #expect(LinkSession.batch(of: Array(#"{"type":"events","n":7,"lane":"nodes","after":3,"ev"#.utf8)) == 7)
    for other in [
      #"{"type":"events","n":"x","#, #"{"type":"hello","n":1,"#, "", #"{"type":"events","n":99999999999999999999,"#,
    ] {
      #expect(LinkSession.batch(of: Array(other.utf8)) == nil)
    }
  }

  @Test func `a document that no operator may set, and a text that is a number, are acknowledged and not served`()
    async throws
  {
    let store = try store()
    let documents: [(key: String, value: JSONValue)] = [
      (noteKey(1), .object([("a", .integer(1))])), (noteKey(2), .integer(12)), ("settings/evil", .bool(true)),
      (noteKey(3).replacing("/note", with: "/tags"), .array([.integer(1), .null])), (noteKey(4), .string("good")),
    ]
    let events = documents.enumerated().map { place, one -> (seq: Int64, kind: String, body: JSONValue) in
      (
        Int64(place + 1), "document",
        JSONValue.object([("key", .string(one.key)), ("value", one.value), ("updated_at", .integer(1))])
      )
    }
    let answer = try await store.take(batch(events), from: "g", at: 1)
    if case .acknowledged(let seq) = answer { #expect(seq == 5) } else { Issue.record("\(answer)") }
    #expect(try await store.documents(of: "g", after: "", limit: 100).found.map(\.key) == [noteKey(4)])
    let words = PreparedBatch(try batch(events), from: "g", after: nil, at: 1).refusedWords
    #expect(words?.contains("not allowed: 4, such as 1 (document)") == true, "\(words ?? "")")

    let channel = "0011223344556677"
    let number = JSONValue.object([
      ("kind", .string("channel")), ("channel", .string(channel)), ("text", .integer(12)),
    ])
    _ = try await store.take(batch(6, "message", number), from: "g", at: 1)
    let shown = String(decoding: try await store.joinedMessages(channel: nil, after: 0, limit: 10), as: UTF8.self)
    #expect(shown.contains(channel) && !shown.contains("\"text\""), "\(shown)")
  }

  @Test func `a notification about a command whose id has blanks is read`() {
    #expect(HubChange("g result/a b c 0") == HubChange(gateway: "g", bucket: "result/a b c", seq: 0))
    #expect(
      HubChange(" channel/0011223344556677 5") == HubChange(gateway: "", bucket: "channel/0011223344556677", seq: 5))
    #expect(HubChange("g 5") == nil && HubChange("") == nil && HubChange("g b x") == nil)
  }
}
