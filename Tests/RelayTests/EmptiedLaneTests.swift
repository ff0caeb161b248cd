// SPDX-License-Identifier: MIT

import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// Journals that were trimmed beyond a server's position, read lane by lane as an upstream reads them.
@Suite struct EmptiedLaneTests {
  private static let kinds: [EventKind] = [.message, .outgoing, .alert, .advert, .contact, .telemetry, .packet]

  @Test func `a lane that trimming has emptied reports its gap, and reaches its end`() throws {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), journalMaxSize: 20_000))
    try store.keepOnlyCursors(of: ["hub"])
    try append(.advert, 1, to: store)
    try append(.advert, 2, to: store)
    for node in 0..<300 { try append(.message, node, to: store) }
    trim(store)
    #expect(store.deletedThrough.nodes == 2)
    var folding = Folding(after: 0, end: store.newestSeq.nodes, epoch: store.epoch)
    try folding.lookAhead(in: store, from: 0) { _ in true }
    for folding in [folding, nil] {
      let batch = try read(store, .nodes, after: 0, events: 10, folding: folding)
      #expect(batch.events.map(\.kind) == ["gap"] && batch.events.map(\.seq) == [2])
      #expect(batch.last >= store.newestSeq.nodes)
    }
  }

  @Test(arguments: 0..<30 as Range<UInt64>)
  func `after random trimming, each lane has each event, or a gap in its place`(_ seed: UInt64) throws {
    var random = SeededRandom(seed: seed)
    let scratch = Scratch(inMemory: true)
    let quota = Int64.random(in: 2000...40_000, using: &random)
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), journalMaxSize: quota))
    try store.keepOnlyCursors(of: ["hub"])
    var seqs = ByLane<[Int64]>(all: [])
    // Stretches of one kind, so that whole lanes are emptied.
    for _ in 0..<Int.random(in: 2...8, using: &random) {
      let kind = Self.kinds.randomElement(using: &random) ?? .message
      for _ in 0..<Int.random(in: 1...150, using: &random) {
        try append(kind, .random(in: 0..<20, using: &random), to: store)
        seqs[kind.lane].append(store.lastSeq)
      }
      if Bool.random(using: &random) { trim(store) }
      if Int.random(in: 0..<4, using: &random) == 0 {
        let (known, most) = (try store.cursor(of: "hub"), store.lastSeq)
        let cursor = ByLane(
          messages: Int64.random(in: known.messages...most, using: &random),
          nodes: Int64.random(in: known.nodes...most, using: &random),
          packets: Int64.random(in: known.packets...most, using: &random))
        store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: cursor) }
        try store.commitNow()
      }
    }
    trim(store)
    let filters = [EventFilter(), EventFilter(kinds: ["message", "packet"]), EventFilter(kinds: ["advert"])]
    let filter = filters.randomElement(using: &random) ?? EventFilter()
    for lane in Lane.allCases {
      let start = try store.cursor(of: "hub")[lane]
      let told = try drain(
        store, lane, after: start, filter, folds: lane == Folding.lane && Bool.random(using: &random), &random)
      for seq in seqs[lane] where seq > start {
        let isThere = told.events.contains(seq) || told.gaps.contains { $0.contains(seq) }
        let isLeftOut = told.leftOut && seq >= store.journalSize.oldest
        #expect(isThere || isLeftOut, "seed \(seed): event \(seq) of \(lane), read after \(start)")
      }
    }
  }

  /// Reads up to the lane's newest event, like an upstream; each batch must advance.
  private func drain(
    _ store: Store, _ lane: Lane, after start: Int64, _ filter: EventFilter, folds: Bool, _ random: inout SeededRandom
  ) throws -> (events: Set<Int64>, gaps: [ClosedRange<Int64>], leftOut: Bool) {
    var (cursor, events, gaps) = (start, Set<Int64>(), [ClosedRange<Int64>]())
    var folding: Folding?
    while store.newestSeq[lane] > cursor {
      if folds {
        if folding?.isUsable(after: cursor, epoch: store.epoch) != true {
          folding = Folding(after: cursor, end: store.newestSeq[lane], epoch: store.epoch)
        }
        try folding?.lookAhead(in: store, from: cursor) { event throws(StoreError) in try filter.passes(event, store) }
      }
      let batch = try read(
        store, lane, after: cursor, events: .random(in: 1...50, using: &random), filter: filter, folding: folding)
      guard batch.last > cursor else {
        Issue.record("\(lane) stands still after \(cursor), though \(store.newestSeq[lane]) is its newest")
        break
      }
      for event in batch.events {
        guard event.kind == "gap" else {
          events.insert(event.seq)
          continue
        }
        let body = try JSONValue(parsing: event.body)
        gaps.append((body["first"]?.integer ?? 0)...(body["last"]?.integer ?? -1))
      }
      cursor = batch.last
    }
    // Packets go only to upstreams that name them.
    return (events, gaps, folds || lane == .packets || !filter.leavesNothingOut)
  }

  private func read(
    _ store: Store, _ lane: Lane, after: Int64, events: Int, filter: EventFilter = EventFilter(), folding: Folding?
  ) throws -> Batch {
    try Batch(
      after: after, of: store, lane: lane, limits: Batch.Limits(events: events, bytes: 1 << 20), filter: filter,
      folding: folding)
  }

  private func append(_ kind: EventKind, _ node: Int, to store: Store) throws {
    let field = kind == .telemetry ? "node" : "key"
    let key = String(repeating: "0", count: 60) + String(1000 + node)
    store.write { store throws(SQLiteError) in
      try store.append(
        kind, at: Moment(milliseconds: 1, trusted: true), body: Array("{\"\(field)\":\"\(key)\",\"readings\":[]}".utf8))
    }
    try store.commitNow()
  }

  private func trim(_ store: Store) {
    var before: Int64 = -1
    while store.journalSize.oldest != before {
      before = store.journalSize.oldest
      store.trimJournal(now: Moment(milliseconds: 1, trusted: true))
      store.commit()
    }
  }
}
