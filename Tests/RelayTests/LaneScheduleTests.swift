// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// A hub at the end of a bad line, in invented time. It takes batches in the order in which they are sent, answers later, and does
/// not always live to answer.
private final class LaneHub: Carrier {
  /// What it has; a copy of this is its backup.
  struct Contents {
    var acknowledged = ByLane<Int64?>(all: nil)
    var whole: Int64?
    /// By lane, as they came: each identity once.
    var events = ByLane<[Int64]>(all: [])
    var known: Set<Int64> = []
    /// Events that others stand for, by these.
    var folded: [Int64: Int64] = [:]
  }

  let kind: String
  let place = "nowhere"
  /// As brokers and webhooks, which know no order, it gets one batch at a time.
  var window: Int { kind == "hub" ? 4 : 1 }
  var bytesSent: UInt64 = 0
  private let loop: EventLoop
  private var random: SeededRandom
  /// It knows lanes.
  var knowsLanes: Bool
  var refused: Set<Int64> = []
  /// One in so many batches ends the connection; 0: none does.
  var cuts = 0
  private(set) var contents = Contents()
  private var backup = Contents()
  private var isUp = false
  private var free = MonotonicTime(seconds: 0)
  private(set) var sent = 0
  private(set) var bytesTaken = 0
  private(set) var complaints: [String] = []

  init(_ kind: String, on loop: EventLoop, seed: UInt64, knowsLanes: Bool = true) {
    (self.kind, self.loop, random, self.knowsLanes) = (kind, loop, SeededRandom(seed: seed), knowsLanes)
  }

  func greet() async -> Greeting {
    // `try?`: whoever is cancelled is answered, too.
    try? await loop.sleep(for: .milliseconds(600))
    if cuts > 0, chance(5) { return .failed(.retry(reason: "no way", after: nil)) }
    isUp = true
    guard kind == "hub" else { return .ready }
    return .has(knowsLanes ? .byLane(contents.acknowledged) : .whole(contents.whole))
  }

  private func chance(_ one: Int) -> Bool { Int.random(in: 0..<one, using: &random) == 0 }

  func carry(_ batch: Batch) async -> Verdict {
    guard isUp else { return .retry(reason: "the link is down", after: nil) }
    if cuts > 0, chance(cuts) {
      // Before it came, or before the answer did.
      if chance(2) { _ = take(batch) }
      isUp = false
      return .hungUp(reason: "cut")
    }
    let verdict = take(batch)
    // Answers come in the order of the batches.
    free = max(free, loop.now) + .milliseconds(Int64(batch.size / 4))
    // `try?`: void is void.
    try? await loop.sleep(for: free - loop.now + .milliseconds(600))
    return isUp ? verdict : .hungUp(reason: "cut")
  }

  private func take(_ batch: Batch) -> Verdict {
    let lane = batch.lane ?? .messages
    let has = knowsLanes ? contents.acknowledged[lane] : contents.whole
    if kind == "hub", let after = batch.after, after > has ?? 0 {
      return .retry(reason: "the hub misses what came before", after: nil)
    }
    if let seq = batch.events.map(\.seq).first(where: refused.contains) {
      return .refused(status: 422, reason: "not \(seq)")
    }
    for event in batch.events {
      if knowsLanes, Lane(of: event) != lane { complaints.append("\(event.seq) is of another lane than \(lane)") }
      sent += 1
      bytesTaken += event.body.count
      guard contents.known.insert(event.seq).inserted else { continue }
      contents.events[Lane(of: event)].append(event.seq)
      // `try?`: these are our own.
      contents.folded[event.seq] = (try? JSONValue(parsing: event.body))?["folded"]?.integer
    }
    let last = batch.events.last?.seq ?? 0
    contents.acknowledged[lane] = max(contents.acknowledged[lane] ?? 0, last)
    contents.whole = max(contents.whole ?? 0, last)
    return .acknowledged(through: kind == "hub" ? max(has ?? 0, last) : batch.last)
  }

  func keepBackup() { backup = contents }

  /// It is an older copy of itself.
  func restore() {
    (contents, isUp) = (backup, false)
  }

  func close() { isUp = false }
}

/// A gateway with one upstream in invented time, and everything that can happen to it.
private final class Schedule {
  let scratch = Scratch(inMemory: true)
  let loop = EventLoop(on: InventedMachine())
  let store: Store
  let hub: LaneHub
  private var upstream: JournalUpstream?
  private var random: SeededRandom
  private let seed: UInt64
  private(set) var appended = ByLane<[Int64]>(all: [])
  /// What tells the same of the same node, in order.
  private(set) var states: [String: [Int64]] = [:]
  private(set) var restarts = 0
  private let folds: Bool

  init(seed: UInt64, kind: String = "hub", knowsLanes: Bool = true, folds: Bool = false) throws {
    self.folds = folds
    store = try Store(Store.Settings(location: scratch.location("gw.db")))
    random = SeededRandom(seed: seed)
    self.seed = seed
    hub = LaneHub(kind, on: loop, seed: seed &+ 1, knowsLanes: knowsLanes)
    try start()
    loop.afterTurn { [unowned self] in
      store.commit()
      if store.takeNews().hasGrown { upstream?.wake() }
    }
  }

  func start() throws {
    var settings = JournalUpstream.Settings(
      name: "hub", batchEvents: 20, batchBytes: 4096, fromStart: true, folds: folds)
    settings.filter = EventFilter(kinds: Set(EventKind.allCases.map(\.rawValue)))
    upstream = try JournalUpstream(
      settings, carrier: hub, store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    upstream?.random = SeededRandom(seed: seed &+ 2)
    upstream?.wake()
  }

  /// As after a kill: what was not on disk is gone with it.
  func restart() throws {
    restarts += 1
    upstream?.stop()
    try start()
  }

  func stop() { upstream?.stop() }

  func append(_ kind: EventKind, node: Int? = nil) {
    let number = String(node ?? Int.random(in: 0..<6, using: &random))
    let key = String(repeating: "0", count: 24 - number.count) + number + String(repeating: "a", count: 40)
    let filling = String(repeating: "y", count: Int.random(in: 0...300, using: &random))
    let body = Array(
      "{\"\(kind == .telemetry ? "node" : "key")\":\"\(key)\",\"x\":\"\(filling)\",\"readings\":[]}".utf8)
    store.write { [unowned self] store throws(SQLiteError) in
      let seq = try store.append(kind, at: Moment(milliseconds: 1, trusted: true), body: body)
      self.appended[kind.lane].append(seq)
      self.states["\(kind) \(number)", default: []].append(seq)
    }
  }

  /// What a hub need not have that has these: of each node, what is older than what it has, unless it was refused.
  func foldable(_ here: Set<Int64>, refused: Set<Int64>) -> Set<Int64> {
    guard folds else { return [] }
    return states.reduce(into: []) { found, state in
      guard Self.folding.contains(where: { state.key.hasPrefix("\($0) ") }) else { return }
      guard let newest = state.value.last(where: { here.contains($0) || refused.contains($0) }) else { return }
      found.formUnion(state.value.filter { $0 < newest })
    }
  }

  private static let folding: [EventKind] = [.advert, .contact, .telemetry, .status]

  var pending: Int64 { upstream?.status.pending ?? 0 }

  /// Some invented seconds.
  func pass(_ seconds: Int64) {
    let end = loop.now + .seconds(seconds)
    while loop.now < end {
      let timer = loop.schedule(after: min(.seconds(1), end - loop.now)) {}
      loop.turn(wait: true)
      timer.cancel()
    }
  }

  func pass(untilDelivered limit: Int64) -> Bool {
    // What was written last is on disk after this turn.
    pass(1)
    for _ in 0..<limit {
      if pending == 0, store.lastSeq > 0 { return true }
      pass(1)
      upstream?.networkChanged()
    }
    return false
  }
}

@Suite struct LaneScheduleTests {
  /// `MESHPOST_SCHEDULES`, of each hub, from `MESHPOST_SEED` on.
  private static var seeds: Range<UInt64> {
    let given = { (name: String) in ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) } }
    let first = given("MESHPOST_SEED") ?? 0
    return first..<first + (given("MESHPOST_SCHEDULES") ?? 100)
  }

  private static let kinds: [EventKind] = [
    .message, .advert, .advert, .contact, .packet, .packet, .outgoing, .contactRemoved, .telemetry,
  ]

  @Test(arguments: [
    ("hub", true, false), ("hub", false, false), ("mqtt", true, false), ("hub", true, true), ("hub", false, true),
    ("mqtt", true, true),
  ])
  func `whatever happens to line, hub and gateway, each lane arrives once and in order`(
    _ hub: (kind: String, knowsLanes: Bool, folds: Bool)
  ) throws {
    var foldedInAll = 0
    for seed in Self.seeds {
      let schedule = try Schedule(seed: seed, kind: hub.kind, knowsLanes: hub.knowsLanes, folds: hub.folds)
      var random = SeededRandom(seed: seed &+ 1000)
      schedule.hub.cuts = seed % 3 == 0 ? 0 : 8
      var refused: Set<Int64> = []
      var restores = 0
      for _ in 0..<60 {
        switch Int.random(in: 0..<12, using: &random) {
        case 0...5:
          for _ in 0..<Int.random(in: 1...12, using: &random) {
            schedule.append(Self.kinds.randomElement(using: &random) ?? .message)
          }
        case 6: schedule.hub.keepBackup()
        case 7 where seed % 2 == 1 && hub.kind == "hub":
          schedule.hub.restore()
          restores += 1
        case 8 where !hub.folds || seed % 6 != 0: try schedule.restart()
        case 9 where seed % 5 == 0:
          refused.insert(schedule.store.lastSeq + 1)
          schedule.hub.refused = refused
        default: schedule.pass(Int64.random(in: 1...20, using: &random))
        }
      }
      schedule.hub.cuts = 0
      // That a hub was restored is seen when something is to be said to it.
      schedule.append(.message)
      #expect(schedule.pass(untilDelivered: 4000), "seed \(seed): \(schedule.pending) pending")
      #expect(schedule.hub.complaints.isEmpty, "seed \(seed): \(schedule.hub.complaints)")
      var buried: Set<Int64> = []
      try schedule.store.eachDeadLetter { letter in
        buried.insert(letter.event.seq)
        return true
      }
      for lane in Lane.allCases {
        let here = schedule.hub.contents.events[lane]
        let missing = Set(schedule.appended[lane]).subtracting(here).subtracting(buried)
        let foldable = schedule.foldable(Set(here), refused: buried)
        let wanted = schedule.appended[lane].filter {
          !buried.contains($0) && !(missing.contains($0) && foldable.contains($0))
        }
        let isRight = here == wanted
        if lane == Folding.lane {
          foldedInAll += missing.count
          // What was under way at a cut or a restart may be folded later, and be counted; or nobody remembers that it was folded. One
          // that is a dead letter may stand behind another one when a restored hub is sent all again.
          let isQuiet = schedule.restarts == 0 && restores == 0 && buried.isEmpty && seed % 3 == 0
          for (state, seqs) in schedule.states {
            let told = seqs.reduce(0) { $0 + (schedule.hub.contents.folded[$1] ?? 0) }
            let most = Int64(seqs.count { missing.contains($0) || buried.contains($0) })
            let isTold = isQuiet ? told == most : told <= most || hub.kind == "mqtt"
            #expect(isTold, "\(hub.kind) seed \(seed), \(state): \(told) of \(most) told")
          }
        }
        #expect(
          isRight,
          """
          \(hub.kind) seed \(seed), \(lane), \(restores) restores: missing \(Set(wanted).subtracting(here).sorted()), \
          not wanted \(Set(here).subtracting(wanted).sorted()), in order: \(here == here.sorted())
          """)
      }
      #expect(buried.isSubset(of: refused), "seed \(seed)")
      schedule.stop()
      // Its tasks end, and with them what they hold open.
      schedule.pass(2)
    }
    #expect((foldedInAll > 0) == (hub.folds && hub.knowsLanes), "\(foldedInAll) folded")
  }

  @Test func `of ten thousand adverts of 800 nodes, each node's newest goes`() throws {
    var figures: [Bool: (events: Int, bytes: Int, seconds: Double, cpu: Duration)] = [:]
    for folds in [false, true] {
      var random = SeededRandom(seed: 9)
      let schedule = try Schedule(seed: 9, folds: folds)
      schedule.stop()
      for _ in 0..<10_000 { schedule.append(.advert, node: Int.random(in: 0..<800, using: &random)) }
      schedule.pass(1)
      let (begun, clock) = (schedule.loop.now, ContinuousClock.now)
      try schedule.restart()
      #expect(schedule.pass(untilDelivered: 2000))
      let here = Set(schedule.hub.contents.events.nodes)
      #expect(schedule.states.values.allSatisfy { here.contains($0.last ?? 0) })
      #expect(schedule.hub.contents.folded.values.reduce(0, +) == (folds ? Int64(10_000 - here.count) : 0))
      figures[folds] = (
        schedule.hub.sent, schedule.hub.bytesTaken, (schedule.loop.now - begun).inSeconds, ContinuousClock.now - clock
      )
      schedule.stop()
    }
    let folded = try #require(figures[true])
    #expect(figures[false]?.events == 10_000 && folded.events < 1000, "\(figures)")
  }

  @Test func `a hub that learns lanes, and forgets them, gets everything`() throws {
    let schedule = try Schedule(seed: 7, knowsLanes: false)
    for round in 0..<6 {
      schedule.hub.knowsLanes = round % 2 == 1
      schedule.hub.close()
      for kind in Self.kinds { schedule.append(kind) }
      #expect(schedule.pass(untilDelivered: 600), "round \(round)")
    }
    for lane in Lane.allCases { #expect(schedule.hub.contents.events[lane] == schedule.appended[lane]) }
    schedule.stop()
  }

  @Test func `a message overtakes what waits below it`() throws {
    let schedule = try Schedule(seed: 8)
    schedule.pass(2)
    for _ in 0..<500 { schedule.append(.advert) }
    schedule.pass(5)
    let before = schedule.hub.contents.events.nodes.count
    schedule.append(.message)
    schedule.pass(4)
    #expect(schedule.hub.contents.events.messages.count == 1)
    #expect(schedule.hub.contents.events.nodes.count < 400 && schedule.hub.contents.events.nodes.count > before)
    schedule.stop()
  }
}
