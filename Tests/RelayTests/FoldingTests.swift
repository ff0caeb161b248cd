// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import SQLite
import Store
import TestSupport
import Testing

@testable import Relay

/// A store with a backlog, read as an upstream reads it.
private final class Backlog {
  let scratch = Scratch(inMemory: true)
  let store: Store

  init() throws { store = try Store(Store.Settings(location: scratch.location("gw.db"))) }

  static func key(_ node: Int) -> String {
    let number = String(node)
    return String(repeating: "0", count: 24 - number.count) + number + String(repeating: "b", count: 40)
  }

  func append(_ kind: EventKind, _ node: Int, at: Int64 = 1, sensors: String = "") throws {
    let field = kind == .telemetry || kind == .status ? "node" : "key"
    try append(kind, "{\"\(field)\":\"\(Self.key(node))\",\"readings\":[\(sensors)]}", at: at)
  }

  func append(_ kind: EventKind, _ body: String, at: Int64 = 1) throws {
    store.write { store throws(SQLiteError) in
      try store.append(kind, at: Moment(milliseconds: at, trusted: true), body: Array(body.utf8))
    }
    try store.commitNow()
  }

  func looked(filter: EventFilter = EventFilter(), after: Int64 = 0) throws -> Folding {
    var folding = Folding(after: after, end: store.newestSeq.nodes, epoch: store.epoch)
    while !folding.isComplete {
      try folding.lookAhead(in: store, from: after) { [store] event throws(StoreError) in
        try filter.passes(event, store)
      }
    }
    return folding
  }

  func batch(
    _ folding: Folding?, filter: EventFilter = EventFilter(), after: Int64 = 0, lane: Lane = .nodes, events: Int = 1000
  ) throws -> Batch {
    try Batch(
      after: after, of: store, lane: lane, limits: Batch.Limits(events: events, bytes: 1 << 20), filter: filter,
      folding: folding)
  }
}

extension Batch {
  fileprivate var seqs: [Int64] { events.map(\.seq) }
  fileprivate var folded: [Int64] {
    events.map { (try? JSONValue(parsing: $0.body))?["folded"]?.integer ?? 0 }  // `try?`: our own
  }
}

@Suite struct FoldingTests {
  @Test func `of a node's waiting adverts only the newest is sent, with the number of omitted ones`() throws {
    let backlog = try Backlog()
    for node in [1, 2, 1, 3, 1] { try backlog.append(.advert, node) }
    let batch = try backlog.batch(try backlog.looked())
    #expect(batch.seqs == [2, 4, 5] && batch.folded == [0, 0, 2])
    #expect(batch.covered.events == 5 && batch.last == 5)
    #expect(String(decoding: batch.events[2].body, as: UTF8.self).hasSuffix(",\"folded\":2}"))
    // The same again from the middle: the result is the same.
    let second = try backlog.batch(try backlog.looked(), after: 2)
    #expect(second.seqs == [4, 5] && second.folded == [0, 2] && second.covered.events == 3)
    #expect(try backlog.batch(nil).seqs == [1, 2, 3, 4, 5])
  }

  @Test func `a batch that is sent again stands for the same states`() throws {
    let backlog = try Backlog()
    for node in [1, 2, 1, 3, 1] { try backlog.append(.advert, node) }
    let reader = try JournalReader(
      Upstream.Settings(name: "hook", fromStart: true, folds: true), serverKeepsCount: false, store: backlog.store,
      clock: EventLoop().wallClock, log: Log(level: .error, sink: { _, _ in }))
    let first = try reader.read(.nodes, after: 0, limits: Batch.Limits(events: 1000, bytes: 1 << 20))
    reader.lanes.nodes.named = NamedBatch(seqs: first.seqs, isSent: true)
    try backlog.append(.advert, 4)
    let again = try reader.repetition(.nodes, after: 0)
    #expect(first.folded == [0, 0, 2] && again?.events.map(\.body) == first.events.map(\.body))
  }

  @Test func `an event that is no state of a node is never folded`() throws {
    for kind in EventKind.allCases
    where ![.advert, .contact, .telemetry, .status, .neighbours, .clock, .owner].contains(kind) {
      let event = JournalEvent(
        seq: 1, at: 1, trusted: true, kind: kind.rawValue, body: Array("{\"key\":\"\(Backlog.key(1))\"}".utf8))
      #expect(Folding.Key(event) == nil)
    }
    for body in ["", "{}", "{\"key\":\"00\"}", "{\"key\":\"\(Backlog.key(1))", "{\"name\":\"\(Backlog.key(1))\"}"] {
      #expect(
        Folding.Key(JournalEvent(seq: 1, at: 1, trusted: true, kind: "advert", body: Array(body.utf8))) == nil)
    }
  }

  @Test func `the removal of a node keeps its place among the records`() throws {
    let backlog = try Backlog()
    for kind in [EventKind.contact, .contactRemoved, .contact, .contactRemoved] { try backlog.append(kind, 1) }
    #expect(try backlog.batch(try backlog.looked()).seqs == [2, 3, 4])
  }

  @Test func `adverts and changes are folded separately`() throws {
    let backlog = try Backlog()
    for kind in [EventKind.contact, .advert, .contact, .advert] { try backlog.append(kind, 1) }
    let batch = try backlog.batch(try backlog.looked())
    #expect(batch.seqs == [3, 4] && batch.folded == [1, 1])
  }

  @Test func `one reading an hour is sent for each set of sensors`() throws {
    let backlog = try Backlog()
    let hour: Int64 = 3_600_000
    for at in [0, 1, hour, hour + 1] { try backlog.append(.status, 1, at: at) }
    #expect(try backlog.batch(try backlog.looked()).seqs == [2, 4])
    for sensors in [
      "{\"channel\":1,\"type\":\"voltage\",\"value\":3}", "{\"channel\":2,\"type\":\"voltage\",\"value\":3}",
    ] {
      try backlog.append(.telemetry, 1, sensors: sensors)
    }
    try backlog.append(.telemetry, 1, sensors: "{\"channel\":1,\"type\":\"voltage\",\"value\":4}")
    #expect(try backlog.batch(try backlog.looked(after: 4), after: 4).seqs == [6, 7])
  }

  @Test func `events that the filter excludes fold nothing`() throws {
    let backlog = try Backlog()
    try backlog.append(.advert, 1)
    try backlog.append(.contact, 1)
    try backlog.append(.advert, 1)
    // A record of a node that the filter does not name.
    let filter = EventFilter(contacts: [Backlog.key(2)])
    #expect(try backlog.batch(try backlog.looked(filter: filter), filter: filter).events.isEmpty)
    var folding = Folding(after: 0, end: 3, epoch: backlog.store.epoch)
    try folding.lookAhead(in: backlog.store, from: 0) { $0.seq < 3 }
    #expect(folding.isComplete && folding.through == 3)
    #expect(try backlog.batch(folding).seqs == [1, 2, 3])
  }

  @Test func `events that were sent during the look ahead are not counted again`() throws {
    let backlog = try Backlog()
    backlog.store.write { store throws(SQLiteError) in
      for _ in 0...Folding.step {
        let body = Array("{\"key\":\"\(Backlog.key(1))\"}".utf8)
        try store.append(.advert, at: Moment(milliseconds: 1, trusted: true), body: body)
      }
    }
    try backlog.store.commitNow()
    let step = Int64(Folding.step)
    var folding = Folding(after: 0, end: backlog.store.newestSeq.nodes, epoch: backlog.store.epoch)
    try folding.lookAhead(in: backlog.store, from: 0) { _ in true }
    let first = try backlog.batch(folding)
    #expect(first.seqs == [step] && first.folded == [step - 1])
    try folding.lookAhead(in: backlog.store, from: first.last) { _ in true }
    let second = try backlog.batch(folding, after: first.last)
    #expect(second.seqs == [step + 1] && second.folded == [0])
  }

  @Test func `events after the look ahead fold nothing, and wait for the next one`() throws {
    let backlog = try Backlog()
    for node in [1, 1, 2] { try backlog.append(.advert, node) }
    let folding = try backlog.looked()
    for node in [1, 2] { try backlog.append(.advert, node) }
    #expect(try backlog.batch(folding).seqs == [2, 3])
    #expect(!folding.isUsable(after: 3, epoch: backlog.store.epoch))
    #expect(folding.isUsable(after: 2, epoch: backlog.store.epoch) && !folding.isUsable(after: 2, epoch: "another"))
    #expect(try !backlog.looked(after: 2).isUsable(after: 1, epoch: backlog.store.epoch))
  }

  @Test func `a look ahead is bounded in keys, rows and steps`() throws {
    let backlog = try Backlog()
    backlog.store.write { store throws(SQLiteError) in
      for index in 0..<Folding.maxEvents + 3000 {
        let body = "{\"key\":\"\(Backlog.key(index % 10))\"}"
        try store.append(.advert, at: Moment(milliseconds: 1, trusted: true), body: Array(body.utf8))
      }
    }
    try backlog.store.commitNow()
    var folding = Folding(after: 0, end: backlog.store.newestSeq.nodes, epoch: backlog.store.epoch)
    try folding.lookAhead(in: backlog.store, from: 0) { _ in true }
    #expect(folding.through == Int64(Folding.step) && !folding.isComplete)
    #expect(try backlog.looked().through == Int64(Folding.maxEvents))
    for node in 0...Folding.maxKeys { try backlog.append(.contact, node) }
    let start = Int64(Folding.maxEvents + 3000)
    #expect(try backlog.looked(after: start).through == start + Int64(Folding.maxKeys))
  }
}
