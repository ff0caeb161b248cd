// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store

/// What becomes of a batch that was answered.
extension JournalUpstream {
  /// What goes wrong.
  struct Trouble: Equatable {
    var isStopped: Bool
    var reason: String
  }

  /// What became of a greeting.
  func took(_ verdict: Verdict) {
    _ = shipment.answered(verdict, after: .max, window: carrier.window, now: loop.now, using: &random)
    report()
  }

  /// What became of a batch.
  func took(_ verdict: Verdict, _ batch: Batch, in lane: Lane) {
    let isProven = isProven(verdict, batch, lane)
    let taken = lanes[lane].taken
    var verdict = verdict
    if !isProven, isUndecided(verdict, batch, lane), case .refused(_, let reason) = verdict {
      verdict = .retry(reason: reason, after: nil)
    }
    let consequence = shipment.answered(
      verdict, after: taken, isUrgent: lanes[lane].suspicion.isUrgent, window: carrier.window, now: loop.now,
      using: &random)
    if isProven, case .hungUp(let reason) = verdict, let event = batch.events.first {
      shipment.resume()
      return bury(
        event, through: batch, in: lane, status: 0, reason: "the server closes the connection over it: \(reason)")
    }
    switch consequence {
    case .advance(let through):
      batches &+= 1
      someWasTaken(in: lane)
      if !batch.events.isEmpty { lanes[lane].isAhead = true }
      advance(lane, batch, to: through >= batch.last ? batch.last : max(through, taken))
    case .bury(let status, let reason):
      // Until another has passed it is the server that refuses, whatever it is asked.
      guard isProven, let event = batch.events.first else { return }
      bury(event, through: batch, in: lane, status: status, reason: reason)
    case .keep: report()
    }
  }

  /// `through`: the lane is behind that batch now; `nil`: it is where it was.
  func bury(
    _ event: JournalEvent, through batch: Batch?, in lane: Lane, status: Int, reason: String, tried marks: Int64 = 0
  ) {
    log.warning("\(name): event \(event.seq) is refused for good (\(reason)); see `meshpost outbox`")
    let at = clock.milliseconds
    isBurying = true
    // It works, and does not want this one.
    (hasTaken, obstacle) = (true, nil)
    var seqs = takenSeqs
    if let batch {
      seqs[lane] = max(seqs[lane], batch.last)
      hasDeleted(in: lane, through: batch.last)
      count(tooOld: batch, through: batch.last)
    }
    move(to: seqs, when: .now) { [name] store throws(SQLiteError) in
      try store.bury(event, upstream: name, status: status, reason: reason, at: at, tried: marks)
    }
  }

  private func count(tooOld batch: Batch, through seq: Int64) {
    let count = Int64(batch.tooOld.count { $0 <= seq })
    tooOld = (tooOld.all + count, tooOld.untold + count)
  }

  /// What the server had, and has no more, is not here either. Others have a gap for it, too, but lose nothing.
  /// `had`: what it had acknowledged before.
  private func passed(_ gap: JournalEvent, _ lane: Lane, had: Int64) {
    // `try?`: it is our own.
    guard let body = try? JSONValue(parsing: gap.body), let first = body["first"]?.count,
      let count = body["count"]?.count
    else { return }
    // Of what was trimmed it had a part at most; the rest was counted when it was deleted.
    let isDeleted = body["reason"]?.string == "missing"
    guard first <= (isDeleted ? lanes[lane].wasTaken : had) else { return }
    let events = isDeleted ? count : min(count, min(had, gap.seq) - first + 1)
    log.warning(
      "\(name): it had events \(first) to \(gap.seq) of \(lane.rawValue) and has them no more, and the journal has not kept them: at most "
        + "\(events) are lost there; it has a gap for them")
    store.post(when: .heard, "what \(name) lost") { [name] store throws(SQLiteError) in
      try store.addGivenUp(events, of: name)
    }
    historyFound(.lost(events: events))
  }

  /// The cursor moves in a transaction of its own; if that is lost, events are sent again, which is always safe. Of a batch that is
  /// behind it in part, what is pending has to be counted.
  func advance(_ lane: Lane, _ batch: Batch, to seq: Int64) {
    let covered = seq >= batch.last ? batch.covered : nil
    count(tooOld: batch, through: seq)
    // What is not for the server it is not asked about.
    if seq > lanes[lane].taken, batch.events.contains(where: { $0.seq <= seq }) { lastSuccess = clock.milliseconds }
    (hasTaken, obstacle) = (true, nil)
    (starts.renewalsInARow, starts.wasInStep) = (0, true)
    waitsSince = nil
    hasDeleted(in: lane, through: seq)
    lanes[lane].taken = seq
    let had = lanes[lane].told.seq
    if let newest = batch.events.last(where: { $0.seq <= seq }) { lanes[lane].told = (newest.seq, store.epoch) }
    for gap in batch.events where gap.kind == EventKind.gap.rawValue && gap.seq <= seq {
      passed(gap, lane, had: had)
    }
    lanes[lane].suspicion.advanced(to: seq)
    lanes[lane].passed.events += covered?.events ?? 0
    lanes[lane].passed.bytes += covered?.bytes ?? 0
    if covered == nil { lanes[lane].isMiscounted = true }
    forgetFolding()
    // A server that knows no lanes: the others are where the whole is.
    if !knowsLanes { setTaken(ByLane(all: seq)) }
    recovered(hasTaken: true)
    keepCursors()
    if pendingEvents > 0 {
      waitsSince = loop.now
    } else if tooOld.untold > 0, tellsTooOld.take(at: loop.now) {
      // Once for all that had waited for too long, not a line for each that comes so.
      tellTooOld()
    }
    acknowledged()
  }

  func tellTooOld() {
    guard tooOld.untold > 0 else { return }
    log.notice("\(name): \(tooOld.untold) events were too old when their turn came (max_age_s), and were left out")
    tooOld.untold = 0
  }

  /// The cursors follow. A hub says itself what it has: where it is, is written along with something else.
  func keepCursors() {
    passOver()
    let seqs = takenSeqs
    guard seqs != cursor else { return }
    if carrier.kind == "hub" {
      store.writeAlong("cursor:\(name)") { [name, tooOld, told] store throws(SQLiteError) in
        try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld.all)
      }
      for lane in Lane.allCases { lanes[lane].cursor = seqs[lane] }
    } else {
      // A message that comes twice after a power cut disturbs somebody; a packet or an advert does not, nor what is left out again.
      move(to: seqs, when: lanes.messages.isAhead ? .soon : .heard)
      lanes.messages.isAhead = false
    }
  }

  private var told: ByLane<Int64> {
    ByLane(messages: lanes.messages.told.seq, nodes: lanes.nodes.told.seq, packets: lanes.packets.told.seq)
  }

  /// The cursors follow when they are on disk. Shipping continues meanwhile. `work` is in the same transaction.
  func move(to seqs: ByLane<Int64>, when: When, _ work: @escaping Store.Work = { _ in }) {
    let (epoch, told, tooOld) = (store.epoch, told, tooOld.all)
    loop.begin { [weak self, store, name] in
      var failure: StoreError?
      do throws(StoreError) {
        try await store.save(when: when) { store throws(SQLiteError) in
          try work(store)
          try store.setCursor(of: name, to: seqs, told: told, tooOld: tooOld)
        }
      } catch {
        failure = error
      }
      // Of another database nothing is known.
      guard let self, !self.isClosed else { return }
      (self.isBurying, self.isKeepingCursor) = (false, false)
      guard store.epoch == epoch else { return }
      if let failure {
        self.shipment.greetingSent()
        self.took(.retry(reason: "\(failure)", after: nil))
        self.forgetVoidFlights()
      } else {
        self.kept(seqs)
      }
      self.woken.resume()
    }
  }

  private func kept(_ seqs: ByLane<Int64>) {
    for lane in Lane.allCases {
      lanes[lane].cursor = seqs[lane]
      guard seqs[lane] > lanes[lane].taken else { continue }
      (lanes[lane].taken, lanes[lane].isMiscounted) = (seqs[lane], true)
    }
  }

  /// A connection is there, or events were taken.
  func recovered(hasTaken: Bool = false) {
    let before = trouble
    trouble = nil
    let pending = pendingEvents
    let isFruitless = unrest.isFruitless
    if before != nil || (hasTaken && isFruitless), hasTaken || pending == 0 || !isFruitless {
      if unrest.comesBack(at: loop.now) {
        log.notice("\(name): connected again, \(pending) events to send")
      } else {
        unrest.timer = loop.schedule(after: Unrest.calm) { [weak self] in self?.holdsAgain() }
      }
    }
    if hasTaken || pending == 0 {
      (unrest.fruitless, unrest.isFruitless) = (nil, false)
    } else if let before {
      unrest.fruitless = before
    }
  }

  /// It came and went, and has not for a while.
  private func holdsAgain() {
    guard !isClosed, trouble == nil else { return }
    log.notice("\(name): the connection holds again, \(pendingEvents) events to send")
    unrest = Unrest()
  }

  /// Once per trouble, not per try: of a server that answers each connection and takes nothing, too, and of one that takes a little each time.
  func report() {
    let now: Trouble
    switch shipment.state {
    case .waiting(_, let reason), .busy(_, let reason): now = Trouble(isStopped: false, reason: reason)
    case .stopped(_, let reason): now = Trouble(isStopped: true, reason: reason)
    case .greeting, .asking, .ready: return
    }
    obstacle = now.reason
    guard now != trouble else { return }
    trouble = now
    unrest.timer?.cancel()
    if now == unrest.fruitless, !now.isStopped {
      guard !unrest.isFruitless else { return }
      unrest.isFruitless = true
      log.warning(
        "\(name): \(now.reason), again: it can be reached, and takes nothing. Nothing is lost; retrying automatically")
      return
    }
    unrest.isFruitless = false
    if now.isStopped {
      unrest = Unrest()
      log.error("\(name): stopped: \(now.reason). Nothing is lost; fix it, then run `meshpost outbox resume`")
      return
    }
    switch unrest.goes(at: loop.now) {
    case .first: log.warning("\(name): \(now.reason). Nothing is lost; retrying automatically")
    case .again:
      log.warning(
        "\(name): \(now.reason), again: the connection comes and goes (logged at most once an hour). Nothing is lost; retrying automatically"
      )
    case .often(let times):
      log.warning(
        "\(name): \(now.reason): the connection came and went \(times) times since this was logged last. Nothing is lost"
      )
    case .untold: break
    }
  }
}
