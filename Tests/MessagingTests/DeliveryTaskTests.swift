// SPDX-License-Identifier: MIT

import Companion
import JSON
import Store
import Testing
import Transport
import VirtualRadio

@testable import EventLoop
@testable import Messaging

/// Each message under way is a task.
@Suite struct DeliveryTaskTests {
  /// The states of a message as upstreams get them, in order.
  private func states(of key: String, _ bench: Bench) throws -> [String] {
    var states: [String] = []
    try bench.store.readJournal(after: 0) { event, _ in
      // `try?`: the journal contains JSON.
      if event.kind == "outgoing", let body = try? JSONValue(parsing: event.body), body["id"]?.string == key {
        states.append(body["state"]?.string ?? "?")
      }
      return true
    }
    return states
  }

  /// The radio's answer to a text arrives in one read with an acknowledgement of `code`, before or after it.
  private func joinAnswers(_ bench: Bench, after: Bool, _ acknowledged: @escaping () throws -> AckCode?) {
    let (link, output) = (bench.synchronizer.connection.link, bench.own.output)
    bench.own.output = { [unowned bench] frame in
      // `try?`: an unreadable code is not acknowledged.
      guard frame.first == ReplyCode.sent.rawValue, let code = try? acknowledged() else {
        output?(frame)
        return
      }
      let confirmed = SerialFraming.wrap(Push.sendConfirmed(ack: code, tripTime: 7).encode(), .fromRadio)
      let answer = SerialFraming.wrap(frame, .fromRadio)
      bench.loop.later { link.onEvent(.bytes(after ? answer + confirmed : confirmed + answer)) }
    }
  }

  @Test func `an acknowledgement in the same read as the radio's answer is handled after the answer`() throws {
    let bench = try Bench()
    bench.ether.loss = 1
    joinAnswers(bench, after: true) { try bench.state("k").attempts.codes.last }
    _ = try bench.send(SendRequest(to: "r1", text: "hello", key: "k")).get()
    try bench.run("delivered") { try bench.state("k").state == .delivered }
    let message = try bench.state("k")
    #expect(message.attempts.accepted == 1 && message.roundTrip == 7)
    #expect(try states(of: "k", bench) == ["pending", "sending", "sent", "delivered"])
  }

  @Test func `the acknowledgement of an earlier attempt counts while the next attempt is at the radio`() throws {
    var settings = Messenger.Settings()
    settings.delivery.timeoutFactor = 0.1
    let bench = try Bench(settings)
    bench.ether.loss = 1
    joinAnswers(bench, after: false) {
      let codes = try bench.state("k").attempts.codes
      return codes.count == 2 ? codes[0] : nil
    }
    _ = try bench.send(SendRequest(to: "r1", text: "hello", key: "k")).get()
    try bench.run("delivered") { try bench.state("k").state == .delivered }
    for _ in 0..<20 { bench.loop.turn(wait: false) }
    #expect(try states(of: "k", bench) == ["pending", "sending", "sent", "sending", "delivered"])
    #expect(bench.messenger.underWay.isEmpty && bench.messenger.underWay.handed?.id == nil)
  }

  @Test func `a message that has ended leaves no task, and each recipient and the radio have one task at most`()
    throws
  {
    let bench = try Bench()
    for _ in 0..<20 { bench.loop.turn(wait: false) }
    let before = bench.loop.taskCount
    for number in 0..<8 {
      _ = try bench.send(SendRequest(to: "r1", text: Text("direct \(number)"), key: "d\(number)")).get()
      _ = try bench.send(SendRequest(to: "Public", text: Text("to all \(number)"), key: "c\(number)")).get()
    }
    var most = 0
    try bench.run("all of them") {
      most = max(most, bench.messenger.underWay.count)
      return try (0..<8).allSatisfy {
        try bench.state("d\($0)").state == .delivered && bench.state("c\($0)").state == .sent
      }
    }
    for _ in 0..<20 { bench.loop.turn(wait: false) }
    #expect(bench.messenger.underWay.isEmpty && bench.loop.taskCount <= before)
    #expect(most <= 2, "one to each node, and one with the radio")
  }

  @Test func `the task of a cancelled message ends, and all tasks end with the program`() throws {
    let bench = try Bench()
    bench.ether.loss = 1
    for _ in 0..<20 { bench.loop.turn(wait: false) }
    let before = bench.loop.taskCount
    for key in ["a", "b"] { _ = try bench.send(SendRequest(to: "r1", text: Text(key), key: key)).get() }
    try bench.run("on the air") { try bench.state("a").state == .sent }
    #expect(bench.messenger.underWay.count == 1)
    #expect(try bench.refusal { () throws(Refusal) in try bench.messenger.cancel(key: "a") } == nil)
    try bench.run("the next") { try bench.state("b").state == .sent }
    #expect(try bench.state("a").reason == "cancelled" && bench.messenger.underWay.count == 1)
    bench.sending?.cancel()
    bench.loop.turn(wait: false)
    bench.loop.turn(wait: false)
    #expect(bench.loop.taskCount < before, "nor does the one that looks at the time go on")
    #expect(try bench.state("b").state == .sent, "its state is unchanged")
  }
}
