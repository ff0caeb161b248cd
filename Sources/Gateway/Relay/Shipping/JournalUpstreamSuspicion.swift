// SPDX-License-Identifier: MIT

import Store

/// What is done about an event over which the server hangs up, or that it refuses: `Suspicion` decides, here it is carried out.
extension JournalUpstream {
  /// Whether the verdict proves which event is at fault: the batch had only one.
  func isProven(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) -> Bool {
    guard let first = batch.events.first else { return false }
    switch verdict {
    case .hungUp: return lanes[lane].suspicion.hungUp(first: first.seq, count: batch.events.count)
    case .refused where batch.events.count == 1: return lanes[lane].suspicion.refused(first.seq)
    default: return false
    }
  }

  /// `nil`: none is wanted now, or there is none.
  func nextProof(_ lane: Lane) throws(StoreError) -> Batch? {
    guard lanes[lane].suspicion.wantsProof, flights.isEmpty else { return nil }
    return try proof(lane)
  }

  /// A refusal that proves nothing, with nothing there to prove it: the same goes again later.
  func isUndecided(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) -> Bool {
    guard case .refused = verdict, batch.events.count == 1, lanes[lane].suspicion.isActive else { return false }
    let others = unsuspected(waiting.and(permittedLanes()))
    guard !Lane.allCases.contains(where: { $0 != lane && others[$0] }) else { return false }
    // `try?`: what cannot be read now is no proof now.
    return ((try? proof(lane)) ?? nil) == nil
  }

  /// Of lanes that may send, those without a refused event, where there are any: what they send in their turn shows whether the server
  /// takes any.
  func unsuspected(_ lanes: ByLane<Bool>) -> ByLane<Bool> {
    var others = lanes
    for lane in Lane.allCases {
      let suspicion = self.lanes[lane].suspicion
      if carrier.kind != "hub", suspicion.wantsProof, !suspicion.isHangUp { others[lane] = false }
    }
    return Lane.allCases.contains { others[$0] } ? others : lanes
  }

  /// A batch was taken: the server takes some.
  func someWasTaken(in lane: Lane) {
    for other in Lane.allCases where other != lane && lanes[other].suspicion.wantsProof {
      guard !lanes[other].suspicion.isHangUp else { continue }
      lanes[other].suspicion.anotherPassed()
    }
  }

  /// The event that is to show that the server takes any. To a hub an empty batch, over a hang-up the one before the
  /// suspect, which it has had and knows again: of a later one it would believe to have what is before. To others one of those that come after: whatever is taken
  /// is not sent again in its turn. Over a hang-up the one before, too, where nothing comes after. `nil`: there is none.
  private func proof(_ lane: Lane) throws(StoreError) -> Batch? {
    let suspicion = lanes[lane].suspicion
    guard let suspect = suspicion.seq else { return nil }
    if carrier.kind == "hub" {
      let known = suspicion.isHangUp ? try lastEvent(before: suspect, lane) : nil
      return known.map { Batch($0, lane: laneSent(lane)) } ?? Batch(empty: laneSent(lane))
    }
    let had = ahead(lane)
    let later = try Batch(
      after: suspect, of: store, lane: laneSent(lane),
      limits: Batch.Limits(events: had.count + Self.maxProofs, bytes: .max),
      filter: settings.filter, present: present
    ).events.filter { $0.kind != EventKind.gap.rawValue && !had.contains($0.seq) }
    // Another one each time: it may be refused itself.
    if !later.isEmpty { return Batch(later[suspicion.failedProofs % later.count], lane: laneSent(lane)) }
    guard suspicion.isHangUp else { return nil }
    return try lastEvent(before: suspect, lane).map { Batch($0, lane: laneSent(lane)) }
  }

  /// Events after the suspect that are tried in turn.
  private static let maxProofs = 8

  /// What of the lane was taken out of turn.
  func ahead(_ lane: Lane) -> Set<Int64> { lanes[lane].ahead.epoch == store.epoch ? lanes[lane].ahead.seqs : [] }

  private func tookAhead(_ batch: Batch, _ lane: Lane) {
    guard carrier.kind != "hub", let seq = batch.events.first?.seq, seq > lanes[lane].taken else { return }
    let taken = lanes[lane].taken
    lanes[lane].ahead = (ahead(lane).filter { $0 > taken }.union([seq]), store.epoch)
  }

  /// Events before the suspect that are looked at.
  private static let maxBefore = 500

  private func lastEvent(before suspect: Int64, _ lane: Lane) throws(StoreError) -> JournalEvent? {
    // What is of an epoch before this one would be new to a hub, once more.
    let first = max(beginning, store.epochFirst - 1, suspect - 1 - Int64(Self.maxBefore))
    let taken = lanes[lane].taken
    guard first < taken else { return nil }
    let limits = Batch.Limits(events: Self.maxBefore, bytes: .max)
    let before = try Batch(
      after: first, of: store, lane: laneSent(lane), limits: limits, filter: settings.filter)
    let isKnown = { (event: JournalEvent) in
      event.seq < suspect && event.seq <= taken && event.kind != EventKind.gap.rawValue
    }
    // One that was folded into a newer one was never sent.
    var newer: Set<Folding.Key> = []
    for event in before.events.reversed() {
      if settings.folds, let key = Folding.Key(event) {
        guard newer.insert(key).inserted, folding?.place(of: event) != .folded else { continue }
      }
      if isKnown(event), try !store.isDeadLetter(event.seq, of: name) { return event }
    }
    return nil
  }

  func tookProof(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) {
    var answer = verdict
    if case .refused(_, let reason) = verdict { answer = .retry(reason: reason, after: nil) }
    _ = shipment.answered(
      answer, after: lanes[lane].taken, isUrgent: lanes[lane].suspicion.isUrgent, now: loop.now, using: &random)
    switch verdict {
    case .acknowledged:
      lastSuccess = clock.milliseconds
      tookAhead(batch, lane)
      lanes[lane].suspicion.anotherPassed()
    case .refused, .hungUp, .retry, .busy, .diverged, .stopped: lanes[lane].suspicion.anotherFailed()
    }
    report()
  }

  // MARK: Dead letters that are sent again

  /// `marks`: those it had when it was sent.
  func tookDeadLetter(_ verdict: Verdict, _ batch: Batch, _ marks: Int64) {
    guard let event = batch.events.first else { return }
    let lane = Lane(of: event)
    let consequence = shipment.answered(verdict, after: lanes[lane].taken, now: loop.now, using: &random)
    if let reason = lastHangUp(verdict) {
      // Not retried automatically: later events must not wait for it.
      return bury(
        event, through: nil, in: lane, status: 0, reason: "the server closes the connection over it: \(reason)",
        tried: marks)
    }
    switch consequence {
    case .advance:
      lastSuccess = clock.milliseconds
      loop.begin { [name, store, log, weak self] in
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
    case .keep: report()
    }
  }

  /// Tries of a dead letter over which the server hangs up.
  private static let maxLetterHangUps = 3

  /// The reason, when a dead letter has been tried often enough.
  private func lastHangUp(_ verdict: Verdict) -> String? {
    guard case .hungUp(let reason) = verdict else {
      letterHangUps = 0
      return nil
    }
    letterHangUps += 1
    guard letterHangUps >= Self.maxLetterHangUps else { return nil }
    letterHangUps = 0
    return reason
  }

  /// Dead letters right behind what the server has, at most.
  private static let maxBuried = 1000

  /// A server that says how far it is does not count what was buried behind that: it is not sent again by itself.
  func past(buried acknowledged: Int64, in lane: Lane) -> Int64 {
    var through = acknowledged
    let limits = Batch.Limits(events: 1, bytes: 1)
    for _ in 0..<Self.maxBuried where through < lanes[lane].cursor {
      guard
        // A store that cannot be read fails what follows, too.
        let batch = store.ifReadable({ try read(lane, after: through, limits: limits, isPast: true) }),
        batch.last <= lanes[lane].cursor, let seq = batch.events.first?.seq,
        store.ifReadable({ try store.isDeadLetter(seq, of: name) }) == true
      else { break }
      through = batch.last
    }
    return through
  }
}
