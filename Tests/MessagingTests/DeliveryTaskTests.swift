// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing
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

  @Test func `SENT with the code of another message does not make its acknowledgement this one's`() throws {
    let bench = try Bench(on: InventedMachine())
    bench.ether.loss = 1
    _ = try bench.send(SendRequest(to: "r1", text: "before", key: "before")).get()
    try bench.run("held") { try bench.state("before").state == .heldForRecipient }
    let other = try #require(try bench.state("before").attempts.codes.last)
    let output = bench.own.output
    var isFirst = true
    bench.own.output = { frame in
      guard isFirst, frame.first == ReplyCode.sent.rawValue else {
        output?(frame)
        return
      }
      isFirst = false
      output?(Reply.sent(Sent(flood: true, ackOrTag: other, suggestedTimeout: 1000)).encode())
      output?(Push.sendConfirmed(ack: other, tripTime: 7).encode())
    }
    _ = try bench.send(SendRequest(to: "r1", text: "hello", key: "k")).get()
    try bench.run("the next attempt") { try bench.state("k").attempts.next == 2 }
    let message = try bench.state("k")
    #expect(message.state != .delivered && !message.attempts.codes.contains(other))
    #expect(try bench.state("before").state == .delivered)
  }

  @Test func `a message whose SENT is lost stays delivered`() throws {
    let bench = try Bench(on: InventedMachine())
    bench.lose { $0.first == ReplyCode.sent.rawValue }
    _ = try bench.send(SendRequest(to: "r1", text: "hello", key: "k")).get()
    try bench.run("delivered") { try bench.state("k").state == .delivered }
    let end = bench.loop.now + .seconds(60)
    try bench.run("a minute") { bench.loop.now > end }
    #expect(try bench.state("k").state == .delivered && bench.messenger.underWay.isEmpty)
    #expect(try states(of: "k", bench).last == "delivered")
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

  @Test func `a state that the disk has refused is stored in the same form when the disk takes it`() throws {
    var settings = Messenger.Settings()
    settings.delivery.maxAttempts = 1
    let bench = try Bench(settings)
    bench.ether.loss = 1
    var refuses = false
    bench.loop.afterTurn { [store = bench.store] in
      guard refuses else { return }
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") }
    }
    let id = try #require(try bench.send(SendRequest(to: "r1", text: "who is there?", key: "k")).get().first?.id)
    try bench.run("sent") { try bench.state("k").state == .sent }
    refuses = true
    try bench.run("held") { bench.messenger.row(id)?.state == .heldForRecipient }
    try bench.run("refused") { bench.messenger.unsaved.refused.count == 1 }
    #expect(try bench.state("k").state == .sent)
    refuses = false
    try bench.run("stored") { try bench.state("k").state == .heldForRecipient }
    var last = ""
    try bench.store.readJournal(after: 0) { event, _ in
      if event.kind == "outgoing" { last = String(decoding: event.body, as: UTF8.self) }
      return true
    }
    #expect(last.contains("held") && last.contains("who is there?"), "\(last)")
  }

  @Test func `a message whose end is not on disk yet is not taken up again`() throws {
    let bench = try Bench()
    bench.ether.loss = 1
    let id = try #require(try bench.send(SendRequest(to: "r1", text: "x", key: "k")).get().first?.id)
    try bench.run("sent") { try bench.state("k").state == .sent }
    let tasks = bench.messenger.underWay.count
    try bench.messenger.resume()
    #expect(bench.messenger.session.isLive(id) && bench.messenger.underWay.count == tasks, "it is there already")
    var cancelled: Result<OutgoingMessage, Refusal>?
    bench.loop.later { [store = bench.store] in
      cancelled = Result { () throws(Refusal) in try bench.messenger.cancel(key: "k") }
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") }
    }
    try bench.run("refused") { cancelled != nil && bench.messenger.unsaved.refused.count == 1 }
    #expect(try bench.state("k").state == .sent)
    try bench.messenger.resume()
    #expect(!bench.messenger.session.isLive(id))
    try bench.run("its end") { try bench.state("k").reason == "cancelled" }
  }

  @Test func `changes of a message that could not be read are made later, in their order`() throws {
    let bench = try Bench()
    let id = try #require(try bench.send(SendRequest(to: "Public", text: "x", key: "k")).get().first?.id)
    try bench.run("sent") { try bench.state("k").state == .sent }
    let heard = try bench.state("k").heard
    bench.messenger.unapplied = [StateChange(id: id, make: { $0.heard = 500 })]
    bench.messenger.change(StateChange(id: id, make: { $0.heard += 1 }))
    bench.messenger.change(StateChange(id: id, isWanted: { $0.state == .pending }, make: { $0.heard = 0 }))
    bench.store.commit()
    #expect(try bench.state("k").heard == heard)
    try bench.run("both") { try bench.state("k").heard == 501 }
    #expect(bench.messenger.unapplied.isEmpty)
  }

  @Test func `an attempt that was not stored takes nothing back`() {
    var booking = Booking(isWhole: true)
    booking.add(.init(airtime: 50, purpose: .message))
    var later = Booking()
    later.add(.init(airtime: 50, purpose: .message, isTakenBack: true))
    booking.append(later)
    #expect(booking.isWhole && booking.uses.isEmpty)
    booking.append(later)
    #expect(booking.uses == [.init(airtime: 50, purpose: .message, isTakenBack: true)])
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

  @Test func `a channel text that the radio has accepted has a minute, also in a later run`() throws {
    let bench = try Bench(on: InventedMachine())
    _ = try bench.send(SendRequest(to: "Public", text: "y", key: "c")).get()
    try bench.run("it is sent") { try bench.state("c").state == .sent }
    var message = try bench.state("c")
    #expect(bench.messenger.lastTime(for: message) <= bench.loop.now + .seconds(60), "nodes drop a second copy")
    message.attempts.floods = 0
    #expect(bench.messenger.lastTime(for: message) > bench.loop.now + .seconds(3600), "they may lack it")
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
