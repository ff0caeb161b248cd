// SPDX-License-Identifier: MIT

import DBus
@testable import EventLoop
import Glibc
import LoopTestSupport
import Testing

@Suite(.serialized) struct DBusTests {
  private let loop = EventLoop()
  private let daemon: MessageBus

  init() throws { daemon = try MessageBus() }

  /// The result of a call.
  private final class Outcome {
    var result: Result<BusMessage, BusError>?
    var isCancelled = false
    var isOver: Bool { result != nil || isCancelled }
    var body: [BusValue]? { if case .success(let message)? = result { message.body } else { nil } }
  }

  private func begin(
    _ bus: Bus, _ message: BusMessage, timeout: Duration = .seconds(25), then: @escaping () -> Void = {}
  ) -> (outcome: Outcome, task: LoopTask) {
    let outcome = Outcome()
    let task = loop.begin {
      do {
        outcome.result = .success(try await bus.call(message, timeout: timeout))
      } catch let error as BusError {
        outcome.result = .failure(error)
      } catch {
        outcome.isCancelled = true
      }
      then()
    }
    return (outcome, task)
  }

  private func take(_ name: String, _ bus: Bus) {
    let asked = begin(
      bus, .call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", [.string(name), .uint32(0)])
    ).outcome
    run(until: { asked.isOver }, "named")
    #expect(asked.body != nil)
  }

  private func run(until condition: () -> Bool, _ what: Comment) {
    let isSo = turn(loop, until: condition)
    #expect(isSo, what)
  }

  private func bus() -> Bus {
    let bus = Bus(address: daemon.address, on: loop)
    bus.open()
    run(until: { bus.isUp }, "up")
    return bus
  }

  /// Passes on the events of a listener, until the bus is closed.
  private func begin(_ listener: BusListener, _ take: @escaping (BusListener.Event) -> Void) {
    _ = loop.begin {
      // `try?`: this task is never cancelled.
      while let event = try? await listener.next() { take(event) }
    }
  }

  private func listen(_ bus: Bus, _ rule: MatchRule, _ take: @escaping (BusListener.Event) -> Void = { _ in }) {
    let listener = bus.listen()
    bus.add(rule, to: listener)
    begin(listener, take)
  }

  private static let everything: [BusValue] = [
    .byte(255), .bool(true), .bool(false), .int16(-2), .uint16(65535), .int32(-3), .uint32(.max), .int64(.min),
    .uint64(.max), .double(2.5), .string("æ🌲"), .string(""), .objectPath("/a/b"), .signature("a{sv}"),
    .bytes([0, 1, 255]), .bytes([]), .array(element: "s", [.string("x"), .string("y")]), .array(element: "(ii)", []),
    .structure([.int32(1), .variant(.structure([.string("z"), .bytes([7])]))]),
    .options([("one", .uint16(1)), ("two", .array(element: "o", [.objectPath("/x")]))]), .options(),
    .array(
      element: "{oa{sa{sv}}}",
      [
        .entry(
          .objectPath("/o"),
          .array(element: "{sa{sv}}", [.entry(.string("i"), .options([("p", .bool(true))]))]))
      ]), .variant(.variant(.byte(1))),
  ]

  @Test func `every D-Bus type crosses the bus unchanged`() {
    let (server, client) = (bus(), bus())
    server.export("/echo", "org.example.Echo") { call in call.body }
    listen(server, MatchRule(interface: "x.y"))
    take("org.example", server)
    let echo = begin(client, .call("org.example", "/echo", "org.example.Echo", "Echo", Self.everything)).outcome
    run(until: { echo.isOver }, "answered")
    #expect(echo.body == Self.everything)
  }

  @Test func `a descriptor passed over the bus still works`() throws {
    let (server, client) = (bus(), bus())
    var pipes: [Int32] = [0, 0]
    #expect(pipe(&pipes) == 0)
    let reading = BusDescriptor(owning: pipes[0])
    server.export("/fd", "org.example.Pipe") { _ in [.descriptor(reading)] }
    take("org.example.fd", server)
    let passed = begin(client, .call("org.example.fd", "/fd", "org.example.Pipe", "Get")).outcome
    run(until: { passed.isOver }, "passed")
    guard case .descriptor(let got)? = passed.body?.first else {
      Issue.record("no descriptor: \(String(describing: passed.result))")
      return
    }
    let copy = got.duplicate()
    #expect(write(pipes[1], "x", 1) == 1)
    var byte: UInt8 = 0
    #expect(read(copy, &byte, 1) == 1 && byte == UInt8(ascii: "x"))
    close(copy)
    close(pipes[1])
  }

  @Test func `refusals, missing answers and invalid calls are errors`() throws {
    let (server, client) = (bus(), bus())
    server.export("/s", "org.example.S") { _ throws(BusError) in
      throw .refused(name: "org.example.No", message: "not today")
    }
    take("org.example.s", server)
    try withSilentPeer("org.example.silent") {
      let asked: [String: Outcome] = [
        "no": .call("org.example.s", "/s", "org.example.S", "No"),
        "silent": .call("org.example.silent", "/s", "org.example.S", "Silent"),
        "nobody": .call("org.example.nobody", "/s", "org.example.S", "X"),
        "unknown": .call("org.example.s", "/elsewhere", "org.example.S", "X"),
        "path": .call("org.example.s", "no path", "org.example.S", "X"),
        "zero": .call("org.example.s", "/s", "org.example.S", "X", [.string("a\u{0}b")]),
        "mixed": .call("org.example.s", "/s", "org.example.S", "X", [.array(element: "s", [.byte(1)])]),
      ].mapValues { begin(client, $0, timeout: .milliseconds(300)).outcome }
      run(until: { asked.values.allSatisfy(\.isOver) }, "all answered")
      let results = asked.compactMapValues(\.result)
      #expect(results["no"] == .failure(.refused(name: "org.example.No", message: "not today")))
      #expect(results["silent"] == .failure(.timedOut))
      for (label, name) in [("nobody", "ServiceUnknown"), ("unknown", "UnknownMethod")] {
        guard case .failure(.refused(let found, _))? = results[label] else {
          Issue.record("\(label): \(String(describing: results[label]))")
          continue
        }
        #expect(found == "org.freedesktop.DBus.Error.\(name)")
      }
      for label in ["path", "zero", "mixed"] {
        guard case .failure(.invalid)? = results[label] else {
          Issue.record("\(label): \(String(describing: results[label]))")
          continue
        }
      }
    }
  }

  /// Runs the work while a peer with this name on the bus does not answer, because nothing turns its loop.
  private func withSilentPeer(_ name: String, _ work: () throws -> Void) throws {
    let aside = EventLoop()
    let peer = Bus(address: daemon.address, on: aside)
    peer.open()
    var isNamed = false
    #expect(turn(aside) { peer.isUp })
    _ = aside.begin {
      let call = BusMessage.call(
        "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", [.string(name), .uint32(0)])
      isNamed = (try? await peer.call(call)) != nil  // `try?`: false fails the wait
    }
    #expect(turn(aside) { isNamed })
    try work()
    peer.close()
    aside.turn(wait: false)
  }

  @Test func `names, signals and exported objects survive a bus that restarts`() throws {
    let client = bus()
    var owners: [Bus.Owner] = []
    var signals = 0
    let listener = client.listen()
    client.watch("org.example.late", for: listener)
    client.add(MatchRule(sender: "org.example.late", interface: "org.example.L", member: "Tick"), to: listener)
    begin(listener) { event in
      switch event {
      case .owner(let owner, let name):
        #expect(name == "org.example.late")
        owners.append(owner)
      case .signal: signals += 1
      }
    }
    client.export("/c", "org.example.C") { _ in [.byte(1)] }
    run(until: { owners == [.nobody] }, "nobody owns it")
    func appear() -> Bus {
      let server = bus()
      take("org.example.late", server)
      run(until: { if case .name? = owners.last { true } else { false } }, "it has an owner")
      server.emit("/l", "org.example.L", "Tick")
      return server
    }
    var server = appear()
    run(until: { signals == 1 }, "a signal")
    server.close()
    run(until: { owners.last == .nobody }, "the owner is gone")
    take("org.example.c", client)
    daemon.stop()
    run(until: { if case .unknown? = owners.last { true } else { false } }, "the bus is gone")
    let failed = begin(client, .call("org.example.late", "/", "a.b", "C")).outcome
    run(until: { failed.isOver }, "calls fail")
    #expect(failed.result == .failure(.disconnected("not connected")))
    try daemon.start()
    run(until: { client.isUp }, "it is back")
    server = appear()
    run(until: { signals == 2 }, "a signal through the new bus")
    take("org.example.c", client)
    let exported = begin(server, .call("org.example.c", "/c", "org.example.C", "X")).outcome
    run(until: { exported.isOver }, "answered over the new bus")
    #expect(exported.body == [.byte(1)])
    server.close()
  }

  /// A snapshot must not replace a later signal.
  @Test func `a caller resumes with its answer before later signals of the bus are handled`() {
    let (server, client) = (bus(), bus())
    var order: [String] = []
    listen(client, MatchRule(interface: "org.example.O")) {
      if case .signal(let message) = $0 { order.append(message.member ?? "") }
    }
    server.export("/o", "org.example.O") { [server, loop] _ in
      loop.later { for member in ["one", "two"] { server.emit("/o", "org.example.O", member) } }
      return []
    }
    take("org.example.o", server)
    for round in 1...50 {
      order = []
      let call = begin(client, .call("org.example.o", "/o", "org.example.O", "X")) { order.append("answer") }
      run(until: { order.count == 3 }, "all of it has arrived")
      #expect(order == ["answer", "one", "two"], "round \(round)")
      #expect(call.outcome.isOver)
    }
  }

  @Test func `a listener gets signals and owners in the order of the bus`() {
    let (server, client) = (bus(), bus())
    let listener = client.listen()
    var order: [String] = []
    client.watch("org.example.order", for: listener)
    client.add(MatchRule(interface: "org.example.R"), to: listener)
    begin(listener) { event in
      switch event {
      case .owner(.nobody, _): order.append("nobody")
      case .owner(_, _): order.append("owned")
      case .signal(let message): order.append(message.member ?? "")
      }
    }
    run(until: { order == ["nobody"] }, "asked")
    for round in 1...20 {
      order = []
      server.emit("/r", "org.example.R", "before")
      server.post(Self.nameCall("RequestName", [.string("org.example.order"), .uint32(0)]))
      server.emit("/r", "org.example.R", "between")
      server.post(Self.nameCall("ReleaseName", [.string("org.example.order")]))
      server.emit("/r", "org.example.R", "after")
      run(until: { order.count >= 5 }, "all of it has arrived")
      #expect(order == ["before", "owned", "between", "nobody", "after"], "round \(round)")
    }
  }

  private static func nameCall(_ member: String, _ body: [BusValue]) -> BusMessage {
    .call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", member, body)
  }

  /// Otherwise it would continue from an outdated state.
  @Test func `a listener that falls behind ends the connection, and the next one reports the name's owner`() {
    let (server, client) = (bus(), bus())
    let listener = client.listen()
    client.watch("org.example.busy", for: listener)
    client.add(MatchRule(interface: "org.example.B"), to: listener)
    take("org.example.busy", server)
    for _ in 0..<300 { server.emit("/b", "org.example.B", "Tick") }
    run(until: { !client.isUp }, "it has ended")
    var events: [BusListener.Event] = []
    begin(listener) { events.append($0) }
    run(until: { client.isUp }, "another connection")
    run(until: { if case .owner(.name, _)? = events.last { true } else { false } }, "it has an owner")
    #expect(events.count <= 258)
  }

  @Test func `waiting calls end with the connection, or when they are cancelled`() throws {
    let client = bus()
    try withSilentPeer("org.example.silent") {
      let question = BusMessage.call("org.example.silent", "/s", "org.example.S", "Silent")
      let waiting = (1...3).map { _ in begin(client, question) }
      loop.turn(wait: false)
      waiting[0].task.cancel()
      loop.turn(wait: false)
      #expect(waiting.map(\.outcome.isOver) == [true, false, false] && waiting[0].outcome.isCancelled)
      daemon.stop()
      run(until: { waiting.allSatisfy(\.outcome.isOver) }, "they end with the connection")
      #expect(waiting[1].outcome.result == .failure(.disconnected("it closed the connection")))
      try daemon.start()
      run(until: { client.isUp }, "it is back")
    }
    try withSilentPeer("org.example.silent") {
      let call = begin(client, .call("org.example.silent", "/s", "org.example.S", "Silent"))
      loop.turn(wait: false)
      client.close()
      loop.turn(wait: false)
      #expect(call.outcome.result == .failure(.disconnected("closed")))
    }
  }

  @Test func `a thousand cancelled calls leave no timer and no descriptor behind`() throws {
    let client = bus()
    run(until: { client.isUp }, "connected")
    try withSilentPeer("org.example.silent") {
      let (timers, descriptors) = (loop.waitingTimers, openDescriptors())
      for _ in 0..<1000 {
        let call = begin(client, .call("org.example.silent", "/s", "org.example.S", "Silent"))
        loop.turn(wait: false)
        call.task.cancel()
        loop.turn(wait: false)
        #expect(call.outcome.isCancelled, "\(String(describing: call.outcome.result))")
      }
      #expect(loop.waitingTimers == timers)
      #expect(openDescriptors() - descriptors < 10)
      // None of them counts among the calls that may wait.
      let answered = begin(client, .call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId")).outcome
      run(until: { answered.isOver }, "answered")
      #expect(answered.body != nil)
    }
  }

  @Test func `a hundred ended connections leave no watch, timer, descriptor or task behind`() {
    bus().close()
    loop.turn(wait: false)
    let (watches, timers, descriptors) = (loop.watchCount, loop.waitingTimers, openDescriptors())
    weak var last: Bus?
    for _ in 0..<100 {
      let client = bus()
      let listener = client.listen()
      client.watch("org.example", for: listener)
      client.add(MatchRule(interface: "x.y"), to: listener)
      begin(listener) { _ in _ = client }
      client.close()
      last = client
      loop.turn(wait: false)
    }
    loop.turn(wait: false)
    #expect(loop.watchCount == watches && loop.waitingTimers == timers)
    #expect(openDescriptors() - descriptors < 10)
    #expect(last == nil, "its task has ended")
  }

  @Test func `an idle connection does not wake the loop`() throws {
    let client = bus()
    var isKnown = false
    let listener = client.listen()
    client.watch("org.example", for: listener)
    begin(listener) { _ in isKnown = true }
    run(until: { isKnown }, "asked")
    // After the present work only the timer wakes it; a busy loop would never get there.
    var wakeups: UInt64 = .max
    for _ in 0..<20 where wakeups > 1 {
      let before = loop.wakeups
      var isOver = false
      loop.schedule(after: .milliseconds(200)) { isOver = true }
      while !isOver { loop.turn(wait: true) }
      wakeups = loop.wakeups - before
    }
    #expect(wakeups == 1)
  }
}
