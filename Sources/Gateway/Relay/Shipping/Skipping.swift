// SPDX-License-Identifier: MIT

import EventLoop
import SQLite
import Store

/// An event that a server never takes and never refuses, such as one over which it always fails with 500: no count of failures proves it bad, because
/// a server in trouble fails over any. An operator who knows better sets it aside.
extension Upstream {
  /// What has become of the event.
  public enum Skipped: Equatable, Sendable {
    /// It is a dead letter, on disk.
    case setAside(seq: Int64)
    /// The last try had so many events. From now on one is sent at a time, until it is known which one fails.
    case isOneOf(Int)
    /// The server has taken all that it was sent.
    case nothing
  }

  func noteUntaken(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) {
    guard let first = batch.events.first?.seq else { return }
    switch verdict {
    case .retry(let reason, _), .busy(let reason, _), .hungUp(let reason), .refused(_, let reason):
      untaken = Untaken(lane: lane, first: first, count: batch.events.count, reason: reason, epoch: store.epoch)
    case .acknowledged(let through):
      if let untaken, untaken.lane == lane, untaken.first <= through { self.untaken = nil }
    case .diverged, .stopped: break
    }
  }

  /// Makes the event that the server did not take at the last try a dead letter, if it was sent alone; the next one is sent at once.
  public func skip() async throws(StoreError) -> Skipped {
    guard let untaken, !isClosed, untaken.epoch == store.epoch,
      journal.lanes[untaken.lane].taken < untaken.first
    else { return .nothing }
    let lane = untaken.lane
    guard untaken.count == 1 else {
      shipment.sendsOne()
      resume()
      return .isOneOf(untaken.count)
    }
    let batch = try journal.read(
      lane, after: untaken.first - 1, limits: Batch.Limits(events: 1, bytes: maxBatchBytes(lane)), isPast: true)
    guard let event = batch.events.first, event.seq == untaken.first else { return .nothing }
    self.untaken = nil
    // What is under way is void: the answer to this very event may still come.
    forgetFlights()
    if shipment.state != .testing { shipment.greetAgain() }
    shipment.hold(.burying)
    var seqs = journal.taken
    seqs[lane] = event.seq
    let (epoch, told, tooOld, at) = (store.epoch, journal.told, journal.tooOld.all, loop.wallClock.milliseconds)
    defer {
      shipment.release([.burying])
      woken.resume()
    }
    try await store.save(when: .now) { [name] store throws(SQLiteError) in
      try store.bury(event, upstream: name, status: 0, reason: "an operator skipped it: \(untaken.reason)", at: at)
      try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld)
    }
    log.notice("\(name): event \(event.seq) is skipped by an operator, and a dead letter; see `meshpost upstream dead`")
    guard !isClosed, store.epoch == epoch else { return .setAside(seq: event.seq) }
    journal.lanes[lane].suspicion.advanced(to: event.seq)
    kept(seqs)
    resume()
    return .setAside(seq: event.seq)
  }
}
