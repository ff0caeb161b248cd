// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import TestSupport
import Testing

@testable import Relay

/// A hub that has a document and a command, and answers at once.
private final class ReadySource: UpdatesSource {
  static let at: Int64 = 1_795_000_000_000
  weak var updates: (any UpdatesListener)?
  let key = "node/" + String(repeating: "ab", count: 32) + "/note"

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    // `try?`: what is written here is JSON.
    try? JSONValue(parsing: Array(answer(question).utf8))
  }

  private func answer(_ question: UpdatesQuestion) -> String {
    let at = Self.at
    switch question {
    case .state(let buckets):
      return #"{"buckets":[\#(buckets.map { #"{"bucket":"\#($0)","seq":3,"at":\#(at)}"# }.joined(separator: ","))]}"#
    case .page("documents", _, _, _):
      let body = #"{"key":"\#(key)","value":"private\u001b[2J words","updated_at":7,"by_hub":true}"#
      let none = #"{"key":"no such key","value":"private words","updated_at":7}"#
      return #"""
        {"first":1,"last":3,"last_at":\#(at),"updates":[{"seq":2,"at":\#(at),"id":"x\n","body":\#(body)},
        {"seq":3,"at":\#(at),"id":"y","body":\#(none)}]}
        """#
    case .page:
      let body = #"{"command":"send\u001b[2J","to":"Birch","text":"private words"}"#
      return #"""
        {"first":1,"last":3,"last_at":\#(at),"updates":[{"seq":3,"at":\#(at),"id":"c","body":\#(body)}]}
        """#
    }
  }
}

@Suite(.serialized) struct BucketLogTests {
  @Test func `each fetch and each update is a line, with nothing of what the update says`() throws {
    let scratch = Scratch()
    let loop = EventLoop()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    var lines: [String] = []
    let log = Log(level: .debug, sink: { level, line in if level == .debug { lines.append(line) } })
    let intake = CommandIntake(
      CommandIntake.Settings(allowed: ["send"], perMinute: 10), upstream: "hub", store: store, on: loop, log: log)
    let source = ReadySource()
    let sync = BucketSync(
      upstream: "hub", rights: ["send", "documents"], store: store, source: source, commands: intake, on: loop,
      log: log, acknowledged: { 0 })
    defer { sync.stop() }
    sync.reachable(true)
    let isDone = turn(loop) { lines.filter { $0.contains("on disk up to seq 3") }.count == 2 }
    #expect(isDone, "\(lines)")
    let at = ReadySource.at
    let said = lines.map { line in line.replacing(/\d+ bytes/, with: "N bytes") }
    #expect(
      said == [
        "hub: commands: fetched after seq 0 up to 3, at most 100: 1 updates, now at seq 3, date \(at)",
        "hub: commands: seq 3, date \(at), type command unknown, N bytes: applied",
        "hub: commands: on disk up to seq 3: 1 applied, 0 known already, 0 skipped",
        "hub: documents: fetched after seq 0 up to 3, at most 100: 2 updates, now at seq 3, date \(at)",
        "hub: documents: seq 2, date \(at), type document, N bytes: applied",
        "hub: documents: seq 3, date \(at), type document, N bytes: skipped",
        "hub: documents: on disk up to seq 3: 1 applied, 0 known already, 1 skipped",
      ])
    #expect(!lines.contains { $0.contains("private") || $0.contains("\u{1B}") })
  }

  @Test func `a minute has twice as many answers to a broker's clients as it may have commands`() throws {
    let (scratch, loop) = (Scratch(), EventLoop(on: InventedMachine()))
    defer { withExtendedLifetime(scratch) {} }
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let desk = CommandIntake(
      CommandIntake.Settings(perMinute: 3), upstream: "broker", store: store, on: loop, log: Log())
    var answered = 0
    for _ in 0..<2 {
      for _ in 0..<100 { answered += desk.mayAnswer() ? 1 : 0 }
      let timer = loop.schedule(after: .seconds(60)) {}
      loop.turn(wait: true)
      timer.cancel()
    }
    #expect(answered == 12)
  }
}
