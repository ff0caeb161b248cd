// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

@testable import Relay

/// A server at the end of a bad line, in invented time: a hub, or a broker or webhook, which know no order. It accepts batches in the order of
/// sending, answers later, and may break down before its answer.
final class ScheduledServer: Carrier {
  /// The faults of its line.
  struct Line {
    /// One in this many batches ends the connection; 0: none does.
    var cuts = 0
    var bytesPerSecond = 4000
    var pause: Duration = .milliseconds(600)
    /// Some answers arrive after a minute.
    var isLate = false
    /// Batches that were sent before a cut may arrive long after it.
    var hasGhosts = false
    /// Sometimes it accepts nothing for a while, with or without keeping the connection.
    var isBusy = false
  }

  /// Its events of one epoch.
  struct Journal {
    var acknowledged = ByLane<Int64?>(all: nil)
    var whole: Int64?
    /// By lane, in order of arrival, each identity once.
    var seqs = ByLane<[Int64]>(all: [])
    var known: Set<Int64> = []
  }

  /// Its content; a copy of this is its backup.
  struct Contents {
    var journals: [String: Journal] = [:]
    /// The identities of all epochs, from the events' content.
    var identities: Set<Int64> = []
    /// The number of replaced events, by the replacing event.
    var folded: [Int64: Int64] = [:]
    /// The event of each state that arrived last.
    var states: [ScheduledEvent.State: Int64] = [:]
  }

  let kind: String
  var serverKeepsCount: Bool { kind == "hub" }
  let place = "nowhere"
  let window: Int
  /// A broker answers for each event, and may accept events after one that it does not accept.
  var mayTakeInPart: Bool { kind == "mqtt" }
  /// It did not accept a batch for a while, but accepted the following ones that were in transit.
  private(set) var hasOvertaken = false
  /// Acknowledged events after one that was not accepted are sent again.
  private var mayReceiveAgain: Bool { mayTakeInPart && window > 1 }
  var keepsConnection: Bool { kind != "webhook" }
  var bytesSent: UInt64 = 0
  private(set) var lineBytes: UInt64 = 0
  private let loop: EventLoop
  private var random: SeededRandom
  var knowsLanes: Bool
  var line = Line()
  /// Events that it refuses, and events at which it breaks down.
  var refused: Set<Int64> = []
  /// Events that it has refused at least once. If it accepts one after all, this may arrive after an event that proved that it accepts any.
  private(set) var wasRefused: Set<Int64> = []
  var deadly: Set<Int64> = []
  /// It refuses its gateway's token.
  var isLocked = false
  /// The gateway's present epoch, and the lanes with waiting events.
  var epoch: () -> String = { "" }
  var waits: (Lane) -> Int64 = { _ in 0 }
  private(set) var contents = Contents()
  private var backup = Contents()
  private var isUp = false
  /// The number of the connection.
  private var link = 0
  private var underWay = 0
  private var end = Promise<ConnectionEnd>()
  private var free = MonotonicTime(seconds: 0)
  /// The last seqs whose acknowledgement the gateway got.
  private var answered = ByLane<Int64>(all: 0)
  private var restores = 0
  private var since = ByLane<Int>(all: 0)
  private(set) var longestSince = ByLane<Int>(all: 0)
  private(set) var sent = 0
  private(set) var bytesTaken = 0
  private(set) var complaints: [String] = []

  init(_ kind: String, on loop: EventLoop, seed: UInt64, knowsLanes: Bool) {
    (self.kind, self.loop, random, self.knowsLanes) = (kind, loop, SeededRandom(seed: seed), knowsLanes)
    window = kind == "webhook" || kind == "mqtt" && seed % 4 < 2 ? 1 : 4
  }

  private var journal: Journal {
    get { contents.journals[epoch()] ?? Journal() }
    set { contents.journals[epoch()] = newValue }
  }

  /// The seqs of the gateway's present journal.
  var seqs: ByLane<[Int64]> { journal.seqs }

  private func chance(_ one: Int) -> Bool { Int.random(in: 0..<one, using: &random) == 0 }

  private var pause: Duration {
    line.pause + (line.isLate && chance(10) ? .milliseconds(Int64.random(in: 1000...60_000, using: &random)) : .zero)
  }

  // MARK: Connections

  func greet() async -> Greeting {
    link += 1
    let mine = link
    isUp = false
    lineBytes += 3000
    // `try?`, twice: a cancelled caller gets an answer, too.
    try? await loop.sleep(for: pause)
    if isLocked { return .failed(.stopped(reason: "HTTP 401")) }
    if line.cuts > 0, chance(10) { return .failed(.retry(reason: "no way", after: nil)) }
    let journal = journal
    try? await loop.sleep(for: pause)
    // The answer is lost.
    if line.cuts > 0, chance(10) || link != mine { return .failed(.retry(reason: "no welcome in time", after: nil)) }
    guard link == mine else { return .failed(.retry(reason: "closed", after: nil)) }
    lineBytes += 500
    end = Promise()
    isUp = true
    since = ByLane(all: 0)
    guard kind == "hub" else { return .ready }
    // An unknown epoch has no lanes.
    return .has(knowsLanes ? .byLane(journal.acknowledged) : .whole(journal.whole))
  }

  func hold() async throws(CancellationError) -> ConnectionEnd { try await end.value() }

  /// Ends the connection, as after a long silence or a cut line.
  func lose() {
    guard isUp else { return }
    isUp = false
    end.keep(.lost(underWay > 0 ? nil : .retry(reason: "no answer to a ping", after: nil)))
  }

  /// Asks the gateway for a new connection.
  func outdate() { if isUp { end.keep(.outdated) } }

  func close() {
    if isUp { lineBytes += 150 }
    isUp = false
    link += 1
  }

  // MARK: Batches

  func carry(_ batch: Batch) async -> Verdict {
    guard isUp else { return .retry(reason: "the link is down", after: nil) }
    let mine = link
    underWay += 1
    defer { underWay -= 1 }
    lineBytes += UInt64(batch.size + 200)
    bytesSent += UInt64(batch.size)
    if line.cuts > 0, chance(line.cuts) { return cut(over: batch) }
    if batch.events.contains(where: { deadly.contains(ScheduledEvent.identity(of: $0)) }) {
      lose()
      return .hungUp(reason: "it broke down")
    }
    if line.isBusy, chance(30) {
      since = ByLane(all: 0)
      hasOvertaken = hasOvertaken || mayReceiveAgain
      let after: Duration? = chance(2) ? nil : .seconds(Int64.random(in: 1...20, using: &random))
      return chance(2) ? .busy(reason: "busy", after: after) : .retry(reason: "busy", after: after)
    }
    let verdict = take(batch)
    // Answers arrive in the order of the batches.
    free = max(free, loop.now) + .milliseconds(Int64(batch.size * 1000 / line.bytesPerSecond))
    // `try?`: the batch is void in any case.
    try? await loop.sleep(for: free - loop.now + pause)
    guard link == mine, isUp else { return .hungUp(reason: "cut") }
    // An event that came alone may have been the proof that a broker accepts any.
    if case .acknowledged(let through) = verdict, !Task.isCancelled, kind == "hub" || batch.events.count > 1 {
      let lane = batch.lane ?? .messages
      answered[lane] = max(answered[lane], min(through, batch.last))
    }
    return verdict
  }

  /// Cuts the line before the batch arrives, in the middle of it, or before the answer.
  private func cut(over batch: Batch) -> Verdict {
    switch Int.random(in: 0..<3, using: &random) {
    case 0: break
    case 1 where kind != "hub":
      // One event after the other: some arrived, and a broker may have acknowledged them, but not those that it refuses.
      let good = batch.events.firstIndex { refused.contains(ScheduledEvent.identity(of: $0)) } ?? batch.events.count
      let part = batch.events.prefix(Int.random(in: 0...good, using: &random))
      for event in part { keep(event) }
      guard mayTakeInPart, chance(2), part.count < batch.events.count, let last = part.last else { break }
      lose()
      return .acknowledged(through: last.seq)
    case 1 where line.hasGhosts:
      let (epoch, restores) = (epoch(), restores)
      loop.schedule(after: .milliseconds(Int64.random(in: 1...40_000, using: &random))) { [weak self] in
        if let self, self.epoch() == epoch, self.restores == restores { _ = self.take(batch, isGhost: true) }
      }
    default: _ = take(batch)
    }
    lose()
    return .hungUp(reason: "cut")
  }

  private func take(_ batch: Batch, isGhost: Bool = false) -> Verdict {
    let lane = batch.lane ?? .messages
    if kind != "hub" { return takeEach(batch) }
    let has = knowsLanes ? journal.acknowledged[lane] : journal.whole
    if let after = batch.after, after > has ?? 0 {
      return .retry(reason: "the hub is missing earlier events", after: nil)
    }
    if let bad = batch.events.first(where: { refused.contains(ScheduledEvent.identity(of: $0)) }) {
      return .refused(status: 422, reason: "not \(bad.seq)")
    }
    if !isGhost { look(batch) }
    for event in batch.events { keep(event) }
    guard let last = batch.events.last?.seq else { return .acknowledged(through: has ?? 0) }
    journal.acknowledged[lane] = max(journal.acknowledged[lane] ?? 0, last)
    journal.whole = max(journal.whole ?? 0, last)
    if !isGhost { progressed(lane, batch) }
    return .acknowledged(through: max(has ?? 0, last))
  }

  /// Accepts events one by one: a broker gets them one after another, a webhook one in each request.
  private func takeEach(_ batch: Batch) -> Verdict {
    look(batch)
    var through: Int64?
    var bad: Int64?
    for event in kind == "webhook" ? batch.events.prefix(1) : batch.events[...] {
      if refused.contains(ScheduledEvent.identity(of: event)) {
        bad = bad ?? event.seq
        wasRefused.insert(ScheduledEvent.identity(of: event))
        continue
      }
      keep(event)
      if bad == nil { through = event.seq }
    }
    if let bad { return through.map { .acknowledged(through: $0) } ?? .refused(status: 422, reason: "not \(bad)") }
    let lane = batch.lane ?? .messages
    journal.acknowledged[lane] = max(journal.acknowledged[lane] ?? 0, batch.last)
    progressed(lane, batch)
    let isWhole = kind != "webhook" || batch.events.count == 1
    return .acknowledged(through: isWhole ? batch.last : through ?? 0)
  }

  private func look(_ batch: Batch) {
    guard let lane = batch.lane else { return }
    if let stray = batch.events.first(where: { Lane(of: $0) != lane }) {
      complaints.append("\(stray.seq) is of another lane than \(lane)")
    }
    // A dead letter and a proof that the server accepts any event come alone.
    if batch.events.count > 1, !mayReceiveAgain, let first = batch.events.first, first.seq <= answered[lane] {
      complaints.append("\(first.seq) comes again, \(answered[lane]) was acknowledged")
    }
  }

  private func keep(_ event: JournalEvent) {
    sent += 1
    bytesTaken += event.body.count
    if event.kind == EventKind.gap.rawValue { complaints.append("a gap arrived although nothing was lost") }
    guard journal.known.insert(event.seq).inserted else { return }
    let identity = ScheduledEvent.identity(of: event)
    journal.seqs[Lane(of: event)].append(event.seq)
    contents.identities.insert(identity)
    if let folded = ScheduledEvent.folded(of: event) { contents.folded[identity] = folded }
    if let state = ScheduledEvent.State(event) { contents.states[state] = identity }
  }

  /// Checks that waiting lower lanes get their share.
  private func progressed(_ lane: Lane, _ batch: Batch) {
    since[lane] = 0
    for lower in Lane.allCases where lower.isBelow(lane) {
      since[lower] = waits(lower) > journal.acknowledged[lower] ?? 0 ? since[lower] + batch.size : 0
      longestSince[lower] = max(longestSince[lower], since[lower])
    }
  }

  // MARK: Its history

  func keepBackup() { backup = contents }

  /// Restores it from its backup.
  func restore() {
    restores += 1
    contents = backup
    for lane in Lane.allCases {
      let has = knowsLanes ? journal.acknowledged[lane] : journal.whole
      answered[lane] = min(answered[lane], has ?? 0)
    }
    (since, isUp) = (ByLane(all: 0), false)
    end.keep(.lost(nil))
    link += 1
  }

  /// Forgets the answers: the gateway may have lost them.
  func forgetAnswers() { answered = ByLane(all: 0) }

  /// Upgrades the hub: its position counts for each lane.
  func learnLanes() {
    guard !knowsLanes else { return }
    lose()
    knowsLanes = true
    let known = { (journal: Journal) in
      var journal = journal
      journal.acknowledged = ByLane(all: journal.whole)
      return journal
    }
    contents.journals = contents.journals.mapValues(known)
    backup.journals = backup.journals.mapValues(known)
    answered = ByLane(all: 0)
  }

  /// Repairs the line: it has no faults from now on, and the server accepts everything.
  func mend() {
    (line, isLocked) = (Line(), false)
  }
}
