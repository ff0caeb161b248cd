// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import TestSupport
import Testing
import Timing

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

/// A hub that says of each page that there is more, and that it lost what was before.
private final class EndlessSource: UpdatesSource {
  weak var updates: (any UpdatesListener)?
  var pages = 0
  let progress: Int64
  init(progress: Int64) { self.progress = progress }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let text: String
    switch question {
    case .state: text = #"{"buckets":[{"bucket":"commands","seq":4503599627370496,"at":1}]}"#
    case .page(_, let from, _, _):
      pages += 1
      let last = from.seq + progress
      text = #"{"first":\#(max(last, 1)),"last":\#(last),"last_at":\#(last),"more":true,"updates":[]}"#
    }
    // `try?`: what is written here is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }
}

@Suite(.serialized) struct BucketLogTests {
  @Test(arguments: [0, 1, 5] as [Int64])
  func `a hub that always has more is asked seldom, and fills neither journal nor log`(_ progress: Int64) throws {
    let scratch = Scratch()
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    var lines: [String] = []
    let log = Log(level: .info, sink: { _, line in lines.append(line) })
    let intake = CommandIntake(
      CommandIntake.Settings(allowed: ["send"], perMinute: 10), upstream: "hub", store: store, on: loop, log: log)
    let source = EndlessSource(progress: progress)
    let sync = BucketSync(
      upstream: "hub", rights: ["send"], store: store, source: source, commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    defer { sync.stop() }
    sync.reachable(true)
    let end = loop.now + .seconds(600)
    let isOver = turn(loop) { loop.now >= end }
    #expect(isOver && source.pages > 2 && source.pages <= 32 * 12, "\(source.pages) pages in ten minutes")
    #expect(lines.count <= 12 && sync.report.trouble != nil, "\(lines)")
    #expect(store.lastSeq <= 11)
  }

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
