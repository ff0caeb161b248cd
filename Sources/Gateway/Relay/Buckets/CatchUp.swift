// SPDX-License-Identifier: MIT

/// Decides on fetches of buckets, and which updates are lost. Pure.
///
///     connected ──▶ ask how far each is ──▶ fetch what is behind, a page at a time ──▶ quiet
///                                             ▲ "has new", also during a fetch ──────┘
struct CatchUp {
  struct Settings: Equatable {
    /// Updates in a page, if the line transfers as many in time.
    var page = 100
    /// If a bucket is further behind than this, older updates are given up (if `maySkip`).
    var maxBehind: Int64 = 1000
    /// Consecutive pages of one bucket before another has its turn.
    var maxInARow = 8
    /// The allowed difference of clocks and late writers, in milliseconds.
    var margin: Int64 = 60_000
  }

  /// The position in a bucket: its last update's number and time, and the time before which nothing is missing (in
  /// milliseconds since 1970).
  struct Position: Equatable, Sendable {
    var seq: Int64 = 0
    var at: Int64?
    var since: Int64 = 0
  }

  enum Action: Equatable {
    case askState([String])
    /// `most`: the number of wanted updates, if more are behind; the hub gives each gateway's messages a share.
    case fetch(bucket: String, from: Position, until: Int64?, limit: Int, most: Int64?)
    /// Updates are given up: report them, and call `moved` when that is on disk.
    case skip(bucket: String, first: Int64, last: Int64, to: Position)
  }

  struct Update: Equatable {
    var seq: Int64
    var at: Int64
    var id: String
    var body: [UInt8]
    /// The time in the hub's queue, in milliseconds, if the hub reports it.
    var age: Int64 = 0
    /// The hub's time when it sent the page, by the clock that `at` is from; `nil`: it does not report it.
    var now: Int64?
  }

  /// Updates that a page leaves out, and the gateways that sent them, if the hub reports those.
  struct LeftOut: Equatable {
    var count: Int64 = 0
    var gateways: [String] = []
  }

  /// The hub's answer to a fetch.
  enum Page: Equatable {
    case updates([Update], first: Int64, last: Int64, lastAt: Int64?, more: Bool, leftOut: LeftOut? = nil)
    /// The hub has other updates with these numbers; up to `resume` they are the same.
    case diverged(resume: Int64, at: Int64?)
  }

  /// The content of a page: commit its updates and position in one transaction, then call `moved`.
  struct Outcome: Equatable {
    var updates: [Update] = []
    /// Updates that the hub no longer has.
    var lost: ClosedRange<Int64>?
    /// `nil`: the hub does not report it.
    var leftOut: LeftOut?
    var position: Position
    var hasDiverged = false
    /// The hub had no more updates.
    var isEnd = false
    /// The number of updates that will never come.
    var lacking: Int64 { (leftOut?.count ?? 0) + (lost.map { $0.upperBound - $0.lowerBound + 1 } ?? 0) }
  }

  private struct Bucket {
    var position: Position
    /// The hub's newest update, as far as it is known.
    var remote: Int64 = 0
    /// The numbers are equal but the times differ, or the hub is behind: a fetch finds out more.
    var mustAsk = false
    /// The bucket waits until it is released.
    var isHeld = false
    var isNewDuringFetch = false
    var inARow = 0
    /// How many updates are still wanted, if more than that are behind.
    var room: Int64?
    var statistics = UpdatesReport.Statistics()
  }

  private enum Phase: Equatable {
    case away
    case mustAskState
    case asking
    case quiet
    case busy(String)
  }

  private let settings: Settings
  /// Updates in the next page.
  private var page: Int
  /// Sorted by name, so that the same events have the same results.
  private var buckets: [(name: String, Bucket)]
  private var phase = Phase.away
  private var turn = 0
  /// The hub shares out wanted updates, until an answer shows that it does not; then the oldest are given up.
  private var hubShares = true

  init(_ positions: [String: Position], settings: Settings = Settings()) {
    (self.settings, page) = (settings, settings.page)
    buckets = positions.sorted { $0.key < $1.key }.map { ($0.key, Bucket(position: $0.value)) }
  }

  /// Higher numbers from a hub are invalid, and their sums could overflow.
  static let maxSeq: Int64 = 1 << 53

  /// Commands and documents are never given up: they are few, and each counts.
  static func maySkip(_ bucket: String) -> Bool { bucket.hasPrefix("channel/") || bucket == "heard" }

  var names: [String] { buckets.map(\.name) }
  var statistics: [(bucket: String, position: Position, remote: Int64, UpdatesReport.Statistics)] {
    buckets.map { ($0.name, $0.1.position, $0.1.remote, $0.1.statistics) }
  }

  func position(_ name: String) -> Position? { buckets.first { $0.name == name }?.1.position }

  /// More updates are behind than are wanted: the hub gives each gateway's messages a share.
  func isTooFar(_ name: String) -> Bool { buckets.first { $0.name == name }?.1.room != nil }

  /// False: the page that was asked for is void, as the wanted buckets have changed meanwhile.
  func isFetching(_ name: String) -> Bool { phase == .busy(name) }

  func isBehind(_ name: String) -> Bool { buckets.contains { $0.name == name && isBehind($0.1) } }

  /// No bucket is behind, and no request is in flight.
  var isQuiet: Bool { phase == .quiet && !buckets.contains { isBehind($0.1) } }

  // MARK: Events

  mutating func connected() {
    phase = .mustAskState
    hubShares = true
  }

  mutating func disconnected() { phase = .away }

  /// The set of wanted buckets may have changed.
  mutating func want(_ positions: [String: Position]) {
    let known = Dictionary(uniqueKeysWithValues: buckets.map { ($0.name, $0.1) })
    guard Set(known.keys) != Set(positions.keys) else { return }
    buckets = positions.sorted { $0.key < $1.key }.map { ($0.key, known[$0.key] ?? Bucket(position: $0.value)) }
    turn = 0
    if phase != .away { phase = .mustAskState }
  }

  mutating func stateArrived(_ states: [(bucket: String, seq: Int64, at: Int64)]) {
    guard phase == .asking else { return }
    phase = .quiet
    for state in states {
      change(state.bucket) { bucket in
        bucket.remote = max(bucket.remote, state.seq)
        let position = bucket.position
        bucket.mustAsk = state.seq < position.seq || (state.seq == position.seq && Self.differs(state.at, position.at))
      }
    }
  }

  private static func differs(_ one: Int64, _ other: Int64?) -> Bool { other.map { $0 != one } ?? false }

  mutating func hasNew(_ name: String, _ seq: Int64) {
    let isFetching = phase == .busy(name)
    change(name) { bucket in
      guard seq > bucket.remote else { return }
      bucket.remote = seq
      bucket.isNewDuringFetch = isFetching
    }
  }

  private mutating func change(_ name: String, _ body: (inout Bucket) -> Void) {
    guard let index = buckets.firstIndex(where: { $0.name == name }) else { return }
    body(&buckets[index].1)
  }

  // MARK: Next action

  mutating func next() -> Action? {
    switch phase {
    case .away, .asking, .busy: return nil
    case .mustAskState:
      phase = .asking
      // Earlier numbers may be out of date; announcements from now on count.
      for index in buckets.indices { buckets[index].1.remote = 0 }
      return .askState(names)
    case .quiet: return nextFetch()
    }
  }

  private func isBehind(_ bucket: Bucket) -> Bool {
    !bucket.isHeld && (bucket.mustAsk || bucket.remote > bucket.position.seq)
  }

  /// Makes a bucket wait until it is released; the others continue.
  mutating func hold(_ name: String) {
    if phase == .busy(name) { phase = .quiet }
    change(name) { $0.isHeld = true }
  }

  mutating func release(_ name: String) { change(name) { $0.isHeld = false } }

  /// Buckets take turns of several pages.
  private mutating func nextFetch() -> Action? {
    for step in 0..<buckets.count {
      let index = (turn + step) % buckets.count
      guard isBehind(buckets[index].1) else {
        buckets[index].1.inARow = 0
        continue
      }
      if step == 0, buckets[index].1.inARow >= settings.maxInARow, buckets.count > 1 {
        buckets[index].1.inARow = 0
        turn = (turn + 1) % buckets.count
        return nextFetch()
      }
      turn = index
      return begin(index)
    }
    return nil
  }

  private mutating func begin(_ index: Int) -> Action {
    let name = buckets[index].name
    phase = .busy(name)
    let bucket = buckets[index].1
    let (seq, remote) = (bucket.position.seq, bucket.remote)
    let most = bucket.room ?? settings.maxBehind
    let isTooFar = Self.maySkip(name) && (!bucket.mustAsk || bucket.room != nil) && remote - seq > most
    buckets[index].1.room = isTooFar && hubShares ? most : nil
    if isTooFar, !hubShares {
      var target = bucket.position
      (target.seq, target.at) = (remote - settings.maxBehind, nil)
      return .skip(bucket: name, first: seq + 1, last: target.seq, to: target)
    }
    buckets[index].1.inARow += 1
    buckets[index].1.statistics.fetches &+= 1
    if bucket.isNewDuringFetch { buckets[index].1.statistics.followUps &+= 1 }
    buckets[index].1.isNewDuringFetch = false
    let until = remote > seq ? remote : nil
    return .fetch(
      bucket: name, from: bucket.position, until: until, limit: page, most: buckets[index].1.room)
  }

  /// `nil`: the page contradicts the request.
  func read(_ page: Page, of name: String) -> Outcome? {
    guard phase == .busy(name), let bucket = buckets.first(where: { $0.name == name })?.1 else { return nil }
    let position = bucket.position
    switch page {
    case .diverged(let resume, let at):
      guard (0...max(position.seq, bucket.remote)).contains(resume) else { return nil }
      let target = Position(seq: resume, at: at, since: position.since)
      guard target != position else { return nil }
      return Outcome(position: target, hasDiverged: true)
    case .updates(let updates, let first, let last, let lastAt, let more, let leftOut):
      var previous = position.seq
      for update in updates {
        guard update.seq > previous, update.seq <= last else { return nil }
        previous = update.seq
      }
      // A page that changes nothing but promises more would be requested endlessly.
      guard last >= position.seq, last > position.seq || (updates.isEmpty && !more),
        (leftOut?.count ?? 0) <= last - position.seq
      else { return nil }
      var target = Position(seq: last, at: lastAt ?? (last == position.seq ? position.at : nil), since: position.since)
      if let newest = updates.map(\.at).max() { target.since = max(target.since, newest - settings.margin) }
      let lost = first > position.seq + 1 ? position.seq + 1...first - 1 : nil
      target.seq = max(target.seq, lost?.upperBound ?? 0)
      return Outcome(updates: updates, lost: lost, leftOut: leftOut, position: target, isEnd: !more)
    }
  }

  /// The outcome is on disk.
  mutating func moved(_ name: String, _ outcome: Outcome, applied: Int = 0, duplicates: Int = 0, skipped: Int64 = 0) {
    if phase == .busy(name) { phase = .quiet }
    // Another line may be faster.
    if outcome.isEnd { page = min(settings.page, page * 2) }
    if isTooFar(name), outcome.leftOut == nil, !outcome.hasDiverged { hubShares = false }
    change(name) { bucket in
      bucket.position = outcome.position
      if outcome.hasDiverged || (outcome.isEnd && !bucket.isNewDuringFetch) {
        // A restored hub has fewer than before.
        bucket.remote = outcome.position.seq
      }
      bucket.mustAsk = !outcome.isEnd
      let left = bucket.room.map { $0 - Int64(outcome.updates.count) }
      bucket.room = left.flatMap { $0 > 0 ? $0 : nil }
      bucket.statistics.applied &+= UInt64(max(0, applied))
      bucket.statistics.duplicates &+= UInt64(max(0, duplicates))
      bucket.statistics.skipped &+= UInt64(max(0, skipped))
      if outcome.hasDiverged { bucket.statistics.divergences &+= 1 }
    }
  }

  /// The line is too slow for a page: the next one is half as long, so that it comes.
  mutating func pageWasTooLong() { page = max(1, page / 2) }

  /// The answer was missing or invalid, or could not be stored: all buckets are asked for again.
  mutating func failed() { if phase != .away { phase = .mustAskState } }
}
