// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// Executes nothing until the disk accepts it, and records how long each command had waited.
private final class Host: RelayHost {
  var waited: [Int64] = []
  var isReadyForCommands = true
  var exchangedChannels: [String] { [] }
  var takenGateways: [String] { [] }

  func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    waited.append(command.waited)
    return .done(Array("{}".utf8))
  }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .skipped }
}

/// A hub with a waiting command.
private final class WaitingSource: UpdatesSource {
  weak var updates: BucketSync?
  private(set) var questions = 0

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    questions += 1
    let command = #"{"seq":1,"at":1,"id":"c","body":{"id":"c","command":"send","to":"x","text":"y"}}"#
    let text =
      switch question {
      case .state: #"{"buckets":[{"bucket":"commands","seq":1,"at":1}]}"#
      case .page: #"{"first":1,"last":1,"last_at":1,"updates":[\#(command)]}"#
      }
    // `try?`: this text is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }
}

@Suite(.serialized) struct QueuedCommandTests {
  @Test func `queued commands are refused where nothing is allowed, at little cost`() throws {
    let (host, source) = (Host(), WaitingSource())
    // A refusal needs no radio.
    host.isReadyForCommands = false
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, store, sync) = (bench.loop, bench.store, bench.sync)
    sync.reachable(true)
    loop.pass(.seconds(5))
    let answer = try String(decoding: #require(try store.commandAnswer("c", of: "hub")), as: UTF8.self)
    #expect(answer.contains("not_allowed") && answer.contains("allowed are: none"), "\(answer)")
    #expect(host.waited.isEmpty && store.lastSeq == 1, "the hub gets the refusal by the journal")
    loop.pass(.seconds(86_400))
    #expect(source.questions <= 30, "\(source.questions)")
  }

  @Test(arguments: [true, false])
  func `a queued command that has ended here is reported again, and not carried out`(_ isDone: Bool) throws {
    let (host, source) = (Host(), WaitingSource())
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, store, sync) = (bench.loop, bench.store, bench.sync)
    let answer = isDone ? #"{"id":"c","ok":true,"result":{"n":1}}"# : #"{"id":"c","ok":false,"error":"no","code":"x"}"#
    store.write { store throws(SQLiteError) in
      try store.answerCommand("c", of: "hub", body: Array("{}".utf8), answer: Array(answer.utf8))
    }
    loop.pass(.seconds(1))
    #expect(store.lastSeq == 0)
    sync.reachable(true)
    loop.pass(.seconds(5))
    #expect(store.lastSeq == 1 && host.waited.isEmpty, "the hub's queue learns of the end")
  }

  @Test func `a command that comes again after a thousand others is refused, and not carried out again`() throws {
    let (host, source) = (Host(), WaitingSource())
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, store, sync) = (bench.loop, bench.store, bench.sync)
    store.write { store throws(SQLiteError) in
      for number in 0...1000 {
        try store.answerCommand(
          number == 0 ? "c" : "c\(number)", of: "hub", body: Array("{}".utf8), answer: Array(#"{"ok":true}"#.utf8))
      }
    }
    #expect(try store.commandAnswer("c", of: "hub") == [], "its answer is not kept")
    #expect(try store.commandAnswer("c1", of: "hub")?.isEmpty == false)
    loop.pass(.seconds(1))
    sync.reachable(true)
    loop.pass(.seconds(5))
    #expect(store.lastSeq == 1 && host.waited.isEmpty, "the hub's queue learns that it has ended")
  }

  @Test(arguments: [nil, 0, 600_000] as [Int64?])
  func `a command's waiting time goes by the hub's report and the time since, not by clocks`(_ age: Int64?) throws {
    // The hub's clock differs widely from the gateway's.
    for at in [0, 1_900_000_000_000] as [Int64] {
      let (scratch, loop, host) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()), Host())
      let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: loop.clocks)
      loop.afterTurn { store.commit() }
      let intake = CommandIntake(
        Upstream.Settings(name: "hub", allowed: ["send"]), store: store, on: loop,
        log: Log(sink: { _, _ in }))
      let waited = age.map { #""age_ms":\#($0),"# } ?? ""
      let page = #"""
        {"first":1,"last":1,"last_at":\#(at),"updates":[{"seq":1,"at":\#(at),"id":"c",\#(waited)"body":{"id":"c","command":"send","to":"x","text":"y"}}]}
        """#
      guard case .updates(let updates, _, _, _, _, _)? = CatchUp.Page(try JSONValue(parsing: Array(page.utf8))) else {
        #expect(Bool(false), "\(page)")
        continue
      }
      store.write { store throws(SQLiteError) in
        _ = try store.queueCommand(updates[0].body, id: updates[0].id, of: "hub", age: updates[0].age)
      }
      loop.pass(.seconds(90))
      // A gateway's first connection: its radio was not read yet.
      host.isReadyForCommands = false
      intake.host = host
      intake.runNext()
      loop.pass(.seconds(25))
      #expect(host.waited.isEmpty)
      host.isReadyForCommands = true
      loop.pass(.seconds(10))
      #expect(host.waited == [120_000 + (age ?? 0)])
      withExtendedLifetime(scratch) {}
    }
  }
}
