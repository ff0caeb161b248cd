// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import SQLite
import Store

/// What becomes of a batch that was answered.
extension Upstream {
  func answered(_ verdict: Verdict, _ number: UInt64) {
    guard let index = underWay.flights.firstIndex(where: { $0.number == number }) else { return }
    let flight = underWay.flights[index]
    let (batch, lane) = (flight.batch, flight.lane)
    // A connection may end for a later batch first; an acknowledgement or refusal ahead of its turn is not to be relied on.
    var verdict = verdict
    switch verdict {
    case .acknowledged, .refused:
      if index > 0 { verdict = .retry(reason: "the server's answers are out of order", after: nil) }
    case .retry, .busy, .hungUp, .diverged, .stopped: break
    }
    if index == 0 {
      underWay.flights.removeFirst()
      if !underWay.flights.contains(where: { $0.lane == lane }) { journal.lanes[lane].underWay = 0 }
    }
    switch verdict {
    case .acknowledged(let through):
      journal.serverHas(through, in: lane)
      if carrier.mayTakeInPart, through < batch.events.last?.seq ?? 0 {
        forgetFlights(in: lane)
        shipment.tookInPart(lane)
      }
    case .refused: forgetFlights(in: lane)
    case .retry, .busy, .hungUp, .diverged, .stopped: forgetFlights()
    }
    defer { woken.resume() }
    if case .diverged(let reason) = verdict {
      // Another upstream has begun a new epoch since, over the same perhaps.
      return flight.epoch == store.epoch ? diverged(reason) : shipment.greetAgain()
    }
    switch flight.purpose {
    case .journal: handle(verdict, batch, in: lane)
    case .deadLetter(let marks): handleDeadLetter(verdict, batch, marks)
    case .proof: handleProof(verdict, batch, lane)
    }
    // An answer must never be taken for that of another batch: what `Shipment` has given up is void, whatever still answers it.
    if shipment.flights.isEmpty, !underWay.flights.isEmpty { forgetFlights() }
  }

  private func handle(_ verdict: Verdict, _ batch: Batch, in lane: Lane) {
    let isProven = journal.isProven(verdict, batch, lane)
    let taken = journal.lanes[lane].taken
    var verdict = verdict
    if !isProven, case .refused(_, let reason) = verdict,
      journal.isUndecided(verdict, batch, lane, permitted: permittedLanes())
    {
      verdict = .retry(reason: reason, after: nil)
    }
    let consequence = shipment.answered(
      verdict, after: taken, isUrgent: journal.lanes[lane].suspicion.isUrgent, window: carrier.window, now: loop.now)
    if isProven, case .hungUp(let reason) = verdict, let event = batch.events.first {
      shipment.resume()
      return bury(
        event, through: batch, in: lane, status: 0, reason: "the server closes the connection over it: \(reason)")
    }
    switch consequence {
    case .advance(let through):
      health.batchTaken()
      journal.someWasTaken(in: lane)
      if !batch.events.isEmpty { journal.lanes[lane].isAhead = true }
      advance(lane, batch, to: through >= batch.last ? batch.last : max(through, taken))
    case .bury(let status, let reason):
      // Until another has passed it is the server that refuses, whatever it is asked.
      guard isProven, let event = batch.events.first else { return }
      bury(event, through: batch, in: lane, status: status, reason: reason)
    case .keep: health.report(shipment.state)
    }
  }

  private func handleProof(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) {
    var answer = verdict
    if case .refused(_, let reason) = verdict { answer = .retry(reason: reason, after: nil) }
    _ = shipment.answered(
      answer, after: journal.lanes[lane].taken, isUrgent: journal.lanes[lane].suspicion.isUrgent, now: loop.now)
    switch verdict {
    case .acknowledged:
      health.succeeded()
      journal.tookAhead(batch, lane)
      journal.lanes[lane].suspicion.anotherPassed()
    case .refused, .hungUp, .retry, .busy, .diverged, .stopped: journal.lanes[lane].suspicion.anotherFailed()
    }
    health.report(shipment.state)
  }

  /// `marks`: those that the dead letter had when it was sent.
  private func handleDeadLetter(_ verdict: Verdict, _ batch: Batch, _ marks: Int64) {
    guard let event = batch.events.first else { return }
    let lane = Lane(of: event)
    let consequence = shipment.answered(verdict, after: journal.lanes[lane].taken, now: loop.now)
    if let reason = journal.deadLetters.lastHangUp(verdict) {
      // Not retried automatically: later events must not wait for it.
      return bury(
        event, through: nil, in: lane, status: 0, reason: "the server closes the connection over it: \(reason)",
        tried: marks)
    }
    switch consequence {
    case .advance:
      health.succeeded()
      underWay.writes.begin { [name, store, log, weak self] in
        do throws(StoreError) {
          try await store.save { store throws(SQLiteError) in
            try store.removeDeadLetter(upstream: name, seq: event.seq)
          }
        } catch {
          log.error("\(error)")
        }
        self?.wake()
      }
    case .bury(let status, let reason):
      bury(event, through: nil, in: lane, status: status, reason: reason, tried: marks)
    case .keep: health.report(shipment.state)
    }
  }

  /// `through`: the lane is behind that batch now; `nil`: it is where it was.
  private func bury(
    _ event: JournalEvent, through batch: Batch?, in lane: Lane, status: Int, reason: String, tried marks: Int64 = 0
  ) {
    log.warning("\(name): event \(event.seq) is refused for good (\(reason)); see `meshpost upstream dead`")
    let at = loop.wallClock.milliseconds
    shipment.hold(.burying)
    // It works, and does not want this one.
    health.takesEvents()
    var seqs = journal.taken
    if let batch {
      seqs[lane] = max(seqs[lane], batch.last)
      hasDeleted(in: lane, through: batch.last)
      journal.count(tooOld: batch, through: batch.last)
    }
    move(to: seqs, when: .now) { [name] store throws(SQLiteError) in
      try store.bury(event, upstream: name, status: status, reason: reason, at: at, tried: marks)
    }
  }

  private func hasDeleted(in lane: Lane, through seq: Int64) {
    let events = journal.hasDeleted(in: lane, through: seq)
    if events > 0 { health.observer?.upstream(name, found: .arrived(events: events)) }
  }

  /// The lanes continue from there.
  func startOver(from seqs: ByLane<Int64>) {
    for lane in Lane.allCases {
      journal.lanes[lane].lastSent = journal.lanes[lane].serverHas
      hasDeleted(in: lane, through: seqs[lane])
      (journal.lanes[lane].sent, journal.lanes[lane].gapsSent) = (0, [:])
    }
    journal.setTaken(seqs)
  }

  /// The cursor moves in a transaction of its own; if that is lost, events are sent again, which is always safe. Of a batch that is
  /// behind it in part, what is pending has to be counted.
  func advance(_ lane: Lane, _ batch: Batch, to seq: Int64) {
    let covered = seq >= batch.last ? batch.covered : nil
    journal.count(tooOld: batch, through: seq)
    // What is not for the server it is not asked about.
    if seq > journal.lanes[lane].taken, batch.events.contains(where: { $0.seq <= seq }) { health.succeeded() }
    // Before the alerts look: what waits now has not waited since before this answer.
    health.nothingWaits()
    health.takesEvents()
    health.starts.tookSome()
    hasDeleted(in: lane, through: seq)
    journal.lanes[lane].taken = seq
    let had = journal.lanes[lane].told.seq
    if let newest = batch.events.last(where: { $0.seq <= seq }) {
      journal.lanes[lane].told = (newest.seq, store.epoch)
    }
    for gap in batch.events where gap.kind == EventKind.gap.rawValue && gap.seq <= seq {
      let events = journal.lost(in: gap, lane, had: had)
      if events > 0 { health.observer?.upstream(name, found: .lost(events: events)) }
    }
    journal.lanes[lane].suspicion.advanced(to: seq)
    journal.lanes[lane].passed.events += covered?.events ?? 0
    journal.lanes[lane].passed.bytes += covered?.bytes ?? 0
    if covered == nil { journal.lanes[lane].isMiscounted = true }
    journal.forgetFolding()
    // A server that knows no lanes: the others are where the whole is.
    if !journal.knowsLanes { journal.setTaken(ByLane(all: seq)) }
    keepCursors()
    let pending = journal.pendingEvents
    // Once for all that had waited for too long, not a line for each that comes so.
    if pending == 0 { journal.reportTooOld(at: loop.now) }
    health.acknowledged(pending: pending)
  }

  // MARK: Cursors

  /// The cursors follow. A server that keeps count says itself what it has: its cursor is written along with something else.
  func keepCursors() {
    journal.advanceIdleLanes()
    let (seqs, told, tooOld) = (journal.taken, journal.told, journal.tooOld.all)
    guard seqs != journal.cursor else { return }
    if carrier.serverKeepsCount {
      store.writeAlong("cursor:\(name)") { [name] store throws(SQLiteError) in
        try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld)
      }
      for lane in Lane.allCases { journal.lanes[lane].cursor = seqs[lane] }
    } else {
      // A message that comes twice after a power cut disturbs somebody; a packet or an advert does not, nor what is left out again.
      move(to: seqs, when: journal.lanes.messages.isAhead ? .soon : .heard)
      journal.lanes.messages.isAhead = false
    }
  }

  /// The cursors follow when they are on disk. Shipping continues meanwhile. `work` is in the same transaction.
  func move(to seqs: ByLane<Int64>, when: When, _ work: @escaping Store.Work = { _ in }) {
    let (epoch, told, tooOld) = (store.epoch, journal.told, journal.tooOld.all)
    underWay.writes.begin { [weak self, store, name] in
      var failure: StoreError?
      do throws(StoreError) {
        try await store.save(when: when) { store throws(SQLiteError) in
          try work(store)
          try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld)
        }
      } catch {
        failure = error
      }
      guard let self, !self.isClosed else { return }
      self.shipment.release([.burying, .keepingCursor])
      // Of another database nothing is known.
      guard store.epoch == epoch else { return }
      if let failure {
        self.failed(.retry(reason: "\(failure)", after: nil))
      } else {
        self.kept(seqs)
      }
      self.woken.resume()
    }
  }

  private func kept(_ seqs: ByLane<Int64>) {
    for lane in Lane.allCases {
      journal.lanes[lane].cursor = seqs[lane]
      guard seqs[lane] > journal.lanes[lane].taken else { continue }
      (journal.lanes[lane].taken, journal.lanes[lane].isMiscounted) = (seqs[lane], true)
    }
  }
}
