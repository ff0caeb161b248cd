// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// Of a gateway that reports more than its rate, others accept less.
@Suite struct ReporterRatesTests {
  private let scratch = Scratch(inMemory: true)

  private func store() async throws -> HubStore { try await Hearing.store(scratch) }

  private static let begun = ContinuousClock.now

  private func take(_ store: HubStore, _ reports: [PreparedBatch], _ passed: Duration = .zero) async throws {
    _ = try await store.take(reports, now: Self.begun + passed)
  }

  /// As many messages as others accept in a minute, of a gateway, with numbers after `seq`.
  private static func flood(_ gateway: String, behind seq: Int64 = 100, channel: String = Hearing.channel)
    -> PreparedBatch
  {
    var batch = Hearing.report(gateway)
    batch.events = (1...6).flatMap {
      Hearing.report(gateway, text: "\(gateway)'s \(seq + $0)", seq: seq + $0, channel: channel).events
    }
    return batch
  }

  /// The gateways whose reports of the message all gateways got, or the gateway `c` alone.
  private func reporterRates(_ store: HubStore, text: String = "hello", own: Bool = false) async throws -> [String] {
    let bucket = own ? HubStore.heardBucket : "channel/\(Hearing.channel)"
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
      store, [Self.flood("thief"), Hearing.report("thief"), Hearing.report("b"), Hearing.report("d")],
      together: together)
    for own in [false, true] {
      #expect(try await reporterRates(store, own: own) == ["thief", "b"], "once, and it is settled")
    }
    try await take(store, [Hearing.report("thief", seq: 2), Hearing.report("e")])
    #expect(try await reporterRates(store) == ["thief", "b"])
    // Reports of the thief within its rate are settled by them.
    for own in [false, true] { #expect(try await reporterRates(store, text: "thief's 106", own: own) == ["thief"]) }
    try await take(store, [Hearing.report("d", text: "thief's 106", seq: 9)])
    for own in [false, true] { #expect(try await reporterRates(store, text: "thief's 106", own: own) == ["thief"]) }
  }

  @Test(arguments: [false, true])
  func `of two gateways that report more than their rate, neither hides the messages of the other`(together: Bool)
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["thief", "other", "b"])])
    let reports = [
      Self.flood("thief"), Self.flood("other"), Hearing.report("thief"), Hearing.report("other"),
      Hearing.report("thief", seq: 2), Hearing.report("other", seq: 2),
    ]
    try await take(store, reports, together: together)
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["thief"]) }
    try await take(store, [Hearing.report("b")])
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["thief", "b"]) }
  }

  @Test func `a gateway does not repeat its reports beyond its rate when its minute is over`() async throws {
    let store = try await store()
    try await take(store, [Self.flood("thief"), Hearing.report("thief")])
    for minute in 1...3 {
      try await take(store, [Hearing.report("thief", seq: Int64(minute + 1))], .seconds(61 * minute))
    }
    #expect(try await reporterRates(store) == ["thief"])
    try await take(store, [Hearing.report("b")], .seconds(300))
    #expect(try await reporterRates(store) == ["thief", "b"])
  }

  @Test(arguments: [false, true])
  func `a better report of a gateway beyond its rate does not exclude reports of others`(together: Bool)
    async throws
  {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["a", "thief", "b"])])
    let reports = [
      Hearing.report("a", at: Hearing.now - 20 * Hearing.minute), Self.flood("thief"), Hearing.report("thief"),
      Hearing.report("b"),
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
      Self.flood("thief"), Hearing.report("thief"), Hearing.report("b", waited: [("waited", .bool(true))]),
      Hearing.report("d"),
      Hearing.report("e"),
    ]
    try await take(store, reports, together: together)
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == ["thief", "b", "d"]) }
  }

  @Test func `a rate's minute is measured by the steady clock, and setting the hub's clock changes nothing`()
    async throws
  {
    let store = try await store()
    let day = 1440 * Hearing.minute
    try await take(store, [Self.flood("thief")])
    try await take(store, [Hearing.report("thief", at: Hearing.now + day, came: Hearing.now + day)], .seconds(59))
    try await take(store, [Hearing.report("b", at: Hearing.now - day, came: Hearing.now - day)], .seconds(59))
    #expect(try await reporterRates(store) == ["thief", "b"])
    try await take(store, [Hearing.report("thief", text: "later", seq: 2)], .seconds(60))
    try await take(store, [Hearing.report("b", text: "later", seq: 2)], .seconds(60))
    #expect(try await reporterRates(store, text: "later") == ["thief"])
  }

  @Test func `a message that is open to other reporters stays open over a restart`() async throws {
    try await take(store(), [Self.flood("thief"), Hearing.report("thief")])
    let store = try await store()
    try await take(store, [Hearing.report("b")])
    #expect(try await reporterRates(store) == ["thief", "b"])
  }

  @Test func `a flood that pushes its own messages out of a gateway's list hides nothing`() async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "c", hearers: ["thief", "b"])])
    try await take(store, [Self.flood("thief"), Hearing.report("thief")])
    for hundred in 1...13 as ClosedRange<Int64> {
      try await take(
        store,
        (1...100).map { Hearing.report("thief", text: "\(hundred) \($0)", seq: hundred * 1000 + $0) })
    }
    #expect(try await reporterRates(store, own: true).isEmpty)
    try await take(store, [Hearing.report("b")])
    #expect(try await reporterRates(store, own: true) == ["b"])
  }

  @Test func `reports on another channel do not weaken a gateway's reports, and a flood there does`() async throws {
    let store = try await store()
    let other = "8899aabbccddeeff"
    try await take(store, [Self.flood("thief", channel: other), Hearing.report("thief")])
    try await take(store, [Self.flood("b", channel: other), Hearing.report("b")])
    #expect(try await reporterRates(store) == ["thief", "b"])
    // This report is also beyond the limit of its gateway, so a third one settles the message.
    try await take(store, [Hearing.report("d"), Hearing.report("e")])
    #expect(try await reporterRates(store) == ["thief", "b", "d"])
  }

  @Test func `a backlog that several gateways report is listed twice at most, then at the limited rate`()
    async throws
  {
    let store = try await store()
    for (minute, gateway) in ["a", "b", "d"].enumerated() {
      let reports = (1...300 as ClosedRange<Int64>).map { Hearing.report(gateway, text: "text \($0)", seq: $0) }
      try await take(store, reports, .seconds(61 * minute))
    }
    let counts = Dictionary(grouping: try await Hearing.listed(store).map(\.gateway)) { $0 }.mapValues(\.count)
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
    try await take(store, [Hearing.report("g", text: "before")])
    var refused = Hearing.report("g")
    refused.handlesConflicts = true
    #expect(try await store.take([refused]) == [.conflict(1)])
    var batch = Hearing.report(again)
    (batch.epoch, batch.before) = ("f", "e")
    try await take(store, [batch])
    for own in [false, true] { #expect(try await reporterRates(store, own: own) == [again]) }
  }
}
