// SPDX-License-Identifier: MIT

/// Decides what to fetch of which bucket, and what was missed for good: pure.
///
///     connected ──▶ ask how far each is ──▶ fetch what is behind, a page at a time ──▶ quiet
///                                             ▲ "has new", also during a fetch ──────┘
struct CatchUp {
  struct Settings: Equatable {
    /// Updates of one page.
    var page = 100
    /// Further behind than this, what is older is given up (of buckets where that is allowed).
    var maxBehind: Int64 = 1000
    /// Pages of one bucket in a row before another has its turn.
    var maxInARow = 8
    /// Milliseconds that clocks and late writers may differ.
    var margin: Int64 = 60_000
  }

  /// How far a bucket is known: its last update's number and time, and the time before which nothing is missing.
  struct Position: Equatable, Sendable {
    var seq: Int64 = 0
    var at: Int64?
    var since: Int64 = 0
  }

  enum Action: Equatable {
    case askState([String])
    /// `most`: so many are wanted of all that is behind, of each gateway its share.
    case fetch(bucket: String, from: Position, until: Int64?, limit: Int, most: Int64?)
    /// Given up, from and including: to be told of, and `moved` when that is on disk.
    case skip(bucket: String, first: Int64, last: Int64, to: Position)
  }

  /// An update as the hub sends it.
  struct Update: Equatable {
    var seq: Int64
    var at: Int64
    var id: String
    var body: [UInt8]
    /// Milliseconds that it stood in the hub's queue, as far as the hub says so.
    var age: Int64 = 0
  }

  /// Updates that a page leaves out, and gateways that told of them, as far as the hub says whose they were.
  struct LeftOut: Equatable {
    var count: Int64 = 0
    var gateways: [String] = []
  }

  /// The hub's answer to a fetch.
  enum Page: Equatable {
    case updates([Update], first: Int64, last: Int64, lastAt: Int64?, more: Bool, leftOut: LeftOut? = nil)
    /// The hub knows other updates by these numbers: from here on they are the same.
    case diverged(resume: Int64, at: Int64?)
  }

  /// What a page says: apply it and the position in one transaction, then call `moved`.
  struct Outcome: Equatable {
    var updates: [Update] = []
    /// Updates that the hub no longer has.
    var lost: ClosedRange<Int64>?
    /// `nil`: the hub knows nothing of it.
    var leftOut: LeftOut?
    var position: Position
    var hasDiverged = false
    /// There was no more when the page was made.
    var isEnd = false
    /// Updates that will not come.
    var lacking: Int64 { (leftOut?.count ?? 0) + (lost.map { $0.upperBound - $0.lowerBound + 1 } ?? 0) }
  }

  struct Statistics: Equatable, Sendable {
    var fetches: UInt64 = 0
    /// Fetches that followed because there was something new during one.
    var followUps: UInt64 = 0
    var applied: UInt64 = 0
    /// Given up, or not wanted.
    var skipped: UInt64 = 0
    var duplicates: UInt64 = 0
    var divergences: UInt64 = 0
  }

  private struct Bucket {
    var position: Position
    /// The hub's newest, as far as it is known.
    var remote: Int64 = 0
    /// Numbers agree, times do not, or the hub is behind: ask.
    var mustAsk = false
    /// It is not its turn before it is released.
    var isHeld = false
    var isNewDuringFetch = false
    var inARow = 0
    /// Of what is further behind than is wanted: how many there may still be.
    var room: Int64?
    var statistics = Statistics()
  }

  private enum Phase: Equatable {
    case away
    case mustAskState
    case asking
    case quiet
    case busy(String)
  }

  private let settings: Settings
  /// In the order of their names, so that the same events have the same consequences.
  private var buckets: [(name: String, Bucket)]
  private var phase = Phase.away
  private var turn = 0
  /// Until it shows that it does not, the hub shares out what is too much; otherwise the oldest is given up.
  private var hubShares = true

  init(_ positions: [String: Position], settings: Settings = Settings()) {
    self.settings = settings
    buckets = positions.sorted { $0.key < $1.key }.map { ($0.key, Bucket(position: $0.value)) }
  }

  /// A hub that counts beyond this makes no sense, and sums of such numbers must not overflow.
  static let maxSeq: Int64 = 1 << 53

  /// Commands and documents are never given up: there are only so many, and each counts.
  static func maySkip(_ bucket: String) -> Bool { bucket.hasPrefix("channel/") || bucket == "heard" }

  var names: [String] { buckets.map(\.name) }
  var statistics: [(bucket: String, position: Position, remote: Int64, Statistics)] {
    buckets.map { ($0.name, $0.1.position, $0.1.remote, $0.1.statistics) }
  }

  func position(_ name: String) -> Position? { buckets.first { $0.name == name }?.1.position }

  /// More is behind than is wanted: of that each gateway has its share.
  func isTooFar(_ name: String) -> Bool { buckets.first { $0.name == name }?.1.room != nil }

  /// Nothing is behind, and nothing under way.
  var isQuiet: Bool { phase == .quiet && !buckets.contains { isBehind($0.1) } }

  // MARK: Events

  mutating func connected() {
    phase = .mustAskState
    hubShares = true
  }

  mutating func disconnected() { phase = .away }

  /// Other buckets are wanted from now on: a channel was joined or left.
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

  // MARK: What next

  mutating func next() -> Action? {
    switch phase {
    case .away, .asking, .busy: return nil
    case .mustAskState:
      phase = .asking
      // What was thought of the hub does not count; what it says from now on does.
      for index in buckets.indices { buckets[index].1.remote = 0 }
      return .askState(names)
    case .quiet: return nextFetch()
    }
  }

  private func isBehind(_ bucket: Bucket) -> Bool {
    !bucket.isHeld && (bucket.mustAsk || bucket.remote > bucket.position.seq)
  }

  /// The bucket whose fetch was to begin has to wait, until it is released; the others go on.
  mutating func hold(_ name: String) {
    if phase == .busy(name) { phase = .quiet }
    change(name) { $0.isHeld = true }
  }

  mutating func release(_ name: String) { change(name) { $0.isHeld = false } }

  /// Buckets take turns, several pages each.
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
      bucket: name, from: bucket.position, until: until, limit: settings.page, most: buckets[index].1.room)
  }

  /// `nil`: the page makes no sense for what was asked.
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
      // A page that leaves everything where it was, and says that there is more, would be asked for without end.
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

  /// What was read is on disk.
  mutating func moved(_ name: String, _ outcome: Outcome, applied: Int = 0, duplicates: Int = 0, skipped: Int64 = 0) {
    if phase == .busy(name) { phase = .quiet }
    if isTooFar(name), outcome.leftOut == nil, !outcome.hasDiverged { hubShares = false }
    change(name) { bucket in
      bucket.position = outcome.position
      if outcome.hasDiverged || (outcome.isEnd && !bucket.isNewDuringFetch) {
        // A hub that went back has fewer than was thought.
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

  /// The answer did not come, or was none, or could not be kept: all is asked again when it is time.
  mutating func failed() { if phase != .away { phase = .mustAskState } }
}
