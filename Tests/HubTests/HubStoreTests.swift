// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

@testable import Hub

@Suite struct HubStoreTests {
  private let scratch = Scratch(inMemory: true)
  private static let channel = "channel/0011223344556677"

  private static func clocks(_ uptime: Int64) -> HubStore.ClockReading {
    HubStore.ClockReading(boot: "one", uptime: uptime, wall: 1_795_000_000_000, isSynchronised: false)
  }

  private func store() throws -> HubStore { try HubStore(location: scratch.location("hub.db")) }

  private func batch(_ seq: Int64, _ kind: String, _ body: String, epoch: String = "e") throws -> EventBatch {
    let event = "{\"seq\":\(seq),\"at\":\(seq),\"trusted\":true,\"kind\":\"\(kind)\",\"body\":\(body)}"
    return try EventBatch(parsing: Array("{\"epoch\":\"\(epoch)\",\"events\":[\(event)]}".utf8))
  }

  private func message(_ text: String, snr: Double, time: Int = 100) -> String {
    """
    {"kind":"channel","channel":"0011223344556677","channel_name":"#trees","sender_name":"Birch","sender_time":\(time),\
    "text":"\(text)","snr":\(snr),"id":\(Int(snr))}
    """
  }

  private func page(_ bytes: [UInt8]) throws -> JSONValue { try JSONValue(parsing: bytes) }

  private func updates(
    _ store: HubStore, _ bucket: String, of gateway: String, after: Int64 = 0, at: Int64? = nil, since: Int64? = nil
  ) async throws -> JSONValue {
    try page(
      await store.updates(
        bucket, of: gateway, from: HubStore.Position(after: after, at: at, since: since), until: nil, limit: 100))
  }

  @Test(arguments: [
    (#""after":"16""#, "true"), (#""after":1.5"#, "true"), (#""after":-1"#, "true"), (#""after":[]"#, "true"),
    (#""before":5"#, "true"), (#""lane":7"#, "true"), (#""after":16"#, "1"), (#""after":16"#, #""true""#),
    (#""after":16"#, "null"),
  ]) func `a batch with a field of a wrong type is refused, not taken as one without it`(
    _ field: String, _ trusted: String
  ) throws {
    func parse(_ field: String, _ trusted: String) throws -> EventBatch {
      let event = #"{"seq":17,"at":1,"trusted":\#(trusted),"kind":"message","body":{}}"#
      return try EventBatch(parsing: Array(#"{"epoch":"e",\#(field),"events":[\#(event)]}"#.utf8))
    }
    #expect(throws: EventBatch.Refusal.self) { try parse(field, trusted) }
    #expect(try parse(#""after":16"#, "true").after == 16)
  }

  @Test func `the database of the hub is for its owner only, and one of an older version becomes so`() throws {
    let scratch = Scratch()
    let location = scratch.location("hub.db")
    func mode() throws -> Int {
      try #require(FileManager.default.attributesOfItem(atPath: location)[.posixPermissions] as? Int)
    }
    _ = try HubStore(location: location)
    #expect(try mode() == 0o600)
    chmod(location, 0o644)
    _ = try HubStore(location: location)
    #expect(try mode() == 0o640)
  }

  @Test func `a message that several gateways hear is stored once, with its hearers and their reception`() async throws
  {
    let store = try store()
    for (index, gateway) in ["hill", "valley", "hill"].enumerated() {
      _ = try await store.take(
        batch(Int64(index + 1), "message", message("hello", snr: Double(index) + 0.5)), from: gateway, at: 1000)
    }
    _ = try await store.take(batch(4, "message", message("hello", snr: 1, time: 101)), from: "hill", at: 1001)
    let messages = try page(await store.joinedMessages(channel: nil, after: 0, limit: 10))["messages"]?.array ?? []
    #expect(messages.count == 2, "the same text at another time is another message")
    let heard = messages.first?["heard"]?.array ?? []
    #expect(heard.compactMap { $0["gateway"]?.string } == ["hill", "valley"])
    #expect(heard.compactMap { $0["snr"]?.number } == [0.5, 1.5])
    #expect(messages.first?["body"]?["snr"] == nil && messages.first?["body"]?["text"]?.string == "hello")
    // Each gateway gets the messages that it has not heard.
    #expect(try await updates(store, Self.channel, of: "hill")["updates"]?.array?.isEmpty == true)
    #expect(try await updates(store, Self.channel, of: "valley")["updates"]?.array?.count == 1)
    // It gets nothing of a channel that it has not reported. Its question ends with that.
    let before = try await updates(store, Self.channel, of: "far")
    #expect(before["updates"]?.array?.isEmpty == true && before["last"]?.integer == 2 && before["more"]?.bool == false)
    let joined = ##"{"slot":1,"name":"#trees","channel":"0011223344556677"}"##
    _ = try await store.take(batch(1, "channel", joined), from: "far", at: 1002)
    #expect(try await updates(store, Self.channel, of: "far")["updates"]?.array?.count == 2)
  }

  @Test func `a report joins no other gateway's direct message, and says of a channel's message only what all have`()
    async throws
  {
    let store = try store()
    let direct = #"{"kind":"direct","sender":"aabbccddeeff","sender_name":"Bob","sender_time":77,"text":"yes"}"#
    let forged = #"{"kind":"x","channel":"hill/direct/aabbccddeeff","sender_name":"Bob","sender_time":77,"text":"yes"}"#
    let wrong = #"{"kind":"direct","sender":"000000000000","author":"deadbeef","channel":"0011223344556677","#
    let inChannel = wrong + #""sender_name":"Birch","sender_time":100,"text":"hello"}"#
    _ = try await store.take(batch(1, "message", forged), from: "thief", at: 1000)
    _ = try await store.take(batch(2, "message", inChannel), from: "thief", at: 1000)
    _ = try await store.take(batch(1, "message", direct), from: "hill", at: 1001)
    _ = try await store.take(batch(2, "message", message("hello", snr: 1)), from: "hill", at: 1001)
    let messages = try page(await store.joinedMessages(channel: nil, after: 0, limit: 10))["messages"]?.array ?? []
    let heard = messages.map { message in
      (message["heard"]?.array ?? []).compactMap { $0["gateway"]?.string }.sorted().joined(separator: " ")
    }
    #expect(heard.sorted() == ["hill", "hill thief", "thief"], "\(messages)")
    let shared = messages.first { $0["body"]?["text"]?.string == "hello" }?["body"]
    #expect(shared?["kind"]?.string == "channel")
    #expect(shared?["sender"] == nil && shared?["author"] == nil, "\(String(describing: shared))")
    let own = messages.first { $0["body"]?["sender"]?.string == "aabbccddeeff" }
    #expect(own?["body"]?["channel"] == nil && own?["heard"]?.array?.count == 1)
  }

  @Test func `a relayed message is not relayed again`() async throws {
    let store = try store()
    _ = try await store.take(batch(1, "message", message("⇄Birch@hill: hello", snr: 1)), from: "valley", at: 1000)
    // A name that begins with an accent forms one character with the mark before it.
    _ = try await store.take(
      batch(2, "message", message("⇄\u{301}Birch@hill: hello", snr: 1)), from: "valley", at: 1000)
    for (seq, text) in ["y: ⇄zoe@A: hi", " \u{200B}⇄zoe@A: hi", "bot repeats ⇄zoe@A: hi"].enumerated() {
      _ = try await store.take(batch(3 + Int64(seq), "message", message(text, snr: 1)), from: "valley", at: 1000)
    }
    _ = try await store.take(
      batch(1, "channel", #"{"slot":1,"channel":"0011223344556677"}"#), from: "far", at: 1001)
    #expect(try await updates(store, Self.channel, of: "far")["updates"]?.array?.isEmpty == true)
  }

  @Test func `a batch behind a gap is refused, and a repeated batch is acknowledged`() async throws {
    let store = try store()
    #expect(try await store.take(batch(5, "advert", "{}"), from: "g", after: 4, at: 1) == .outOfOrder(0))
    #expect(try await store.take(batch(5, "advert", "{}"), from: "g", after: 0, at: 1) == .acknowledged(5))
    #expect(try await store.take(batch(5, "advert", "{}"), from: "g", after: 0, at: 1) == .acknowledged(5))
    #expect(try await store.take(batch(9, "advert", "{}"), from: "g", after: 5, at: 1) == .acknowledged(9))
    #expect(try await store.gateways().first?.events == 2)
  }

  @Test func `a command is queued once, ends with the gateway's event, and leaves the bucket`() async throws {
    let store = try store()
    let body = try JSONValue(parsing: #"{"command":"send","to":"x","text":"y"}"#)
    for _ in 0..<2 {
      guard case .taken(let command) = try await store.enqueue(body, id: "c1", for: "g", by: "me", at: 10) else {
        Issue.record("full")
        return
      }
      #expect(command.state == .queued && command.author == "me")
    }
    #expect(try await updates(store, "commands", of: "g")["updates"]?.array?.count == 1)
    #expect(try await updates(store, "commands", of: "other")["updates"]?.array?.count == 0)
    _ = try await store.take(batch(1, "command", #"{"id":"c1","error":"no","code":"x"}"#), from: "g", at: 20)
    #expect(try await store.command("c1", of: "g")?.state == .refused)
    #expect(try await updates(store, "commands", of: "g")["updates"]?.array?.count == 0)
    _ = try await store.enqueue(body, id: "c3", for: "g", by: "me", at: 7000)
    for index in 0..<HubStore.maxWaiting {
      _ = try await store.enqueue(body, id: "n\(index)", for: "g", by: "me", at: 7000)
    }
    #expect(try await store.enqueue(body, id: "one more", for: "g", by: "me", at: 7000) == .full)
  }

  @Test func `a command waits for its whole lifetime, even if clocks are ahead or unset`()
    async throws
  {
    let store = try store()
    let now: Int64 = 1_795_000_000_000
    _ = try await store.take(batch(now, "boot", "{}"), from: "g", at: now)
    let brief = try JSONValue(parsing: #"{"command":"send","expires_s":5}"#)
    let times: [(at: Int64, uptime: Int64, isEnded: Bool)] = [
      (now + 4000, 4000, false), (now + 900_000_000, 4500, false), (now + 900_000_000, 7000, true),
    ]
    _ = try await store.enqueue(brief, id: "unset", for: "g", by: "me", at: 1000, clocks: Self.clocks(0))
    _ = try await store.enqueue(brief, id: "c", for: "g", by: "me", at: now, clocks: Self.clocks(0))
    for (number, time) in times.enumerated() {
      _ = try await store.enqueue(
        brief, id: "n\(number)", for: "g", by: "me", at: time.at, clocks: Self.clocks(time.uptime))
      #expect(try await store.command("c", of: "g")?.state == (time.isEnded ? .expired : .queued), "\(time)")
      #expect(try await store.command("unset", of: "g")?.state == (time.isEnded ? .expired : .queued))
    }
  }

  @Test func `a command has the time it spent in the queue, whatever the clock shows`() async throws {
    let store = try store()
    let command = try JSONValue(parsing: #"{"command":"send"}"#)
    // Another connection of the same hub, without an earlier query.
    _ = try await store.enqueue(command, id: "unset", for: "g", by: "me", at: 1000, clocks: Self.clocks(7_000_000))
    _ = try await store.enqueue(
      command, id: "c", for: "g", by: "me", at: 1_795_000_000_000, clocks: Self.clocks(7_001_000))
    let reader = HubStore(try SQLiteHubDatabase(reading: scratch.location("hub.db")))
    for uptime in [7_001_000, 7_005_000, 9_000_000] as [Int64] {
      let page = try await page(
        reader.updates(
          "commands", of: "g", from: HubStore.Position(after: 0), until: nil, limit: 9, clocks: Self.clocks(uptime)))
      let ages = page["updates"]?.array?.map { $0["age_ms"]?.integer }
      #expect(ages == [uptime - 7_000_000, uptime - 7_001_000])
    }
  }

  @Test func `a restored hub is recognised by the time of an update, and names the position to continue from`()
    async throws
  {
    var hub: HubStore? = try store()
    for index in 1...3 as ClosedRange<Int64> {
      _ = try await hub?.take(
        batch(index, "message", message("\(index)", snr: 1)), from: "g", at: index * 1000)
    }
    _ = try await hub?.take(batch(1, "channel", #"{"slot":1,"channel":"0011223344556677"}"#), from: "far", at: 1)
    hub = nil
    try FileManager.default.copyItem(atPath: scratch.location("hub.db"), toPath: scratch.location("backup"))
    hub = try store()
    for index in 4...5 as ClosedRange<Int64> {
      _ = try await hub?.take(batch(index, "message", message("\(index)", snr: 1)), from: "g", at: index * 1000)
    }
    let before = try await updates(#require(hub), Self.channel, of: "far")
    #expect(before["last"]?.integer == 5 && before["last_at"]?.integer == 5000)
    hub = nil
    for suffix in ["", "-wal", "-shm"] {
      try? FileManager.default.removeItem(atPath: scratch.location("hub.db" + suffix))
    }
    try FileManager.default.copyItem(atPath: scratch.location("backup"), toPath: scratch.location("hub.db"))
    let restored = try store()
    // The restored hub has fewer updates than the gateway knows.
    let fewer = try await updates(restored, Self.channel, of: "far", after: 5, at: 5000, since: 2500)
    #expect(fewer["diverged"]?.bool == true && fewer["resume"]?.integer == 2 && fewer["resume_at"]?.integer == 2000)
    // The same number of updates again, but different ones.
    for index in 6...8 as ClosedRange<Int64> {
      _ = try await restored.take(batch(index, "message", message("\(index)", snr: 1)), from: "g", at: index * 1000)
    }
    let others = try await updates(restored, Self.channel, of: "far", after: 5, at: 5000, since: 2500)
    #expect(others["diverged"]?.bool == true && others["resume"]?.integer == 2)
    let same = try await updates(restored, Self.channel, of: "far", after: 3, at: 3000)
    #expect(same["updates"]?.array?.compactMap { $0["body"]?["text"]?.string } == ["6", "7", "8"])
  }

  @Test(arguments: ["commands", "documents"])
  func `after a restoration a gateway gets all commands and documents in force, whenever they came`(
    _ bucket: String
  ) async throws {
    let store = try store()
    let body = try JSONValue(parsing: #"{"command":"send","to":"x","text":"y"}"#)
    for number in 1...3 {
      _ = try await store.enqueue(body, id: "c\(number)", for: "g", by: "t", at: 1000, clocks: Self.clocks(1000))
      _ = try await store.editDocument("node/\(number)/note", "\"n\"", of: "g", at: 1000)
    }
    // The gateway has got more from the hub before, and its newest update was later than all of these.
    let answer = try await updates(store, bucket, of: "g", after: 9, at: 1, since: .max)
    #expect(answer["diverged"]?.bool == true && answer["resume"]?.integer == 0 && answer["resume_at"] == nil)
    #expect(try await updates(store, bucket, of: "g")["updates"]?.array?.count == 3)
  }

  @Test func `ended commands stay within their limit, however often the hub starts`() async throws {
    let command = JSONValue.object([("command", .string("sync"))])
    for start in 0..<13 {
      let store = try store()
      for number in 0..<90 {
        let id = "\(start)-\(number)"
        try await store.record(command, answer: .object([]), id: id, for: "g", by: "t", at: Int64(start * 100 + number))
      }
    }
    #expect(try await store().number("SELECT count(*) FROM commands") <= 1000 + 90)
  }

  @Test func `a document says whether its gateway takes edits of the hub, if that tells its rights`() async throws {
    let store = try store()
    let keys = ["node/\(String(repeating: "ab", count: 32))/note", "settings/log_level"]
    func shown() async throws -> [JSONValue] {
      let allowed = try await store.allowed(by: "g")
      var all: [JSONValue] = []
      for key in keys {
        let edited = try #require(try await store.editDocument(key, "\"info\"", of: "g", at: 1))
        all.append(try JSONValue(parsing: JSONWriter.object(edited.shown(allowed: allowed))))
      }
      return all
    }
    func tells(_ state: String) async throws {
      _ = try await store.keep([GatewayState(gateway: "g", name: "gateway", at: 1, body: state)])
    }
    #expect(try await shown().allSatisfy { $0["permitted"] == nil && $0["permits"] == nil })
    try await tells(#"{"radio":"up"}"#)
    #expect(try await shown().allSatisfy { $0["permitted"] == nil && $0["permits"] == nil }, "an older gateway")
    try await tells(#"{"allow":["settings","<b>",7,"send"]}"#)
    let some = try await shown()
    #expect(some.map { $0["permitted"]?.bool } == [false, true])
    #expect(some.map { $0["permits"]?.string } == [#"allow = ["send", "documents", "settings"]"#, nil])
    try await tells(#"{"allow":[]}"#)
    #expect(try await shown().map { $0["permits"]?.string } == [#"allow = ["documents"]"#, #"allow = ["settings"]"#])
  }

  /// The time in seconds of the fastest of five batches of 100 documents.
  private func cost(_ store: HubStore, _ gateway: String, from seq: inout Int64, _ key: (Int64) -> Int64) async throws
    -> Double
  {
    var best = Double.infinity
    for _ in 0..<5 {
      let began = ContinuousClock.now
      try await edit(store, gateway, 100, from: &seq, key)
      best = min(best, (ContinuousClock.now - began) / .seconds(1))
    }
    return best
  }

  private func edit(
    _ store: HubStore, _ gateway: String, _ count: Int64, from seq: inout Int64, _ key: (Int64) -> Int64
  ) async throws {
    let events = (seq + 1...seq + count).map { seq in
      HubEvent(
        seq: seq, at: seq, trusted: true, kind: "document",
        body: .object([
          ("key", .string(noteKey(key(seq)))), ("value", .string(String(repeating: "v", count: 1000))),
          ("updated_at", .integer(seq)),
        ]))
    }
    seq += count
    _ = try await store.take([PreparedBatch(events, of: "e", in: .messages, from: gateway, after: nil, at: seq)])
  }

  @Test func `the cost of a batch of documents depends only on its size`() async throws {
    let store = try store()
    var (few, full, same) = (Int64(0), Int64(0), Int64(0))
    try await edit(store, "full", 10_000, from: &full) { $0 }
    try await edit(store, "same", 9000, from: &same) { _ in 0 }
    let least = try await cost(store, "few", from: &few) { $0 }
    let atBound = try await cost(store, "full", from: &full) { $0 }
    let again = try await cost(store, "same", from: &same) { _ in 0 }
    #expect(
      atBound < 5 * least && again < 5 * least, "\(least) s of a few, \(atBound) s at the bound, \(again) s of one")
  }
}

/// The hub's interface for one gateway and one reader.
extension HubStore {
  func events(gateway: String, kind: String?, after: Int64, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    try events(of: gateway, ListQuery(after: after, limit: limit, kind: kind))
  }

  func joinedMessages(channel: String?, after: Int64, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    try messages(ListQuery(after: after, limit: limit, channel: channel))
  }

  func take(
    _ batch: EventBatch, from gateway: String, after: Int64? = nil, at now: Int64
  ) throws(HubDatabaseError) -> IngestAnswer {
    try take([PreparedBatch(batch, from: gateway, after: after, at: now)]).first ?? .outOfOrder(0)
  }
}
