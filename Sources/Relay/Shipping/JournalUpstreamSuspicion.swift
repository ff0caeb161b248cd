// SPDX-License-Identifier: MIT

import Store

/// What is done about an event over which the server hangs up: `Suspicion` decides, here it is carried out.
extension JournalUpstream {
  /// Whether the verdict proves which event is at fault: the batch had only one.
  func isProven(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) -> Bool {
    guard case .hungUp = verdict, let first = batch.events.first else { return false }
    return lanes[lane].suspicion.hungUp(first: first.seq, count: batch.events.count)
  }

  /// The event that is to show that the server takes any: the one before the suspect, which the server has had and will
  /// know again; without one that which comes after. A hub gets an empty batch then: it would believe to have what is before the
  /// later one. `nil`: none is wanted, or there is none.
  func nextProof(_ lane: Lane) throws(StoreError) -> Batch? {
    let suspicion = lanes[lane].suspicion
    guard suspicion.wantsProof, flights.isEmpty, let suspect = suspicion.seq else { return nil }
    if let known = try lastEvent(before: suspect, lane) { return Batch(known, lane: laneSent(lane)) }
    if carrier.kind == "hub" { return Batch(empty: laneSent(lane)) }
    let next = try Batch(
      after: suspect, of: store, lane: laneSent(lane), limits: Batch.Limits(events: 1, bytes: 1),
      filter: settings.filter)
    return next.events.first.map { Batch($0, lane: laneSent(lane)) }
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

  func tookProof(_ verdict: Verdict, _ lane: Lane) {
    _ = shipment.answered(
      verdict, after: lanes[lane].taken, isUrgent: lanes[lane].suspicion.isUrgent, now: loop.now, using: &random)
    switch verdict {
    // One that it refuses it has understood.
    case .acknowledged, .refused: lanes[lane].suspicion.anotherPassed()
    case .hungUp, .retry, .busy, .diverged, .stopped: lanes[lane].suspicion.anotherFailed()
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
