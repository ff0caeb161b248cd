// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// Handles the answers to batches.
extension Upstream {
  func answered(_ verdict: Verdict, _ number: UInt64) {
    guard let index = underWay.flights.firstIndex(where: { $0.number == number }) else { return }
    let flight = underWay.flights[index]
    let (batch, lane) = (flight.batch, flight.lane)
    // A later batch may be the first to report a lost connection, but an acknowledgement or a refusal out of order is not reliable.
    var verdict = verdict
    switch verdict {
    case .acknowledged, .refused:
      if index > 0 { verdict = .retry(reason: "the server's answers are out of order", after: nil) }
    case .retry, .failing, .busy, .hungUp, .diverged, .stopped: break
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
    case .retry, .failing, .busy, .hungUp, .diverged, .stopped: forgetFlights()
    }
    defer {
      answerSkipping(verdict, of: batch)
      woken.resume()
    }
    if case .diverged(let reason) = verdict {
      // Another upstream may have begun a new epoch meanwhile, perhaps for the same reason.
      return flight.epoch == store.epoch ? diverged(reason) : shipment.greetAgain()
    }
    switch flight.purpose {
    case .journal: handle(verdict, batch, in: lane)
    case .deadLetter(let id, let marks): handleDeadLetter(verdict, batch, id, marks)
    case .proof: handleProof(verdict, batch, lane)
    }
    // An answer must never count for another batch: what `Shipment` has given up is void.
    if shipment.flights.isEmpty, !underWay.flights.isEmpty { forgetFlights() }
  }

  private func handle(_ verdict: Verdict, _ batch: Batch, in lane: Lane) {
    let isProven = journal.isProven(verdict, batch, lane)
    let taken = journal.lanes[lane].taken
    noteUntaken(verdict, batch, lane)
    journal.lanes[lane].named?.answered(verdict)
    if case .failing(let reason, _) = verdict { journal.lanes[lane].failed(reason, at: loop.now) }
    var verdict = verdict
    if !isProven, case .refused(_, let reason) = verdict,
      journal.isUndecided(verdict, batch, lane, permitted: permittedLanes())
    {
      verdict = .retry(reason: reason, after: nil)
    }
    let consequence = shipment.answered(
      verdict, after: taken, isUrgent: journal.lanes[lane].suspicion.isUrgent, window: carrier.window, now: loop.now)
    if isProven, let event = batch.events.first, let reason = Self.reason(verdict) {
      shipment.resume()
      return bury(event, through: batch, in: lane, status: 0, reason: reason)
    }
    switch consequence {
    case .advance(let through):
      health.batchTaken()
      journal.someWasTaken(in: lane)
      if !batch.events.isEmpty { journal.lanes[lane].isAhead = true }
      advance(lane, batch, to: through >= batch.last ? batch.last : max(through, taken))
    case .bury(let status, let reason):
      // Until another event has passed, the server may refuse everything.
      guard isProven, let event = batch.events.first else { return }
      bury(event, through: batch, in: lane, status: status, reason: reason)
    case .keep: reportHealth()
    }
  }

  /// The reason of a dead letter that the server did not refuse.
  private static func reason(_ verdict: Verdict) -> String? {
    switch verdict {
    case .hungUp(let reason): "the server closes the connection over it: \(reason)"
    case .failing(let reason, _): DeadLetter.skippedReason + reason
    case .acknowledged, .retry, .busy, .refused, .diverged, .stopped: nil
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
    case .refused: journal.lanes[lane].suspicion.anotherFailed(batch.events.first?.seq, isRefused: true)
    case .hungUp, .retry, .failing, .busy, .diverged, .stopped:
      journal.lanes[lane].suspicion.anotherFailed(batch.events.first?.seq, isRefused: false)
    }
    reportHealth()
  }

  /// `marks`: the dead letter's marks when it was sent.
  private func handleDeadLetter(_ verdict: Verdict, _ batch: Batch, _ letter: Int64, _ marks: Int64) {
    guard let event = batch.events.first else { return }
    let (lane, hadFailed) = (Lane(of: event), journal.deadLetters.failure != nil)
    let lastHangUp = journal.deadLetters.answered(
      verdict, letter, seq: event.seq, isAlone: !carrier.keepsConnection, now: loop.now)
    // Trouble with this letter says nothing about events, also if the server names a time for the next try.
    let aside: String? =
      switch verdict {
      case .failing(let reason, _): reason
      // A server may forbid this letter alone, as a firewall before it does. If it forbids all, the next event shows that.
      case .retry(let reason, _), .busy(let reason, _), .stopped(let reason): carrier.keepsConnection ? nil : reason
      case .acknowledged, .hungUp, .refused, .diverged: nil
      }
    if let reason = aside {
      if !hadFailed {
        log.notice(
          "\(name): the server fails again over dead letter \(event.seq) (\(reason)): it is tried again, and nothing waits for it"
        )
      }
      store.post(when: .soon, "why a dead letter of \(name) failed again") { [name] store throws(SQLiteError) in
        try store.noteFailure(ofDeadLetter: event.seq, of: name, reason: reason)
      }
      return shipment.setLetterAside()
    }
    let consequence = shipment.answered(verdict, after: journal.lanes[lane].taken, now: loop.now)
    if let reason = lastHangUp {
      // Not retried automatically: later events must not wait for it.
      return bury(
        event, through: nil, in: lane, status: 0, reason: "the server closes the connection over it: \(reason)",
        tried: marks)
    }
    switch consequence {
    case .advance:
      health.succeeded()
      remove(letter, event.seq)
    case .bury(let status, let reason):
      bury(event, through: nil, in: lane, status: status, reason: reason, tried: marks)
    case .keep: reportHealth()
    }
  }

  /// Deletes a dead letter that the server has taken. Until that is on disk nothing is sent: the letter would be read, and sent, again.
  func remove(_ letter: Int64, _ seq: Int64) {
    shipment.hold(.removing)
    underWay.writes.begin { [name, store, weak self] in
      let failure = await store.write { store throws(SQLiteError) in
        try store.removeDeadLetter(upstream: name, seq: seq)
      }.failure()
      guard let self, !self.isClosed else { return }
      self.shipment.release([.removing])
      if let failure {
        self.failed(.retry(reason: "\(failure)", after: nil))
      } else {
        self.journal.deadLetters.removed(letter)
      }
      self.woken.resume()
    }
  }

  /// `through`: the lane moves past this batch; `nil`: the lane stays.
  private func bury(
    _ event: JournalEvent, through batch: Batch?, in lane: Lane, status: Int, reason: String, tried marks: Int64 = 0
  ) {
    let at = loop.wallClock.milliseconds
    if skipping?.seq == event.seq { skipping?.isBuried = true }
    shipment.hold(.burying)
    // The server works, and refuses only this event.
    health.takesEvents()
    var seqs = journal.taken
    if let batch {
      seqs[lane] = max(seqs[lane], batch.last)
      hasDeleted(in: lane, through: batch.last)
      journal.count(tooOld: batch, through: batch.last)
    }
    var (isKept, dropped) = (false, 0)
    move(to: seqs, when: .now) { [name] store throws(SQLiteError) in
      isKept = try store.bury(event, upstream: name, status: status, reason: reason, at: at, tried: marks)
      dropped = try store.boundDeadLetters(of: name)
    } kept: { [name, log] in
      if dropped > 0 {
        log.warning("\(name): too many dead letters: the oldest are dropped, which the server never gets: \(dropped)")
      }
      guard isKept else { return }
      log.warning("\(name): event \(event.seq) is a dead letter now (\(reason)); see `meshpost upstream dead`")
    }
  }

  private func hasDeleted(in lane: Lane, through seq: Int64) {
    let events = journal.hasDeleted(in: lane, through: seq)
    if events > 0 { health.observer?.upstream(name, found: .arrived(events: events)) }
  }

  /// Each lane continues from its seq.
  func startOver(from seqs: ByLane<Int64>) {
    for lane in Lane.allCases {
      journal.lanes[lane].lastSent = journal.lanes[lane].serverHas
      hasDeleted(in: lane, through: seqs[lane])
      (journal.lanes[lane].sent, journal.lanes[lane].gapsSent) = (0, [:])
    }
    journal.setTaken(seqs)
  }

  /// Moves a lane past acknowledged events. If its cursor is lost before it is on disk, events are sent again, which is always safe. After a part of
  /// a batch, the backlog is counted again.
  func advance(_ lane: Lane, _ batch: Batch, to seq: Int64) {
    let hasAllEvents = batch.events.last.map { seq >= $0.seq } ?? false
    // What follows the last event is read again, unless a later batch was read from behind it.
    let isPassed = seq >= batch.last || hasAllEvents && underWay.flights.contains { $0.lane == lane }
    let covered = isPassed ? batch.covered : hasAllEvents ? batch.coveredByEvents : nil
    journal.count(tooOld: batch, through: seq)
    // Only an event that was sent can be acknowledged: a batch without any is no success.
    if seq > journal.lanes[lane].taken, batch.events.contains(where: { $0.seq <= seq }) { health.succeeded() }
    // First, because the next calls wake the alerts: the remaining events have not waited since before this answer.
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
    // Without lanes at the server, all have the same position.
    if !journal.knowsLanes { journal.setTaken(ByLane(all: seq)) }
    keepCursors()
    let pending = journal.pendingEvents
    // One line for all of them at the end of the backlog, not one for each.
    if pending == 0 { journal.reportTooOld(at: loop.now) }
    health.acknowledged(pending: pending)
    if account != nil { noteWaiting() }
  }

  // MARK: Cursors

  /// Writes the cursors. If the server keeps count, they are written along with something else.
  func keepCursors() {
    journal.advanceIdleLanes()
    let (seqs, told, tooOld) = (journal.taken, journal.told, journal.tooOld.all)
    guard seqs != journal.cursor else { return }
    if carrier.serverKeepsCount {
      store.transactions.writeAlong("cursor:\(name)") { [name] store throws(SQLiteError) in
        try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld)
      }
      for lane in Lane.allCases { journal.lanes[lane].cursor = seqs[lane] }
    } else {
      // After a power cut, a repeated message disturbs people; a repeated packet or advert does not, nor does an event that is left out again.
      move(to: seqs, when: journal.lanes.messages.isAhead ? .soon : .heard)
      journal.lanes.messages.isAhead = false
    }
  }

  /// Writes the cursors, with `work` in the same transaction. Shipping continues meanwhile.
  func move(
    to seqs: ByLane<Int64>, when: When, _ work: @escaping Store.Work = { _ in }, kept isKept: @escaping () -> Void = {}
  ) {
    let (epoch, told, tooOld) = (store.epoch, journal.told, journal.tooOld.all)
    underWay.writes.begin { [weak self, store, name] in
      let failure = await store.write(when: when) { store throws(SQLiteError) in
        try work(store)
        try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld)
      }.failure()
      if failure == nil { isKept() }
      guard let self, !self.isClosed else { return }
      self.shipment.release([.burying, .keepingCursor])
      self.woken.resume()
      // The result says nothing about another database.
      guard store.epoch == epoch else { return }
      if let failure {
        self.skipping?.isBuried = false
        let repetition = self.repetition
        if !repetition.isEmpty {
          self.isPositionLost = true
          // The next attempt is as urgent.
          self.journal.lanes.messages.isAhead = true
        }
        self.failed(.retry(reason: "\(failure)\(repetition)", after: nil))
        self.answerSkipping(.retry(reason: "\(failure)", after: nil))
      } else {
        self.kept(seqs)
      }
    }
  }

  /// What a kill would send again, in words: events behind the position on disk that a server without a count has.
  private var repetition: String {
    let ahead = Lane.allCases.filter { journal.lanes[$0].told.seq > journal.lanes[$0].cursor }
    let newest = ahead.map { journal.lanes[$0].told.seq }.max() ?? 0
    let kept = ahead.map { journal.lanes[$0].cursor }.min() ?? 0
    guard !carrier.serverKeepsCount, newest > kept else { return "" }
    return ". If the gateway is killed before that is mended, events up to \(newest) are sent again: "
      + "\(newest - kept) at most"
  }

  func kept(_ seqs: ByLane<Int64>) {
    for lane in Lane.allCases {
      journal.lanes[lane].cursor = seqs[lane]
      guard seqs[lane] > journal.lanes[lane].taken else { continue }
      (journal.lanes[lane].taken, journal.lanes[lane].isMiscounted) = (seqs[lane], true)
    }
    if isPositionLost {
      isPositionLost = false
      let pending = journal.pendingEvents
      if pending == 0 { health.recovered(pending: pending) }
    }
    answerSkipping(nil)
  }
}
