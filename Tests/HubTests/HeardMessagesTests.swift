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

  private func store() async throws -> HubStore { try await Hearing.store(scratch) }

  @Test func `a gateway that has not reported a channel is told so, and gets no messages of it`() async throws {
    let store = try await store()
    _ = try await store.take([Hearing.report("a")])
    func page(_ bucket: String, of gateway: String) async throws -> JSONValue {
      try JSONValue(
        parsing: await store.updates(bucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 10))
    }
    let (joined, other) = (
      try await page("channel/\(Hearing.channel)", of: "c"), try await page("channel/\(Hearing.channel)", of: "d")
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
    _ = try await store.take([Hearing.report("a", waited: [("waited", .bool(true))])])
    #expect(try await Hearing.listed(store).map(\.gateway) == ["a"])
    _ = try await store.take([Hearing.report("b", came: Hearing.now + 5)])
    let both = try await Hearing.listed(store)
    #expect(both.map(\.gateway) == ["a", "b"] && both.first?.id == both.last?.id)
    for number in 0..<300 { _ = try await store.take([Hearing.report("g\(number)", came: Hearing.now + 100)]) }
    #expect(try await Hearing.listed(store).count == 2, "further reports of others are not listed for everybody")
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
      try await Hearing.listed(store, in: "heard", of: gateway).map(\.gateway)
    }
    let reports = ["a", "b", "e", "b"].enumerated().map { number, gateway in
      Hearing.report(gateway, came: Hearing.now + Int64(number), seq: Int64(number + 1))
    }
    if together {
      _ = try await store.take(reports)
    } else {
      for report in reports { _ = try await store.take([report]) }
    }
    #expect(try await Hearing.listed(store).map(\.gateway) == ["a"])
    #expect(try await own() == ["b"])
    #expect(try await Hearing.listed(store).map(\.id) == Hearing.listed(store, in: "heard", of: "c").map(\.id))
    #expect(try await own("stranger").isEmpty, "it does not know the channel")
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: [])])
    _ = try await store.take([Hearing.report("a", text: "third", seq: 10), Hearing.report("b", text: "third", seq: 10)])
    #expect(try await own() == ["b"])
  }

  @Test(arguments: [false, true])
  func `a message that many of a gateway's selected reporters heard is listed once`(together: Bool) async throws {
    let store = try await store()
    let hearers = (1...64).map { "h\($0)" }
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: hearers)])
    for text in ["one", "two"] {
      let reports = (["a"] + hearers).map { Hearing.report($0, text: text, seq: text == "one" ? 1 : 2) }
      if together {
        _ = try await store.take(reports)
      } else {
        for report in reports { _ = try await store.take([report]) }
      }
    }
    #expect(try await Hearing.listed(store, in: "heard").map(\.gateway) == ["h1", "h1"])
  }

  @Test(arguments: [false, true])
  func `a younger report of a selected reporter is listed again`(
    together: Bool
  ) async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["b", "d", "e"])])
    // The message is known from `a`, which `c` has not named.
    _ = try await store.take([Hearing.report("a")])
    let reports = [
      Hearing.report("b", waited: [("waited", .bool(true))]), Hearing.report("d", at: Hearing.now - Hearing.minute),
      Hearing.report("e"),
    ]
    if together {
      _ = try await store.take(reports)
    } else {
      for report in reports { _ = try await store.take([report]) }
    }
    #expect(try await Hearing.listed(store, in: "heard").map(\.gateway) == (together ? ["d"] : ["b", "d"]))
  }

  @Test func `messages that left the list are listed again by another selected reporter only at the limited rate`()
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["b", "d"])])
    for gateway in ["b", "d"] {
      let batches = (1...1300 as ClosedRange<Int64>).map { Hearing.report(gateway, text: "text \($0)", seq: $0) }
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
    let batches = (1...1300 as ClosedRange<Int64>).map { Hearing.report("b", text: "text \($0)", seq: $0) }
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
    for (gateway, age) in ages { _ = try await store.take([Hearing.report(gateway, at: Hearing.now - age * 1000)]) }
    #expect(try await Hearing.listed(store).map(\.gateway) == ["a", "d", "f"])
  }

  @Test func `of several reports in one transaction, the best one is listed`() async throws {
    let store = try await store()
    _ = try await store.take([
      Hearing.report("a", waited: [("waited", .bool(true))]), Hearing.report("b"), Hearing.report("d"),
    ])
    #expect(try await Hearing.listed(store).map(\.gateway) == ["b"])
  }

  @Test func `no gateway's clock hides a message that another gateway heard from readers of the last hour`()
    async throws
  {
    let since = Hearing.now - 60 * Hearing.minute
    for trusted in [false, true] {
      for together in [false, true] {
        let store = try HubStore(location: scratch.location("hub-\(trusted)-\(together).db"))
        let batches = [
          Hearing.report("a", at: 1, trusted: trusted), Hearing.report("b", at: Hearing.now - 7, came: Hearing.now + 5),
        ]
        if together {
          _ = try await store.take(batches)
        } else {
          for batch in batches { _ = try await store.take([batch]) }
        }
        #expect(try await list(store, since: since) == [Hearing.now - 7])
        #expect(try await list(store, since: since, gateway: "b") == [Hearing.now - 7])
        #expect(try await list(store, since: since, gateway: "a").count == (trusted ? 0 : 1), "its own word")
      }
    }
  }

  @Test func `without a trusted clock a message has the time of its arrival, and never a later one`() async throws {
    let store = try await store()
    _ = try await store.take([Hearing.report("a", at: 1, trusted: false)])
    _ = try await store.take([Hearing.report("a", at: Hearing.now * 2, text: "from the year 2081", seq: 2)])
    #expect(try await list(store, since: nil) == [Hearing.now, Hearing.now])
    // Each period of an invented time would cost lists a look: there are few since 1970, and millions before.
    _ = try await store.take([Hearing.report("a", at: -Hearing.now, text: "from the year 1913", seq: 3)])
    #expect(try await list(store, since: nil) == [0, Hearing.now, Hearing.now])
    // A report of the next day does not make the message new.
    let day = 1440 * Hearing.minute
    _ = try await store.take([Hearing.report("b", at: Hearing.now + day, came: Hearing.now + day)])
    #expect(try await list(store, since: Hearing.now + 1).isEmpty)
  }

  @Test func `many messages of another time, or of another gateway, are not looked at for a list`() async throws {
    let store = try await store()
    _ = try await store.take([Hearing.report("b", text: "in time")])
    var batch = Hearing.report("a", at: 1)
    batch.events = (1...10_001).map { seq in
      Hearing.report("a", at: 1, text: "invented \(seq)", seq: Int64(seq)).events[0]
    }
    _ = try await store.take([batch])
    // One answer has all messages of a time, those that came late as well.
    let late = Hearing.report("b", at: Hearing.now - Hearing.minute, text: "late", seq: 2)
    _ = try await store.take([late])
    for order in [nil, 0] as [Int64?] {
      let hour = ListQuery(after: order, since: Hearing.now - 60 * Hearing.minute)
      for query in [hour, ListQuery(after: order, until: Hearing.now, gateway: "b")] {
        let page = try JSONValue(parsing: await store.messages(query))
        let texts = page["messages"]?.array?.compactMap { $0["body"]?["text"]?.string } ?? []
        #expect(texts == (order == nil ? ["late", "in time"] : ["in time", "late"]))
        #expect(page["next"] == nil)
      }
    }
    // In pages, each message comes once.
    var (seen, query) = (Set<Int64>(), ListQuery(limit: 1000, until: Hearing.now))
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
}
