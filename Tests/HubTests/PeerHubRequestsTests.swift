// SPDX-License-Identifier: MIT

import JSON
import NIOCore
import Synchronization
import Testing

@testable import Hub

/// Two hubs on one database: both get each notification.
@Suite struct PeerHubRequestsTests {
  private final class Pair: Sendable {
    let registries = (0..<2).map { _ in LinkRegistry(patience: .seconds(600)) }
    let hubs = Mutex<[PeerHubRequests]>([])
    let told = Mutex<[String]>([])

    init(patience: Duration = .seconds(600), others: Bool = true) {
      let made = registries.map { registry in
        PeerHubRequests(
          registry, patience: patience, hasOtherHubs: { others }, notify: { [weak self] in await self?.pass($0) })
      }
      hubs.withLock { $0 = made }
    }

    private func pass(_ news: [HubChange]) async {
      for item in news {
        let payload = item.payload
        told.withLock { $0.append(payload) }
        guard let read = HubChange(payload) else { continue }
        for hub in hubs.withLock({ $0 }) { Task { await hub.received(read) } }
      }
    }

    var one: PeerHubRequests { hubs.withLock { $0[0] } }
  }

  @Test
  func `two gateways that take one id's link from each other are reported, and a poor line is not`()
    async
  {
    let lines = Mutex<[String]>([])
    let registry = LinkRegistry { _, text in lines.withLock { $0.append(text) } }
    for _ in 0..<20 {
      let id = await registry.open("cut", { _ in true }, close: {})
      await registry.ended("cut", id)
      _ = await registry.open("half-open", { _ in true }, isSilent: { true }, close: {})
    }
    #expect(lines.withLock { $0 } == [])
    let toldWhy = Mutex(0)
    for _ in 0..<20 {
      _ = await registry.open(
        "g", { _ in true }, giveWay: { toldWhy.withLock { $0 += 1 } },
        close: { Issue.record("closed without a reason") })
    }
    #expect(toldWhy.withLock { $0 } == 19, "each but the last gives way to the next")
    let frame = LinkProtocol.replaced.data
    #expect(frame.readableBytes <= 125 && String(buffer: frame).contains("this gateway's id"))
    #expect(lines.withLock { $0.count == 1 && $0[0].contains("gateway g: two gateways with this id") })
    #expect(await registry.takeContested() == ["g"], "the alert gets these gateways")
    #expect(await registry.takeContested().isEmpty)
  }

  @Test func `at its end a registry ends the tasks that it began`() async {
    let registry = LinkRegistry()
    let began = Mutex(0)
    _ = await registry.open("g", { _ in true }, close: {})
    registry.tasks.begin {
      began.withLock { $0 += 1 }
      // `try?`: the end cancels it.
      try? await Task.sleep(for: .seconds(3600))
    }
    #expect(registry.tasks.count == 2, "one closes silent links")
    await registry.tasks.end()
    #expect(registry.tasks.count == 0)
    registry.tasks.begin { began.withLock { $0 += 1 } }
    #expect(registry.tasks.count == 0, "none begins after the end")
    #expect(began.withLock { $0 } == 1)
  }

  @Test func `two gateways that send with one id over HTTP are reported, and new epochs of one are not`() async {
    let lines = Mutex<[String]>([])
    let registry = LinkRegistry { _, text in lines.withLock { $0.append(text) } }
    let begin = ContinuousClock.now
    for number in 0..<40 {
      await registry.noteEpoch("new", epoch: "e\(number / 2)", now: begin)
      // A card that is restored every other day.
      await registry.noteEpoch(
        "seldom", epoch: number.isMultiple(of: 2) ? "e" : "f", now: begin + .seconds(90_000 * number))
    }
    for epoch in ["e", "f", "e", "f", "e", "f"] { await registry.noteEpoch("g", epoch: epoch, now: begin) }
    #expect(lines.withLock { $0 } == [])
    for epoch in ["f", "e", "e", "f"] { await registry.noteEpoch("g", epoch: epoch, now: begin) }
    #expect(lines.withLock { $0.count == 1 && $0[0].contains("gateway g: two gateways with this id send in turn") })
    #expect(await registry.takeContested() == ["g"])
  }

  @Test func `the memory for epochs over HTTP is bounded, and the conflict of two gateways is still found`() async {
    let lines = Mutex<[String]>([])
    let registry = LinkRegistry { _, text in lines.withLock { $0.append(text) } }
    for epoch in ["e", "f", "e", "f", "e", "f"] { await registry.noteEpoch("g", epoch: epoch) }
    for number in 0..<30_000 { await registry.noteEpoch("g\(number)", epoch: "e") }
    #expect(await registry.epochsKept <= 10_000)
    #expect(lines.withLock { $0 } == [])
    await registry.noteEpoch("g", epoch: "e")
    #expect(lines.withLock { $0.count } == 1)
    // All gateways have had another epoch lately.
    for number in 0..<30_000 { for epoch in ["e", "f"] { await registry.noteEpoch("h\(number)", epoch: epoch) } }
    #expect(await registry.epochsKept <= 10_000)
  }

  @Test func `an upstream gets the link of another upstream of its gateway only if that link is dead`() async throws {
    let long = ContinuousClock.now - .seconds(60)
    let heard = Mutex(long)
    let pings = Mutex(0)
    let answers = Mutex(true)
    func origin(_ upstream: String, _ epoch: String = "e") -> LinkProtocol.Origin? {
      LinkProtocol.Origin("\(epoch)/\(upstream)")
    }
    let registry = LinkRegistry(answerLimit: .seconds(1))
    let holder = LinkRegistry.Holder(
      origin: try #require(origin("hub")), heard: { heard.withLock { $0 } },
      ping: {
        pings.withLock { $0 += 1 }
        if answers.withLock({ $0 }) { heard.withLock { $0 = ContinuousClock.now + .milliseconds(1) } }
      })
    _ = await registry.open("g", { _ in true }, holder: holder, close: {})
    #expect(await registry.holder("g", against: origin("second")) == "hub", "it answers")
    // Independent of the test's duration.
    heard.withLock { $0 = .now + .seconds(3600) }
    #expect(await registry.holder("g", against: origin("second")) == "hub", "it was heard just now")
    #expect(pings.withLock { $0 } == 1)
    heard.withLock { $0 = long }
    answers.withLock { $0 = false }
    #expect(await registry.holder("g", against: origin("second")) == nil, "it is dead")
    #expect(pings.withLock { $0 } == 2)
    // These get the link at once: the same upstream again, another database, a gateway without the header, and one without a link.
    for asking in [origin("hub"), origin("second", "f"), nil] {
      #expect(await registry.holder("g", against: asking) == nil)
    }
    #expect(await registry.holder("h", against: origin("second")) == nil)
    #expect(pings.withLock { $0 } == 2)
  }

  /// A gateway that repeats each request as its answer, `times` over.
  private func link(_ registry: LinkRegistry, times: Int = 1) async {
    _ = await registry.open("g") { bytes in
      let request = (try? JSONValue(parsing: bytes)) ?? .null  // invalid JSON is no request
      let text = request["params"]?["text"]?.string ?? ""
      let answer = JSONValue.object([("ok", .bool(true)), ("text", .string(String(repeating: text, count: times)))])
      Task { await registry.answered("g", id: request["id"]?.string ?? "", answer) }
      return true
    } close: {
    }
  }

  private static func command(_ text: String) -> JSONValue {
    .object([("command", .string("status")), ("text", .string(text))])
  }

  @Test(arguments: [0, 1, 5300, 30_000])
  func `a request reaches the hub that has the link, and an answer of any length returns`(_ length: Int)
    async throws
  {
    let pair = Pair()
    await link(pair.registries[1], times: 3)
    let text = String(repeating: "ä/ ", count: length / 3)
    let answer = try await pair.one.request("g", id: "caf\u{E9} / x", command: Self.command(text))
    #expect(answer["text"]?.string == String(repeating: text, count: 3))
    #expect(pair.told.withLock { $0.allSatisfy { $0.utf8.count < 8000 } })
  }

  @Test func `many simultaneous requests do not disturb each other`() async throws {
    let pair = Pair()
    await link(pair.registries[1])
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<100 {
        group.addTask {
          let text = String(repeating: "\(number) ", count: 4000)
          let answer = try await pair.one.request("g", id: "c\(number)", command: Self.command(text))
          #expect(answer["text"]?.string == text)
        }
      }
      try await group.waitForAll()
    }
  }

  @Test(arguments: [true, false]) func `a request to a gateway without a link fails as away`(_ others: Bool)
    async throws
  {
    let pair = Pair(patience: .milliseconds(50), others: others)
    await #expect(throws: LinkRegistry.Failure.away) {
      try await pair.one.request("g", id: "c", command: Self.command("x"))
    }
    // Without another hub nothing is asked.
    #expect(pair.told.withLock { $0.isEmpty } == !others)
  }

  @Test(arguments: [
    "live/", "live/ask", "live/ask/1/0/1/%%%", "live/ask/1/9/1/", "live/ask/1/0/99999999999999999999/",
    "live/ask/1/-1/2/",
    "live/ask/1/0/1/bm9uc2Vuc2U=", "live/answer/1/0/1/", "live/taken/1/0/1/", "live/other/1/0/1/",
    "live/ask/1/0/64/QUFB",
  ])
  func `an invalid notification changes nothing`(_ bucket: String) async throws {
    let pair = Pair()
    await link(pair.registries[1])
    for hub in pair.hubs.withLock({ $0 }) { await hub.received(HubChange(gateway: "g", bucket: bucket, seq: 0)) }
    let answer = try await pair.one.request("g", id: "c", command: Self.command("still there"))
    #expect(answer["text"]?.string == "still there")
  }
}
