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
  weak var updates: BucketSync?
  let key = "node/" + String(repeating: "ab", count: 32) + "/note"

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    // `try?`: this text is JSON.
    try? JSONValue(parsing: Array(answer(question).utf8))
  }

  private func answer(_ question: UpdatesQuestion) -> String {
    let at = Self.at
    switch question {
    case .state(let buckets, _):
      return #"{"buckets":[\#(buckets.map { #"{"bucket":"\#($0)","seq":3,"at":\#(at)}"# }.joined(separator: ","))]}"#
    case .page("documents", _, _, _, _):
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

/// A hub without an end: each page announces more.
private final class EndlessSource: UpdatesSource {
  enum Lie: String, CaseIterable { case nothing, gaps, nonsense, restored, documents }

  weak var updates: BucketSync?
  private(set) var questions = 0
  private let lie: Lie

  init(_ lie: Lie) { self.lie = lie }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    questions += 1
    // `try?`: this text is JSON.
    return try? JSONValue(parsing: Array(answer(question).utf8))
  }

  private func answer(_ question: UpdatesQuestion) -> String {
    switch question {
    case .state: return #"{"buckets":[{"bucket":"documents","seq":4503599627370496,"at":1}]}"#
    case .page(_, let from, _, _, _):
      let seq = from.seq + 1
      func page(_ first: Int64, _ last: Int64, _ updates: String = "") -> String {
        #"{"first":\#(first),"last":\#(last),"last_at":\#(last),"more":true,"updates":[\#(updates)]}"#
      }
      switch lie {
      case .nothing: return page(1, from.seq)
      case .gaps: return page(seq + 8, seq + 8)
      case .nonsense:
        return page(1, seq, #"{"seq":\#(seq),"at":1,"id":"x","body":{"key":"none","updated_at":\#(seq)}}"#)
      case .restored: return from.seq == 0 ? page(1, 1) : #"{"diverged":true,"resume":0,"resume_at":\#(questions)}"#
      case .documents:
        let key = "node/" + String(repeating: "ab", count: 32) + "/note"
        let body = #"{"key":"\#(key)","value":"\#(seq)","updated_at":\#(seq),"by_hub":true}"#
        return page(1, seq, #"{"seq":\#(seq),"at":1,"id":"\#(seq)","body":\#(body)}"#)
      }
    }
  }
}

@Suite(.serialized) struct BucketLogTests {
  @Test(arguments: EndlessSource.Lie.allCases)
  fileprivate func `a hub with endless updates is asked rarely, and fills neither the journal nor the log`(
    _ lie: EndlessSource.Lie
  ) throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    store.write { store throws(SQLiteError) in
      let key = "node/" + String(repeating: "cd", count: 32) + "/note"
      _ = try store.editDocument(key, "ours", at: Moment(milliseconds: 1, trusted: true))
    }
    var lines: [String] = []
    let log = Log(level: .notice, sink: { _, line in lines.append(line) })
    let intake = CommandIntake(
      Upstream.Settings(name: "hub", allowed: [], commandsPerMinute: 10), store: store, on: loop, log: log)
    let source = EndlessSource(lie)
    let sync = BucketSync(
      upstream: "hub", rights: ["documents"], store: store, source: source, commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    defer { sync.stop() }
    sync.reachable(true)
    func pass(_ hours: Int) -> (events: Int64, questions: Int, lines: Int) {
      let before = (store.lastSeq, source.questions, lines.count)
      loop.pass(.seconds(Int64(hours) * 3600))
      return (store.lastSeq - before.0, source.questions - before.1, lines.count - before.2)
    }
    // The pages that may come at once, and then those of a day.
    let first = pass(1)
    #expect(first.events <= 4500 && first.questions <= 4800, "\(first)")
    #expect(sync.report.trouble != nil, "it is reported: \(sync.report)")
    let day = pass(24)
    #expect(day.events <= (lie == .documents ? 8700 : 1500), "\(day)")
    #expect(day.questions <= (lie == .documents ? 11_000 : 4000) && day.lines <= 1500, "\(day)")
  }

  @Test func `each fetch and each update is one log line without the update's content`() throws {
    let scratch = Scratch()
    let loop = EventLoop()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    var lines: [String] = []
    let log = Log(level: .debug, sink: { level, line in if level == .debug { lines.append(line) } })
    let intake = CommandIntake(
      Upstream.Settings(name: "hub", allowed: ["send"], commandsPerMinute: 10), store: store, on: loop, log: log)
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

  private final class Host: RelayHost {
    var changes = 0
    var exchangedChannels: [String] { [] }
    var takenGateways: [String] { [] }

    func carryOut(_ command: RemoteCommand) async -> CommandAnswer { .refused(code: "no", message: "no") }
    func documentsChanged() { changes += 1 }
    func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .skipped }
  }

  @Test func `a page of documents changes settings once, and the number of documents is bounded`() throws {
    let (scratch, loop, host) = (Scratch(), EventLoop(), Host())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    let log = Log(sink: { _, _ in })
    let intake = CommandIntake(Upstream.Settings(name: "hub"), store: store, on: loop, log: log)
    let sync = BucketSync(
      upstream: "hub", rights: ["documents"], store: store, source: ReadySource(), commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    sync.host = host
    var seq: Int64 = 0
    var pages = 0
    for page in 1...102 as ClosedRange<Int> {
      let updates = (0..<100).map { _ in
        seq += 1
        let key = String(repeating: "0", count: 58) + String(100_000 + seq)
        return CatchUp.Update(
          seq: seq, at: 1, id: "\(seq)", body: Array(#"{"key":"node/\#(key)/note","value":"x","updated_at":1}"#.utf8))
      }
      let position = CatchUp.Position(seq: seq)
      _ = loop.begin {
        // `try?`: `pages` shows the result.
        guard (try? await sync.apply(CatchUp.Outcome(updates: updates, position: position), "documents")) != nil else {
          return
        }
        pages += 1
      }
      let isDone = turn(loop) { pages == page }
      #expect(isDone)
    }
    #expect(host.changes == 100)
    var count = 0
    try store.eachDocument { _ in
      count += 1; return true
    }
    #expect(count == 10_000)
    sync.stop()
  }

  @Test func `a broker's clients get at most twice as many answers a minute as they may send commands`() throws {
    let (scratch, loop) = (Scratch(), EventLoop(on: InventedMachine()))
    defer { withExtendedLifetime(scratch) {} }
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let desk = CommandIntake(
      Upstream.Settings(name: "broker", commandsPerMinute: 3), store: store, on: loop, log: Log())
    var answered = 0
    for _ in 0..<2 {
      for _ in 0..<100 { answered += desk.mayAnswer(atLeast: 0) ? 1 : 0 }
      let timer = loop.schedule(after: .seconds(60)) {}
      loop.turn(wait: true)
      timer.cancel()
    }
    #expect(answered == 12)
  }
}
