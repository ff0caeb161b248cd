// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import SQLite
import Store
import TestSupport
import Timing

@testable import Relay

/// A gateway with one upstream in invented time, and all events that can affect it.
final class Schedule {
  struct Kind {
    var server = "hub"
    var knowsLanes = true
    var folds = false
    var profile = StoreProfile.durable
    var dailyBytes: Int64?
    var batchEvents = 20
  }

  /// An empty store, created once, because creating it takes longest.
  nonisolated(unsafe) private static let empty: Scratch = {
    let scratch = Scratch(inMemory: true)
    do {
      try Store(Store.Settings(location: scratch.location("gw.db"))).checkpoint()
    } catch {
      preconditionFailure("\(error)")
    }
    return scratch
  }()

  let scratch = Scratch(inMemory: true)
  let loop = EventLoop(on: InventedMachine())
  private(set) var store: Store
  let hub: ScheduledServer
  let kind: Kind
  private(set) var upstream: Upstream?
  private var random: SeededRandom
  private let seed: UInt64
  private var files = 0
  private var identities: Int64 = 0
  /// A backup of its database.
  private var backup: String?
  private(set) var restarts = 0
  private(set) var goneBack = 0

  init(seed: UInt64, _ kind: Kind = Kind()) throws {
    (self.seed, self.kind) = (seed, kind)
    random = SeededRandom(seed: seed)
    hub = ScheduledServer(kind.server, on: loop, seed: seed &+ 1, knowsLanes: kind.knowsLanes)
    let location = scratch.location("gw0.db")
    try FileManager.default.copyItem(atPath: Self.empty.location("gw.db"), toPath: location)
    store = try Store(Store.Settings(location: location, profile: kind.profile))
    hub.epoch = { [unowned self] in self.store.epoch }
    hub.waits = { [unowned self] lane in self.store.newestSeq[lane] }
    try start()
    loop.afterTurn { [unowned self] in
      store.commit()
      let news = store.transactions.takeNews()
      if news.hasGrown { upstream?.wake() }
      if let pause = news.pause {
        loop.schedule(after: pause) { [weak self, weak store = self.store] in
          if let store, self?.store === store { store.commit(everything: true) }
        }
      }
    }
  }

  func start() throws {
    var settings = Upstream.Settings(
      name: "hub", batchEvents: kind.batchEvents, batchBytes: 4096, fromStart: true, folds: kind.folds)
    settings.filter = EventFilter(kinds: Set(EventKind.allCases.map(\.rawValue)))
    settings.dailyBytes = kind.dailyBytes
    upstream = try Upstream(
      settings, carrier: hub, store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    upstream?.shipment.random = SeededRandom(seed: seed &+ 2)
    upstream?.account?.zone = { _ in 0 }
    upstream?.wake()
  }

  // MARK: Events at the gateway

  /// Ends the gateway regularly, and starts it again.
  func restart() throws {
    restarts += 1
    upstream?.stop()
    store.settle()
    hub.forgetAnswers()
    try start()
  }

  /// Copies the data on disk as a power cut leaves it.
  private func copy() throws -> String {
    files += 1
    let copy = scratch.location("gw\(files).db")
    for suffix in ["", "-wal"] where FileManager.default.fileExists(atPath: store.location + suffix) {
      try FileManager.default.copyItem(atPath: store.location + suffix, toPath: copy + suffix)
    }
    return copy
  }

  /// Kills the gateway: data that was not on disk is lost.
  func kill() throws {
    restarts += 1
    try replace(store: copy())
  }

  private func replace(store location: String, isRestored: Bool = false) throws {
    let (old, gone) = (store, upstream)
    store = try Store(Store.Settings(location: location, profile: kind.profile))
    if isRestored { try store.renewEpoch() }
    // The killed gateway has no further effect; its tasks end, and release their resources.
    gone?.stop()
    upstream = nil
    old.settle()
    loop.turn(wait: false)
    old.settle()
    hub.forgetAnswers()
    try start()
  }

  func keepBackup() throws { backup = try copy() }

  /// Replaces its database by an older copy, and begins a new epoch.
  func goBack() throws {
    guard let backup else { return }
    self.backup = nil
    goneBack += 1
    try replace(store: backup, isRestored: true)
  }

  func stop() {
    upstream?.stop()
    store.settle()
    // Its tasks end, and release their resources.
    loop.turn(wait: false)
    store.settle()
    loop.turn(wait: false)
  }

  @discardableResult func append(_ kind: EventKind, node: Int? = nil) -> Int64 {
    identities += 1
    let identity = identities
    let body = ScheduledEvent.body(
      kind, identity: identity, node: node ?? Int.random(in: 0..<6, using: &random),
      filling: Int.random(in: 0...300, using: &random))
    store.write(when: kind.lane == .messages ? .message : .soon) { store throws(SQLiteError) in
      try store.append(kind, at: Moment(milliseconds: 1, trusted: true), body: body)
    }
    return identity
  }

  // MARK: Time

  var pending: Int64 { upstream?.status.pending ?? 0 }

  func pass(_ seconds: Int64) {
    let end = loop.now + .seconds(seconds)
    let timer = loop.schedule(at: end) {}
    var (instant, turns) = (loop.now, 0)
    while loop.now < end {
      loop.turn(wait: true)
      (instant, turns) = (loop.now, loop.now == instant ? turns + 1 : 0)
      precondition(turns < 500_000, "seed \(seed): it spins")
    }
    timer.cancel()
  }

  /// Waits until the server has everything.
  func pass(untilDelivered limit: Int64) -> Bool {
    store.settle()
    pass(1)
    var (waited, step): (Int64, Int64) = (0, 1)
    while waited < limit {
      if pending == 0, store.lastSeq > 0 { return true }
      pass(step)
      (waited, step) = (waited + step, min(step * 2, 3600))
      upstream?.networkChanged()
    }
    return pending == 0
  }

  func journal() throws -> [JournalEvent] {
    var events: [JournalEvent] = []
    try store.readJournal(after: 0) { event, _ in
      events.append(event)
      return true
    }
    return events
  }

  func deadLetters() throws -> Set<Int64> {
    var found: Set<Int64> = []
    try store.eachDeadLetter { letter in
      found.insert(ScheduledEvent.identity(of: letter.event))
      return true
    }
    return found
  }
}
