// SPDX-License-Identifier: MIT

import Companion
import Delivery
import JSON
import Store
import TestSupport
import Testing

@testable import EventLoop
@testable import Messaging
@testable import VirtualRadio

@Suite struct NodeRequestsTests {
  private final class Fixture {
    let bench: Bench
    let requests: NodeRequests
    let node: Contact
    var endings: [String: Int] = [:]

    init() throws {
      var settings = Messenger.Settings()
      settings.delivery.budget.airtime = 1 << 40
      settings.delivery.budget.messages = 100_000
      settings.delivery.busyPercent = 100
      bench = try Bench(settings)
      requests = NodeRequests(bench.messenger)
      node = try #require(try bench.store.contact(prefix: bench.other.key.prefix)).contact
      bench.requests = requests
    }

    var ended: Int { endings.values.reduce(0, +) }
    /// Questions that a lost link has ended, whether the radio had got them or not; and those without an answer.
    var lost: Int { endings["link_down", default: 0] + endings["silence", default: 0] }

    func ask(_ question: NodeQuestion = .login(password: "x"), _ priority: DeliveryPriority = .bulk) -> LoopTask {
      bench.loop.begin {
        do throws(Refusal) {
          _ = try await self.requests.ask(question, of: self.node, priority)
          self.endings["answered", default: 0] += 1
        } catch {
          self.endings[error.code, default: 0] += 1
        }
      }
    }

    var login: Push {
      .loginSuccess(
        LoginSuccess(permissions: 1, prefix: node.key.prefix, serverTime: 1, acl: 3, firmwareLevel: 1))
    }
  }

  @Test func `an answer in the same read as the radio's reply is not missed`() throws {
    let fixture = try Fixture()
    let (own, output) = (fixture.bench.own, fixture.bench.own.output)
    own.output = { frame in
      output?(frame)
      // SENT, followed at once by the requested answer.
      if frame.first == 0x06 { output?(fixture.login.encode()) }
    }
    _ = fixture.ask()
    try fixture.bench.run("the answer") { fixture.ended == 1 }
    #expect(fixture.endings == ["answered": 1])
  }

  @Test func `an access list ends before its padding, and names roles`() throws {
    let fixture = try Fixture()
    let tag = AckCode(value: 7)
    let data: [UInt8] = [1, 2, 3, 4, 5, 6, 3] + [6, 5, 4, 3, 2, 1, 0x82] + [UInt8](repeating: 0, count: 18)
    let answer = NodeQuestion.access.answer(in: .binaryResponse(tag: tag, data: data), from: fixture.node, tag: tag)
    guard case .access(let entries) = answer else { return #expect(Bool(false), "\(String(describing: answer))") }
    let json = try JSONValue(parsing: JSONWriter.object { NodeAnswer.access(entries).write(to: &$0) })
    let rows = json["entries"]?.array ?? []
    #expect(rows.map { $0["key"]?.string } == ["010203040506", "060504030201"])
    #expect(rows.map { $0["role"]?.string } == ["admin", "read-write"])
    #expect(NodeQuestion.access.needsLogin)
    let now = Moment(milliseconds: 0, trusted: false)
    let contact = Contact(key: fixture.node.key, name: "n")
    #expect(
      NodeQuestion.access.command(to: contact, time: 1, now: now, CommandMark())?.encode().suffix(3) == [5, 0, 0])
  }

  @Test func `telemetry that nobody asked for is a reading of the node that the push names`() throws {
    let fixture = try Fixture()
    let bench = fixture.bench
    let service = NodeService(
      bench.messenger, credentials: Credentials(location: bench.scratch.location("credentials")))
    let voltage: [UInt8] = [1, 116, 0x01, 0x9A]
    fixture.requests.received(.telemetryResponse(fixture.node.key.prefix, data: voltage))
    fixture.requests.received(.telemetryResponse(KeyPrefix(bytes: [9, 9, 9, 9, 9, 9])!, data: voltage))
    try bench.store.commitNow()
    var kinds: [String] = []
    try bench.store.eachReading(of: nil, byRadio: nil, limit: 9) { _, _, kind, _ in kinds.append("\(kind)") }
    #expect(kinds.count == 1)
    withExtendedLifetime(service) {}
  }

  @Test func `an answer about a node is stored although its requester has gone`() throws {
    let fixture = try Fixture()
    let bench = fixture.bench
    let service = NodeService(
      bench.messenger, credentials: Credentials(location: bench.scratch.location("credentials")))
    bench.ether.loss = 1
    let question = fixture.ask(.telemetry)
    for _ in 0..<8 { bench.loop.turn(wait: false) }
    #expect(fixture.requests.isAsking)
    question.cancel()
    try bench.run("its end") { fixture.endings == ["cancelled": 1] }
    let before = bench.store.lastSeq
    let data = Telemetry(readings: []).encode()
    // The push arrives twice, and is stored once.
    for _ in 0..<2 { bench.own.push(.telemetryResponse(fixture.node.key.prefix, data: data)) }
    try bench.run("the reading") {
      bench.store.commit(everything: true)
      return bench.store.lastSeq > before
    }
    for _ in 0..<4 { bench.loop.turn(wait: false) }
    bench.store.commit(everything: true)
    #expect(bench.store.lastSeq == before + 1)
    withExtendedLifetime(service) {}
  }

  @Test func `a node is started anew by a command that the radio has taken, and not by one that was not sent`() throws {
    let fixture = try Fixture()
    let bench = fixture.bench
    let service = NodeService(
      bench.messenger, credentials: Credentials(location: bench.scratch.location("credentials")))
    bench.requests = service.requests
    var (restarts, takes) = (0, false)
    service.does = { doing, _ in if case .restarts = doing { restarts += 1 } }
    bench.swallow { command in
      guard case .sendText = command else { return false }
      return !takes
    }
    service.requests.longestWait = .milliseconds(1)
    let stored = try #require(try bench.store.contact(fixture.node.key))
    var words = ""
    func ask(_ command: Text) throws -> String? {
      let refusal = try bench.refusal { () throws(Refusal) in try await service.ask(.cli(command), of: stored) }
      words = refusal?.description ?? ""
      return refusal?.code
    }
    #expect(try ask("reboot") == "silence" && restarts == 0, "the radio did not take it")
    takes = true
    #expect(try ask("reboot") == "silence" && restarts == 1)
    #expect(try ask("get tx") == "silence" && restarts == 1)
    #expect(words.contains("it is not known whether it has carried out the command"), "its reply may be lost")
  }

  @Test func `the most urgent request goes first, and requests beyond the bound are refused`() throws {
    let fixture = try Fixture()
    for _ in 0..<40 { _ = fixture.ask() }
    try fixture.bench.run("the refusals") { fixture.ended == 7 }
    #expect(fixture.endings == ["full": 7] && fixture.requests.waiting == NodeRequests.bound)
    fixture.requests.linkLost()
    try fixture.bench.run("the end of all") { fixture.ended == 40 }
    #expect(fixture.endings["full"] == 7 && fixture.lost == 33)
    #expect(fixture.requests.waiting == 0)
    var order: [String] = []
    for (name, priority) in [("first", DeliveryPriority.bulk), ("bulk", .bulk), ("person", .interactive)] {
      _ = fixture.bench.loop.begin {
        // `try?`: the last question gets no answer.
        _ = try? await fixture.requests.ask(.keepAlive, of: fixture.node, priority)
        order.append(name)
      }
    }
    try fixture.bench.run("all of them") { order.count == 3 }
    #expect(order == ["first", "person", "bulk"])
  }

  @Test func `a command that a lost link took with it may have been carried out, and one that waited was not sent`()
    throws
  {
    let fixture = try Fixture()
    let bench = fixture.bench
    bench.ether.loss = 1
    var isSent = false
    bench.swallow { command in
      if case .sendText = command { isSent = true }
      return false
    }
    for _ in 0..<2 { _ = fixture.ask(.cli("set tx 22")) }
    try bench.run("the first") { isSent && fixture.requests.waiting == 1 }
    bench.swap(to: bench.own)
    try bench.run("the end of both") { fixture.ended == 2 }
    #expect(fixture.endings == ["silence": 1, "link_down": 1])
  }

  @Test func `a program that shares the radio gets a turn for requests, and loses it with the link`() throws {
    let fixture = try Fixture()
    var turn: NodeRequests.SharedTurn?
    _ = fixture.bench.loop.begin {
      // `try?`: without a turn the test fails below.
      turn = try? await fixture.requests.share()
    }
    try fixture.bench.run("the turn") { turn != nil }
    let question = fixture.ask(.keepAlive)
    fixture.bench.loop.turn(wait: false)
    #expect(fixture.requests.waiting == 1, "one at a time")
    turn?.leave()
    turn?.leave()
    try fixture.bench.run("the question") { fixture.endings == ["answered": 1] }
    question.cancel()
    _ = fixture.bench.loop.begin { turn = try? await fixture.requests.share() }  // `try?`: as above
    fixture.bench.loop.turn(wait: false)
    fixture.requests.linkLost()
    #expect(!fixture.requests.isAsking)
    turn?.leave()
    #expect(!fixture.requests.isAsking && fixture.requests.waiting == 0)
  }

  @Test func `a thousand requests that are answered, cancelled, timed out or lost leave nothing behind`() throws {
    let fixture = try Fixture()
    let (bench, requests) = (fixture.bench, fixture.requests)
    bench.loop.turn(wait: false)
    let (timers, tasks) = (bench.loop.waitingTimers, bench.loop.taskCount)
    for round in 1...5 {
      for _ in 0..<20 { _ = fixture.ask() }
      // The push is repeated: without a waiting question it answers none.
      try bench.run("answers") {
        bench.own.push(fixture.login)
        return fixture.ended == round * 20
      }
    }
    #expect(fixture.endings == ["answered": 100])
    for round in 1...40 {
      let tasks = (0..<20).map { _ in fixture.ask() }
      // Cancelled before it has begun, while it waits for its turn, and while it waits for its answer.
      if round % 3 > 0 { bench.loop.turn(wait: false) }
      if round % 3 > 1 { for _ in 0..<4 { bench.loop.turn(wait: false) } }
      for task in tasks { task.cancel() }
      try bench.run("their end") { fixture.ended == 100 + round * 20 }
    }
    #expect(fixture.endings == ["answered": 100, "cancelled": 800])
    requests.longestWait = .milliseconds(1)
    for _ in 0..<20 { _ = fixture.ask(.keepAlive) }
    try bench.run("signs of life") { fixture.ended == 920 }
    for _ in 0..<25 { _ = fixture.ask() }
    try bench.run("time-outs") { fixture.ended == 945 }
    #expect(fixture.endings == ["answered": 120, "cancelled": 800, "silence": 25])
    requests.longestWait = NodeRequests.longest
    for (count, all) in [(33, 978), (22, 1000)] {
      for _ in 0..<count { _ = fixture.ask() }
      bench.loop.turn(wait: false)
      bench.swap(to: bench.own)
      try bench.run("their end") { fixture.ended == all && bench.synchronizer.state == .synced }
    }
    #expect(fixture.endings["answered"] == 120 && fixture.endings["cancelled"] == 800)
    #expect(fixture.lost == 25 + 55, "with the time-outs")
    #expect(requests.waiting == 0 && !requests.isAsking)
    #expect(bench.loop.waitingTimers <= timers + 2, "the radio's own")
    #expect(bench.loop.taskCount == tasks)
  }
}
