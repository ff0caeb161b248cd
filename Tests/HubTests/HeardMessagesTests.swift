// SPDX-License-Identifier: MIT

import HTTP
import JSON
import TestSupport
import Testing

@testable import Hub
@testable import Relay

/// The report of one gateway does not decide for all gateways.
@Suite struct HeardMessagesTests {
  private let scratch = Scratch(inMemory: true)
  private static let channel = "0011223344556677"
  private static let now: Int64 = 1_795_000_000_000
  private static let minute: Int64 = 60_000

  /// A message as one gateway reports it: the first event of its journal.
  private static func report(
    _ gateway: String, at: Int64 = now, trusted: Bool = true, waited: [(String, JSONValue)] = [], came: Int64 = now,
    text: String = "hello", seq: Int64 = 1, channel: String = channel
  ) -> PreparedBatch {
    let body: [(String, JSONValue)] = [
      ("kind", .string("channel")), ("channel", .string(channel)), ("sender_name", .string("Birch")),
      ("sender_time", .integer(100)), ("text", .string(text)),
    ]
    let event = HubEvent(seq: seq, at: at, trusted: trusted, kind: "message", body: .object(body + waited))
    return PreparedBatch([event], of: "e", in: .messages, from: gateway, after: nil, at: came)
  }

  private func store() async throws -> HubStore {
    let store = try HubStore(location: scratch.location("hub.db"))
    let body = JSONValue.object([("channel", .string(Self.channel)), ("name", .string("#trees"))])
    let event = HubEvent(seq: 1, at: Self.now, trusted: true, kind: "channel", body: body)
    _ = try await store.take([PreparedBatch([event], of: "e", in: .messages, from: "c", after: nil, at: Self.now)])
    return store
  }

  /// The gateways and ids of the reports that the gateway `c` gets.
  private func listed(
    _ store: HubStore, in bucket: String = "channel/\(Self.channel)", of gateway: String = "c"
  ) async throws -> [(gateway: String, id: String)] {
    let page = try await store.updates(
      bucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 2000)
    return (try JSONValue(parsing: page)["updates"]?.array ?? []).map {
      ($0["body"]?["gateway"]?.string ?? "", $0["id"]?.string ?? "")
    }
  }

  @Test func `a gateway that has not reported a channel is told so, and gets no messages of it`() async throws {
    let store = try await store()
    _ = try await store.take([Self.report("a")])
    func page(_ bucket: String, of gateway: String) async throws -> JSONValue {
      try JSONValue(
        parsing: await store.updates(bucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 10))
    }
    let (joined, other) = (
      try await page("channel/\(Self.channel)", of: "c"), try await page("channel/\(Self.channel)", of: "d")
    )
    #expect(joined["joined"] == nil && joined["updates"]?.array?.count == 1)
    #expect(other["joined"]?.bool == false && other["updates"]?.array?.isEmpty == true)
    #expect(try await page("commands", of: "d")["joined"] == nil)
  }

  private func list(_ store: HubStore, since: Int64?, gateway: String? = nil) async throws -> [Int64] {
    let query = ListQuery(limit: 10, since: since, gateway: gateway)
    let page = try JSONValue(parsing: await store.messages(query))
    return page["messages"]?.array?.map { $0["at"]?.integer ?? 0 } ?? []
  }

  @Test func `a report of a message that waited in a radio does not exclude a direct report`() async throws {
    let store = try await store()
    _ = try await store.take([Self.report("a", waited: [("waited", .bool(true))])])
    #expect(try await listed(store).map(\.gateway) == ["a"])
    _ = try await store.take([Self.report("b", came: Self.now + 5)])
    let both = try await listed(store)
    #expect(both.map(\.gateway) == ["a", "b"] && both.first?.id == both.last?.id)
    for number in 0..<300 { _ = try await store.take([Self.report("g\(number)", came: Self.now + 100)]) }
    #expect(try await listed(store).count == 2, "further reports of others are not listed for everybody")
  }

  @Test(arguments: [false, true])
  func
    `who takes only messages that one gateway heard is told when that one heard it, and the others pay nothing for it`(
      together: Bool
    ) async throws
  {
    let store = try await store()
    let wanted = ["c", "stranger"].map { HubStore.WantedHearers(gateway: $0, hearers: ["b", "d"]) }
    try await store.setWantedHearers(wanted)
    #expect(try await store.states(of: [HubStore.BucketQuery([], of: "c")]).map(\.hearers) == [["b", "d"]])
    func own(_ gateway: String = "c") async throws -> [String] {
      try await listed(store, in: "heard", of: gateway).map(\.gateway)
    }
    let reports = ["a", "b", "e", "b"].enumerated().map { number, gateway in
      Self.report(gateway, came: Self.now + Int64(number), seq: Int64(number + 1))
    }
    if together {
      _ = try await store.take(reports)
    } else {
      for report in reports { _ = try await store.take([report]) }
    }
    #expect(try await listed(store).map(\.gateway) == ["a"])
    #expect(try await own() == ["b"])
    #expect(try await listed(store).map(\.id) == listed(store, in: "heard", of: "c").map(\.id))
    #expect(try await own("stranger").isEmpty, "it does not know the channel")
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: [])])
    _ = try await store.take([Self.report("a", text: "third", seq: 10), Self.report("b", text: "third", seq: 10)])
    #expect(try await own() == ["b"])
  }

  @Test(arguments: [false, true])
  func `a message that many of a gateway's selected reporters heard is listed once`(together: Bool) async throws {
    let store = try await store()
    let hearers = (1...64).map { "h\($0)" }
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: hearers)])
    for text in ["one", "two"] {
      let reports = (["a"] + hearers).map { Self.report($0, text: text, seq: text == "one" ? 1 : 2) }
      if together {
        _ = try await store.take(reports)
      } else {
        for report in reports { _ = try await store.take([report]) }
      }
    }
    #expect(try await listed(store, in: "heard").map(\.gateway) == ["h1", "h1"])
  }

  @Test(arguments: [false, true])
  func `a younger report of a selected reporter is listed again`(
    together: Bool
  ) async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["b", "d", "e"])])
    // The message is known from `a`, which `c` has not named.
    _ = try await store.take([Self.report("a")])
    let reports = [
      Self.report("b", waited: [("waited", .bool(true))]), Self.report("d", at: Self.now - Self.minute),
      Self.report("e"),
    ]
    if together {
      _ = try await store.take(reports)
    } else {
      for report in reports { _ = try await store.take([report]) }
    }
    #expect(try await listed(store, in: "heard").map(\.gateway) == (together ? ["d"] : ["b", "d"]))
  }

  @Test func `messages that left the list are listed again by another selected reporter only at the limited rate`()
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["b", "d"])])
    for gateway in ["b", "d"] {
      let batches = (1...1300 as ClosedRange<Int64>).map { Self.report(gateway, text: "text \($0)", seq: $0) }
      for first in stride(from: 0, to: batches.count, by: 100) {
        _ = try await store.take(Array(batches[first..<first + 100]))
      }
    }
    let states = try await store.states(of: [HubStore.BucketQuery(["heard"], of: "c")])
    #expect(states.first?.states.first?.seq == 1306)
  }

  @Test func `the list of messages heard by others is bounded for each gateway`() async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["b"])])
    let batches = (1...1300 as ClosedRange<Int64>).map { Self.report("b", text: "text \($0)", seq: $0) }
    for first in stride(from: 0, to: batches.count, by: 100) {
      _ = try await store.take(Array(batches[first..<first + 100]))
    }
    let page = try JSONValue(
      parsing: await store.updates("heard", of: "c", from: HubStore.Position(after: 0), until: nil, limit: 10))
    #expect(page["first"]?.integer == 301 && page["updates"]?.array?.first?["seq"]?.integer == 301, "\(page)")
  }

  /// Sends the questions of a link of the gateway `g`; returns the gateways whose messages it then accepts.
  private func hearers(_ rig: LinkRig, after parameters: String) async throws -> Set<String> {
    let question =
      #"{"type":"request","id":"1","method":"getUpdatesState","params":{"buckets":["heard"]\#(parameters)}}"#
    #expect(try await rig.say(question)["ok"]?.bool == true)
    return try await rig.store.states(of: [HubStore.BucketQuery([], of: "g")])[0].hearers
  }

  @Test func `a request without a selection of reporters keeps the earlier selection`()
    async throws
  {
    let rig = try LinkRig()
    _ = try await rig.hello(version: 2)
    #expect(try await hearers(rig, after: #","gateways":["b","d"]"#) == ["b", "d"])
    #expect(try await hearers(rig, after: "") == ["b", "d"])
    #expect(try await hearers(rig, after: #","gateways":null"#) == ["b", "d"])
    #expect(try await hearers(rig, after: #","gateways":[]"#) == [])
  }

  @Test
  func `a gateway's selection of reporters is written sixteen times in a row, then once in five minutes`()
    async throws
  {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let begin = ContinuousClock.now
    func change(_ number: Int, of gateway: String = "c", after passed: Duration = .zero) async throws -> Set<String> {
      let states = try await stores.bucketStates(
        of: ["heard"], for: gateway, hearers: ["x\(number)"], now: begin + passed)
      #expect(states.count == 1, "it is answered all the same")
      return try await stores.writer.states(of: [HubStore.BucketQuery([], of: gateway)])[0].hearers
    }
    for number in 1...16 { #expect(try await change(number) == ["x\(number)"]) }
    for number in 16...18 { #expect(try await change(number) == ["x16"]) }
    #expect(try await change(1, of: "other") == ["x1"])
    #expect(try await change(19, after: .seconds(301)) == ["x19"])
    #expect(try await change(20, after: .seconds(302)) == ["x19"])
  }

  @Test func `a gateway that accepts all reporters says so, because hubs keep the last selection`() {
    let none = UpdatesQuestion.state(["commands"], gateways: [])
    #expect(none.query == "buckets=commands&gateways=")
    #expect(String(decoding: JSONWriter.object { none.write(to: &$0) }, as: UTF8.self).contains(#""gateways":[]"#))
    let some = UpdatesQuestion.state(["commands"], gateways: ["b", "d/e"])
    #expect(some.query == "buckets=commands&gateways=b,d%2Fe")
    #expect(PercentCoding.query(some.query)["gateways"] == "b,d/e")
  }

  @Test func `a report with a much younger age is listed in addition`() async throws {
    let store = try await store()
    let ages: [(String, Int64)] = [("a", 3000), ("b", 2970), ("d", 1200), ("e", 1199), ("f", 0), ("g", -500)]
    for (gateway, age) in ages { _ = try await store.take([Self.report(gateway, at: Self.now - age * 1000)]) }
    #expect(try await listed(store).map(\.gateway) == ["a", "d", "f"])
  }

  @Test func `of several reports in one transaction, the best one is listed`() async throws {
    let store = try await store()
    _ = try await store.take([
      Self.report("a", waited: [("waited", .bool(true))]), Self.report("b"), Self.report("d"),
    ])
    #expect(try await listed(store).map(\.gateway) == ["b"])
  }

  @Test func `no gateway's clock hides a message that another gateway heard from readers of the last hour`()
    async throws
  {
    let since = Self.now - 60 * Self.minute
    for trusted in [false, true] {
      for together in [false, true] {
        let store = try HubStore(location: scratch.location("hub-\(trusted)-\(together).db"))
        let batches = [
          Self.report("a", at: 1, trusted: trusted), Self.report("b", at: Self.now - 7, came: Self.now + 5),
        ]
        if together {
          _ = try await store.take(batches)
        } else {
          for batch in batches { _ = try await store.take([batch]) }
        }
        #expect(try await list(store, since: since) == [Self.now - 7])
        #expect(try await list(store, since: since, gateway: "b") == [Self.now - 7])
        #expect(try await list(store, since: since, gateway: "a").count == (trusted ? 0 : 1), "its own word")
      }
    }
  }

  @Test func `without a trusted clock a message has the time of its arrival, and never a later one`() async throws {
    let store = try await store()
    _ = try await store.take([Self.report("a", at: 1, trusted: false)])
    _ = try await store.take([Self.report("a", at: Self.now * 2, text: "from the year 2081", seq: 2)])
    #expect(try await list(store, since: nil) == [Self.now, Self.now])
    // Each period of an invented time would cost lists a look: there are few since 1970, and millions before.
    _ = try await store.take([Self.report("a", at: -Self.now, text: "from the year 1913", seq: 3)])
    #expect(try await list(store, since: nil) == [0, Self.now, Self.now])
    // A report of the next day does not make the message new.
    let day = 1440 * Self.minute
    _ = try await store.take([Self.report("b", at: Self.now + day, came: Self.now + day)])
    #expect(try await list(store, since: Self.now + 1).isEmpty)
  }

  @Test func `many messages of another time, or of another gateway, are not looked at for a list`() async throws {
    let store = try await store()
    _ = try await store.take([Self.report("b", text: "in time")])
    var batch = Self.report("a", at: 1)
    batch.events = (1...10_001).map { seq in
      Self.report("a", at: 1, text: "invented \(seq)", seq: Int64(seq)).events[0]
    }
    _ = try await store.take([batch])
    // One answer has all messages of a time, those that came late as well.
    let late = Self.report("b", at: Self.now - Self.minute, text: "late", seq: 2)
    _ = try await store.take([late])
    for order in [nil, 0] as [Int64?] {
      let hour = ListQuery(after: order, since: Self.now - 60 * Self.minute)
      for query in [hour, ListQuery(after: order, until: Self.now, gateway: "b")] {
        let page = try JSONValue(parsing: await store.messages(query))
        let texts = page["messages"]?.array?.compactMap { $0["body"]?["text"]?.string } ?? []
        #expect(texts == (order == nil ? ["late", "in time"] : ["in time", "late"]))
        #expect(page["next"] == nil)
      }
    }
    // In pages, each message comes once.
    var (seen, query) = (Set<Int64>(), ListQuery(limit: 1000, until: Self.now))
    for _ in 0..<20 {
      let page = try JSONValue(parsing: await store.messages(query))
      let positions = page["messages"]?.array?.compactMap { $0["position"]?.integer } ?? []
      #expect(seen.isDisjoint(with: positions))
      seen.formUnion(positions)
      guard let next = page["next"]?.integer else { break }
      query.before = next
    }
    #expect(seen.count == 10_003)
  }

  // MARK: Beyond the limit of one gateway

  private static let begun = ContinuousClock.now

  private func take(_ store: HubStore, _ reports: [PreparedBatch], _ passed: Duration = .zero) async throws {
    _ = try await store.take(reports, now: Self.begun + passed)
  }

  /// As many messages as others accept in a minute, of a gateway, with numbers after `seq`.
  private static func flood(_ gateway: String, behind seq: Int64 = 100, channel: String = channel) -> PreparedBatch {
    var batch = report(gateway)
    batch.events = (1...6).flatMap {
      report(gateway, text: "\(gateway)'s \(seq + $0)", seq: seq + $0, channel: channel).events
    }
    return batch
  }

  /// The gateways whose reports of the message all gateways got, or the gateway `c` alone.
  private func reporterRates(_ store: HubStore, text: String = "hello", own: Bool = false) async throws -> [String] {
    let bucket = own ? HubStore.heardBucket : "channel/\(Self.channel)"
    var (found, after) = ([String](), Int64(0))
    while true {
      let page = try await store.updates(
        bucket, of: "c", from: HubStore.Position(after: after), until: nil, limit: 1000)
      let updates = try JSONValue(parsing: page)["updates"]?.array ?? []
      found += updates.compactMap { $0["body"]?["text"]?.string == text ? $0["body"]?["gateway"]?.string : nil }
      guard let last = updates.last?["seq"]?.integer else { return found }
      after = last
    }
  }

  /// Stores the reports one after the other, or all in one transaction.
  private func take(_ store: HubStore, _ reports: [PreparedBatch], together: Bool) async throws {
    if together { return try await take(store, reports) }
    for report in reports { try await take(store, [report]) }
  }

  @Test(arguments: [false, true])
  func `a gateway that reports more than its rate does not hide the reports of an honest gateway`(
    together: Bool
  ) async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["thief", "b", "d"])])
    try await take(
      store, [Self.flood("thief"), Self.report("thief"), Self.report("b"), Self.report("d")], together: together)
    for own in [false, true] {
      #expect(try await reporterRates(store, own: own) == ["thief", "b"], "once, and it is settled")
    }
    try await take(store, [Self.report("thief", seq: 2), Self.report("e")])
    #expect(try await reporterRates(store) == ["thief", "b"])
    // Reports of the thief within its rate are settled by them.
    for own in [false, true] { #expect(try await reporterRates(store, text: "thief's 106", own: own) == ["thief"]) }
    try await take(store, [Self.report("d", text: "thief's 106", seq: 9)])
    for own in [false, true] { #expect(try await reporterRates(store, text: "thief's 106", own: own) == ["thief"]) }
  }

  @Test(arguments: [false, true])
  func `of two gateways that report more than their rate, neither hides the messages of the other`(together: Bool)
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["thief", "other", "b"])])
    let reports = [
      Self.flood("thief"), Self.flood("other"), Self.report("thief"), Self.report("other"),
      Self.report("thief", seq: 2), Self.report("other", seq: 2),
    ]
    try await take(store, reports, together: together)
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["thief"]) }
    try await take(store, [Self.report("b")])
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["thief", "b"]) }
  }

  @Test func `a gateway does not repeat its reports beyond its rate when its minute is over`() async throws {
    let store = try await store()
    try await take(store, [Self.flood("thief"), Self.report("thief")])
    for minute in 1...3 { try await take(store, [Self.report("thief", seq: Int64(minute + 1))], .seconds(61 * minute)) }
    #expect(try await reporterRates(store) == ["thief"])
    try await take(store, [Self.report("b")], .seconds(300))
    #expect(try await reporterRates(store) == ["thief", "b"])
  }

  @Test(arguments: [false, true])
  func `a better report of a gateway beyond its rate does not exclude reports of others`(together: Bool)
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["a", "thief", "b"])])
    let reports = [
      Self.report("a", at: Self.now - 20 * Self.minute), Self.flood("thief"), Self.report("thief"), Self.report("b"),
    ]
    try await take(store, reports, together: together)
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["a", "thief", "b"]) }
  }

  @Test(arguments: [false, true])
  func `a report without a known time of reception does not exclude reports with one`(together: Bool)
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["thief", "b", "d", "e"])])
    let reports = [
      Self.flood("thief"), Self.report("thief"), Self.report("b", waited: [("waited", .bool(true))]), Self.report("d"),
      Self.report("e"),
    ]
    try await take(store, reports, together: together)
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["thief", "b", "d"]) }
  }

  @Test func `a rate's minute is measured by the steady clock, and setting the hub's clock changes nothing`()
    async throws
  {
    let store = try await store()
    let day = 1440 * Self.minute
    try await take(store, [Self.flood("thief")])
    try await take(store, [Self.report("thief", at: Self.now + day, came: Self.now + day)], .seconds(59))
    try await take(store, [Self.report("b", at: Self.now - day, came: Self.now - day)], .seconds(59))
    #expect(try await reporterRates(store) == ["thief", "b"])
    try await take(store, [Self.report("thief", text: "later", seq: 2)], .seconds(60))
    try await take(store, [Self.report("b", text: "later", seq: 2)], .seconds(60))
    #expect(try await reporterRates(store, text: "later") == ["thief"])
  }

  @Test func `a message that is open to other reporters stays open over a restart`() async throws {
    try await take(store(), [Self.flood("thief"), Self.report("thief")])
    let store = try await store()
    try await take(store, [Self.report("b")])
    #expect(try await reporterRates(store) == ["thief", "b"])
  }

  @Test func `a flood that pushes its own messages out of a gateway's list hides nothing`() async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["thief", "b"])])
    try await take(store, [Self.flood("thief"), Self.report("thief")])
    for hundred in 1...13 as ClosedRange<Int64> {
      try await take(
        store,
        (1...100).map { Self.report("thief", text: "\(hundred) \($0)", seq: hundred * 1000 + $0) })
    }
    #expect(try await reporterRates(store, own: true).isEmpty)
    try await take(store, [Self.report("b")])
    #expect(try await reporterRates(store, own: true) == ["b"])
  }

  @Test func `reports on another channel do not weaken a gateway's reports, and a flood there does`() async throws {
    let store = try await store()
    let other = "8899aabbccddeeff"
    try await take(store, [Self.flood("thief", channel: other), Self.report("thief")])
    try await take(store, [Self.flood("b", channel: other), Self.report("b")])
    #expect(try await reporterRates(store) == ["thief", "b"])
    // This report is also beyond the limit of its gateway, so a third one settles the message.
    try await take(store, [Self.report("d"), Self.report("e")])
    #expect(try await reporterRates(store) == ["thief", "b", "d"])
  }

  @Test func `a backlog that several gateways report is listed twice at most, then at the limited rate`()
    async throws
  {
    let store = try await store()
    for (minute, gateway) in ["a", "b", "d"].enumerated() {
      let reports = (1...300 as ClosedRange<Int64>).map { Self.report(gateway, text: "text \($0)", seq: $0) }
      try await take(store, reports, .seconds(61 * minute))
    }
    let counts = Dictionary(grouping: try await listed(store).map(\.gateway)) { $0 }.mapValues(\.count)
    #expect(counts == ["a": 300, "b": 6, "d": 6])
    for number in 7...18 { #expect(try await reporterRates(store, text: "text \(number)").count == 2) }
  }

  @Test func `the counts of reports are bounded, and the newest are kept`() {
    var rates = ReporterRates()
    rates.begin(now: Self.begun)
    for number in 0..<20_000 {
      rates.begin(now: Self.begun + .milliseconds(number))
      _ = rates.add("", "g\(number)", channel: "x")
      for _ in 1...6 { _ = rates.add("", "thief", channel: "x") }
      rates.commit()
    }
    #expect(rates.isFull("", "thief", channel: "x"))
    #expect(rates.count <= 16_386)
  }

  // MARK: Refused reports

  @Test(arguments: ["b", "g"])
  func `a message whose number belongs to another event is listed when it arrives with its own number`(again: String)
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["g", "b"])])
    try await take(store, [Self.report("g", text: "before")])
    var refused = Self.report("g")
    refused.handlesConflicts = true
    #expect(try await store.take([refused]) == [.conflict(1)])
    var batch = Self.report(again)
    (batch.epoch, batch.before) = ("f", "e")
    try await take(store, [batch])
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == [again]) }
  }
}
