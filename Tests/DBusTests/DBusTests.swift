// SPDX-License-Identifier: MIT

import DBus
import EventLoop
import Foundation
import TestSupport
import Testing
import Timing

/// A bus of our own: Debian's dbus-daemon, in a scratch folder.
private final class Daemon {
  let scratch = Scratch()
  let location: String
  private var process: Process?

  init() throws {
    location = scratch.location("bus")
    try start()
  }

  deinit { stop() }

  var address: String { "unix:path=\(location)" }

  func start() throws {
    let configuration = scratch.write(
      "bus.conf",
      """
      <busconfig><type>session</type><listen>unix:path=\(location)</listen><auth>EXTERNAL</auth>
      <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
      </policy></busconfig>
      """)
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/dbus-daemon")
    process.arguments = ["--config-file=\(configuration)", "--nofork", "--nopidfile"]
    process.standardError = FileHandle.nullDevice
    try process.run()
    self.process = process
    var patience = Patience()
    while !FileManager.default.fileExists(atPath: location), !patience.isOver() { usleep(10_000) }
  }

  func stop() {
    guard let process else { return }
    kill(process.processIdentifier, SIGKILL)  // SIGTERM is blocked in children of test threads
    process.waitUntilExit()
    self.process = nil
    unlink(location)
  }
}

@Suite(.serialized) struct DBusTests {
  private let loop = EventLoop()
  private let daemon: Daemon

  init() throws { daemon = try Daemon() }

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

  @Test func `every type goes over the bus and comes back exactly`() {
    let (server, client) = (bus(), bus())
    server.export("/echo", "org.example.Echo") { call, reply in reply(.success(call.body)) }
    var name: String?
    _ = server.subscribe(MatchRule(interface: "x.y")) { _ in }
    server.call(
      .call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", [.string("org.example"), .uint32(0)])
    ) { result in
      name = if case .success = result { "org.example" } else { nil }
    }
    run(until: { name != nil }, "named")
    var answer: [BusValue]?
    client.call(.call("org.example", "/echo", "org.example.Echo", "Echo", Self.everything)) { result in
      answer = try? result.get()  // `try?`: compared below
    }
    run(until: { answer != nil }, "answered")
    #expect(answer == Self.everything)
  }

  @Test func `a descriptor is passed and still works`() throws {
    let (server, client) = (bus(), bus())
    var pipes: [Int32] = [0, 0]
    #expect(pipe(&pipes) == 0)
    let reading = BusDescriptor(owning: pipes[0])
    server.export("/fd", "org.example.Pipe") { _, reply in reply(.success([.descriptor(reading)])) }
    var owner: String?
    client.call(.call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "ListNames")) { result in
      let names = (try? result.get())?.first?.elements?.compactMap(\.string)  // `try?`: nil fails the wait
      owner = names?.filter { $0.hasPrefix(":") }.min()
    }
    run(until: { owner != nil }, "listed")
    var got: BusDescriptor?
    client.call(.call(try #require(owner), "/fd", "org.example.Pipe", "Get")) { result in
      if case .success(let body) = result, case .descriptor(let descriptor)? = body.first { got = descriptor }
    }
    run(until: { got != nil }, "passed")
    let copy = try #require(got).duplicate()
    #expect(write(pipes[1], "x", 1) == 1)
    var byte: UInt8 = 0
    #expect(read(copy, &byte, 1) == 1 && byte == UInt8(ascii: "x"))
    close(copy)
    close(pipes[1])
  }

  @Test func `refusals, silence and nonsense are errors`() throws {
    let (server, client) = (bus(), bus())
    server.export("/s", "org.example.S") { call, reply in
      if call.member == "No" { reply(.failure(.refused(name: "org.example.No", words: "not today"))) }
    }
    var results: [String: Result<[BusValue], BusError>] = [:]
    func ask(_ label: String, _ message: BusMessage) {
      client.call(message, timeout: .milliseconds(300)) { results[label] = $0 }
    }
    var owner: String?
    server.call(
      .call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", [.string("org.example.s"), .uint32(0)])
    ) { _ in
      owner = "org.example.s"
    }
    run(until: { owner != nil }, "named")
    ask("no", .call("org.example.s", "/s", "org.example.S", "No"))
    ask("silent", .call("org.example.s", "/s", "org.example.S", "Silent"))
    ask("nobody", .call("org.example.nobody", "/s", "org.example.S", "X"))
    ask("unknown", .call("org.example.s", "/elsewhere", "org.example.S", "X"))
    ask("path", .call("org.example.s", "no path", "org.example.S", "X"))
    ask("zero", .call("org.example.s", "/s", "org.example.S", "X", [.string("a\u{0}b")]))
    ask("mixed", .call("org.example.s", "/s", "org.example.S", "X", [.array(element: "s", [.byte(1)])]))
    run(until: { results.count == 7 }, "all answered")
    #expect(results["no"] == .failure(.refused(name: "org.example.No", words: "not today")))
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

  @Test func `names, signals and exported objects survive a bus that goes away`() throws {
    let client = bus()
    var owners: [String?] = []
    var downs = 0
    var signals = 0
    client.onDown = { _ in downs += 1 }
    client.watchName("org.example.late") { owners.append($0) }
    _ = client.subscribe(MatchRule(sender: "org.example.late", interface: "org.example.L", member: "Tick")) { _ in
      signals += 1
    }
    run(until: { owners == [nil] }, "nobody owns it")
    func appear() -> Bus {
      let server = bus()
      server.call(
        .call(
          "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", [.string("org.example.late"), .uint32(0)])
      ) { _ in }
      run(until: { owners.last.flatMap { $0 } != nil }, "it has an owner")
      server.emit("/l", "org.example.L", "Tick")
      return server
    }
    var server = appear()
    run(until: { signals == 1 }, "a signal")
    server.close()
    run(until: { owners.last == .some(nil) }, "the owner is gone")
    daemon.stop()
    run(until: { downs == 1 }, "the bus is gone")
    var failure: BusError?
    client.call(.call("org.example.late", "/", "a.b", "C")) { if case .failure(let error) = $0 { failure = error } }
    run(until: { failure != nil }, "calls fail")
    try daemon.start()
    run(until: { client.isUp }, "it is back")
    server = appear()
    run(until: { signals == 2 }, "a signal through the new bus")
    server.close()
  }

  @Test func `idle means asleep`() throws {
    let client = bus()
    var isKnown = false
    client.watchName("org.example") { _ in isKnown = true }
    run(until: { isKnown }, "asked")
    // Once what is under way has ended, only the timer wakes it: a busy loop never gets there.
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
