// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

/// Accepts everything, like a broker.
private final class Broker: Carrier {
  let kind = "mqtt"
  let place = "nowhere"
  let keepsConnection = true
  let serverKeepsCount = false
  let bytesSent: UInt64 = 0
  var took: (JournalEvent) -> Void = { _ in }

  func greet() async -> Greeting { .ready }

  func carry(_ batch: Batch) async -> Verdict {
    for event in batch.events { took(event) }
    return .acknowledged(through: batch.last)
  }

  func close() {}
}

private final class Host: RelayHost {
  func carryOut(_ command: RemoteCommand) async -> CommandAnswer { .done(Array("1".utf8)) }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .skipped }
  var exchangedChannels: [String] { [] }
  var takenGateways: [String] { [] }
}

/// A gateway without a radio, in invented time.
private final class Hour {
  let scratch = Scratch(inMemory: true)
  let machine = InventedMachine()
  let loop: EventLoop
  let store: Store
  let broker = Broker()
  private(set) var upstream: Upstream?
  private(set) var commits = 0
  private var timer: LoopTimer?

  init(_ profile: StoreProfile) throws {
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db"), profile: profile), clocks: machine)
    let filter = EventFilter(kinds: ["message", "advert", "packet", "command"])
    upstream = try Upstream(
      Upstream.Settings(name: "analyzer", filter: filter, fromStart: true), carrier: broker, store: store,
      on: loop, log: Log())
    loop.afterTurn { [weak self] in
      guard let self else { return }
      store.commit()
      let news = store.transactions.takeNews()
      if let pause = news.pause {
        timer?.cancel()
        timer = loop.schedule(after: pause) { [store] in store.commitGathered() }
      }
      guard news.hasGrown else { return }
      commits += 1
      upstream?.wake()
    }
  }

  deinit {
    upstream?.stop()
    loop.turn(wait: false)
  }

  func pass(until end: MonotonicTime) {
    loop.pass(end - loop.now)
  }

  @discardableResult
  func write(_ kind: EventKind, _ when: When) -> Commit {
    let body = JSONWriter.object { $0.field("heard", loop.now.nanoseconds / 1_000_000) }
    return store.write(when: when) { store throws(SQLiteError) in
      try store.append(kind, at: Moment(milliseconds: 1, trusted: true), body: body)
    }
  }

  /// The store as a power cut leaves it.
  func remains() throws -> Store {
    try Store(Store.Settings(location: try scratch.afterCut("gw.db")), clocks: machine)
  }
}

@Suite struct BusyHourTests {
  @Test(arguments: [(StoreProfile.durable, UInt64(1)), (.balanced, 2), (.wear, 3)])
  func `an hour of a busy mesh costs few commits, and a power cut loses no sent event`(
    _ profile: StoreProfile, _ seed: UInt64
  ) throws {
    let hour = try Hour(profile)
    let loop = hour.loop
    var random = SeededRandom(seed: seed)
    var (sent, longest, kept, lacking) = ([Int64](), Int64(0), Int64(0), [Int64]())
    hour.broker.took = { event in
      sent.append(event.seq)
      // `try?`: an unreadable body counts as missing.
      let heard = (try? JSONValue(parsing: event.body))?["heard"]?.integer ?? 0
      longest = max(longest, loop.now.nanoseconds / 1_000_000 - heard)
      if event.seq > kept { kept = (try? hour.remains().lastSeq) ?? 0 }
      if event.seq > kept { lacking.append(event.seq) }
    }
    hour.upstream?.wake()
    hour.pass(until: loop.now + .seconds(60))
    let (begin, before) = (loop.now, hour.commits)
    var messages: [Commit] = []
    let counts: [(EventKind, When, Int)] = [(.packet, .heard, 600), (.advert, .heard, 100), (.message, .message, 30)]
    for (kind, when, count) in counts {
      for _ in 0..<count {
        loop.schedule(at: begin + .milliseconds(Int64.random(in: 0..<3_600_000, using: &random))) {
          let commit = hour.write(kind, when)
          if kind == .message { messages.append(commit) }
        }
      }
    }
    hour.pass(until: begin + .seconds(3600))
    hour.store.commitGathered()
    hour.pass(until: begin + .seconds(3700))
    let gathering: Int = profile == .wear ? 15 : 60
    #expect(hour.commits - before <= 3600 / gathering + 2 * 30 + 3, "seed \(seed)")
    #expect(messages.count == 30 && messages.allSatisfy(\.isDurable))
    #expect(sent.count == 730 && Set(sent) == Set(1...730), "each once, seed \(seed)")
    #expect(lacking.isEmpty, "sent, and not on disk, seed \(seed)")
    #expect(longest <= gathering * 1000 + 100, "seed \(seed)")
  }

  @Test func `a command is on disk before its answer, together with earlier waiting writes`() throws {
    let hour = try Hour(.durable)
    let desk = CommandIntake(
      Upstream.Settings(name: "hub", allowed: ["send"]), store: hour.store, on: hour.loop, log: Log())
    let host = Host()
    desk.host = host
    hour.write(.packet, .heard)
    hour.loop.turn(wait: false)
    #expect(hour.store.transactions.hasUncommitted)
    var found: Int64?
    _ = hour.loop.begin {
      _ = await desk.take(Array(#"{"id":"a","command":"send"}"#.utf8))
      // `try?`: without a store nothing is found.
      found = try? hour.remains().lastSeq
    }
    #expect(turn(hour.loop) { found != nil })
    #expect(found == 2)
  }
}
