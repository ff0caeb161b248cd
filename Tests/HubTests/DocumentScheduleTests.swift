// SPDX-License-Identifier: MIT

import Documents
import Foundation
import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Hub
@testable import Relay

/// The stores of a gateway and a hub, with the journal and the bucket between them, and a link that a test opens and closes.
private final class Pair {
  static let upstream = "hub"
  let scratch = Scratch(inMemory: true)
  var store: Store
  var hub: HubStore
  private var catchUp = CatchUp([:])
  private var acknowledged: Int64 = 0
  /// Milliseconds; the gateway's clock is off by `skew`.
  var now: Int64 = 1_000_000_000
  var skew: Int64 = 0

  init() throws {
    store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "g"))
    try store.keepOnlyCursors(of: [Self.upstream])
    hub = try HubStore(location: scratch.location("hub.db"))
    connect()
  }

  private func connect() {
    let kept = try? store.bucket("documents", of: Self.upstream)
    catchUp = CatchUp([
      "documents": CatchUp.Position(seq: kept?.seq ?? 0, at: kept?.at, since: kept?.since ?? 0)
    ])
    catchUp.connected()
  }

  var moment: Moment { Moment(milliseconds: now + skew, trusted: skew == 0) }

  func editHere(_ key: String, _ value: String?) throws -> Document {
    var edited: Document?
    store.write { store throws(SQLiteError) in
      edited = try store.editDocument(key, value, at: self.moment)
    }
    try store.commitNow()
    return try #require(edited)
  }

  func editThere(_ key: String, _ value: String?) async throws -> Document {
    try #require(try await hub.editDocument(key, value, of: "g", at: now))
  }

  /// Restarts the process with the data on disk.
  func restartGateway() throws {
    store = try reopened()
    connect()
  }

  private func reopened() throws -> Store {
    let settings = Store.Settings(location: scratch.location("gw.db"), gatewayID: "g")
    store = try Store(Store.Settings(location: scratch.location("other.db"), gatewayID: "g"))  // lets go of the lock
    return try Store(settings)
  }

  func restartHub() throws {
    hub = try HubStore(location: scratch.location("hub.db"))
    catchUp.disconnected()
    catchUp.connected()
  }

  /// Sends one batch to the hub; its acknowledgement may be lost.
  func ship(losesAnswer: Bool) async throws {
    let batch = try Batch(
      after: acknowledged, of: store, limits: Batch.Limits(events: 3, bytes: 65536),
      filter: {
        var filter = EventFilter(); filter.own = Self.upstream; return filter
      }())
    guard !batch.events.isEmpty else {
      acknowledged = batch.last
      return
    }
    let taken = try await hub.take(EventBatch(parsing: batch.encode(of: store)), from: "g", at: now)
    guard !losesAnswer, case .acknowledged(let through) = taken else { return }
    acknowledged = max(acknowledged, max(through, batch.last))
    let cursor = acknowledged
    store.write { store throws(SQLiteError) in try store.setCursor(of: Self.upstream, to: cursor) }
    try store.commitNow()
  }

  /// Sends one question to the hub; the answer may be lost. False: there is nothing to ask.
  func fetch(losesAnswer: Bool) async throws -> Bool {
    guard let action = catchUp.next() else { return false }
    switch action {
    case .askState(let names):
      let states = try await hub.states(of: [HubStore.BucketQuery(names, of: "g")])[0].states
      guard !losesAnswer else { catchUp.failed(); return true }
      catchUp.stateArrived(states.map { ($0.bucket, $0.seq, $0.at) })
    case .fetch(let bucket, let from, let until, let limit, _):
      let bytes = try await hub.updates(
        bucket, of: "g", from: HubStore.Position(after: from.seq, at: from.at, since: from.since), until: until,
        limit: limit)
      guard !losesAnswer, let page = CatchUp.Page(try JSONValue(parsing: bytes)),
        let outcome = catchUp.read(page, of: bucket)
      else { catchUp.failed(); return true }
      try apply(outcome)
      catchUp.moved(bucket, outcome)
    case .skip: Issue.record("documents are never skipped")
    }
    return true
  }

  private func apply(_ outcome: CatchUp.Outcome) throws {
    let through = acknowledged
    for update in outcome.updates {
      let body = try JSONValue(parsing: update.body)
      let value = body["value"].flatMap { $0 == .null ? nil : $0.text }
      let document = Document(
        key: body["key"]?.string ?? "", value: value, updatedAt: body["updated_at"]?.integer ?? 0,
        byHub: body["by_hub"]?.bool ?? false)
      store.write { store throws(SQLiteError) in
        _ = try store.applyDocument(document, via: Self.upstream, acknowledged: through, at: self.moment)
      }
    }
    store.write { store throws(SQLiteError) in
      try store.setBucket(
        "documents", of: Self.upstream,
        to: BucketPosition(seq: outcome.position.seq, at: outcome.position.at, since: outcome.position.since))
    }
    try store.commitNow()
  }

  func settle() async throws {
    for _ in 0..<200 {
      try await ship(losesAnswer: false)
      catchUp.disconnected()
      catchUp.connected()
      while try await fetch(losesAnswer: false) {}
      if acknowledged >= store.lastSeq { return }
    }
  }
}

@Suite struct DocumentScheduleTests {
  /// An edit, its true time, and the document that results.
  private struct Edit {
    let document: Document
    let madeAt: Int64
  }

  @Test(arguments: [UInt64(20_261_121), 7])
  func `after 2,500 random schedules of edits, both ends are equal and the last writer has won`(
    _ seed: UInt64
  ) async throws {
    var random = SeededRandom(seed: seed)
    let pair = try Pair()
    for round in 0..<2500 {
      let key = noteKey(round)
      var edits: [Edit] = []
      // In one schedule in four the gateway's clock is wrong, by up to ten years in either direction.
      pair.skew = round % 4 == 0 ? Int64.random(in: -300_000_000_000...300_000_000_000, using: &random) : 0
      for _ in 0..<Int.random(in: 2...10, using: &random) {
        pair.now += Int64.random(in: 0...3, using: &random)
        let value = Bool.random(using: &random) ? "\"\(Int.random(in: 0...3, using: &random))\"" : nil
        switch Int.random(in: 0..<10, using: &random) {
        case 0..<3: edits.append(Edit(document: try pair.editHere(key, value), madeAt: pair.now))
        case 3..<5: edits.append(Edit(document: try await pair.editThere(key, value), madeAt: pair.now))
        case 5..<7: try await pair.ship(losesAnswer: Bool.random(using: &random))
        case 7..<9: _ = try await pair.fetch(losesAnswer: Bool.random(using: &random))
        default:
          if round % 20 == 0 { Bool.random(using: &random) ? try pair.restartGateway() : try pair.restartHub() }
        }
      }
      try await pair.settle()
      let (here, there) = (try pair.store.document(key), try await pair.hub.document(key, of: "g"))
      // The times may differ if the clocks do: an end does not report an equal value.
      let isSame = here?.value == there?.value
      #expect(isSame, "seed \(seed), round \(round): \(edits)")
      if !isSame { break }
      guard pair.skew == 0, let winner = there else { continue }
      // With right clocks no edit is later than the winner.
      let late = edits.filter { $0.document.wins(over: winner) }
      #expect(late.isEmpty, "seed \(seed), round \(round): \(late) should have won over \(winner)")
    }
  }

  @Test func `at a tie the hub wins, and a deleted document stays deleted`() {
    let here = Document(key: "k", value: "1", updatedAt: 5, byHub: false)
    let there = Document(key: "k", value: "1", updatedAt: 5, byHub: true)
    #expect(there.wins(over: here) && !here.wins(over: there) && !there.wins(over: there))
    let gone = Document.edit("k", nil, of: there, at: 1, byHub: false)
    #expect(gone.updatedAt == 6 && gone.wins(over: there), "made in knowledge of the other: later than it")
  }

  @Test func `an edit with a time far in the future wins only until the next edit`() async throws {
    let pair = try Pair()
    pair.skew = 4 * 365 * 86_400_000
    _ = try pair.editHere(noteKey(1), "\"a\"")
    try await pair.settle()
    pair.now += 1
    _ = try await pair.editThere(noteKey(1), "\"b\"")
    try await pair.settle()
    #expect(try pair.store.document(noteKey(1))?.value == "\"b\"")
    pair.now += 1
    pair.skew = -4 * 365 * 86_400_000
    _ = try pair.editHere(noteKey(1), "\"c\"")
    try await pair.settle()
    #expect(
      try await pair.hub.document(noteKey(1), of: "g")?.value == "\"c\"",
      "a clock that is behind loses nothing it knew of")
  }
}
