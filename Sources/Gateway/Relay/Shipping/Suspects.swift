// SPDX-License-Identifier: MIT

import Store

/// Finds the event that makes a server hang up or refuse: `Suspicion` decides, and this code chooses the events to send.
extension JournalReader {
  /// Whether the verdict proves which event is at fault: the batch had only one.
  func isProven(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) -> Bool {
    guard let first = batch.events.first else { return false }
    switch verdict {
    case .hungUp: return lanes[lane].suspicion.hungUp(first: first.seq, count: batch.events.count)
    case .failing where batch.events.count == 1: return mayBeSkipped(first.seq, lane)
    case .refused where batch.events.count == 1:
      return mayBeSkipped(first.seq, lane) || lanes[lane].suspicion.refused(first.seq)
    default: return false
    }
  }

  private func mayBeSkipped(_ event: Int64, _ lane: Lane) -> Bool {
    guard lanes[lane].suspicion.isAsked else { return false }
    // An unreadable store does not show that there is no other event.
    let isOnly = store.ifReadable { try proof(lane) == nil } ?? false
    return lanes[lane].suspicion.failed(event, isOnly: isOnly)
  }

  /// Whether a refusal proves nothing, and no other event can be sent as a proof: then the same batch is sent again later. `permitted`: lanes that
  /// may be sent.
  func isUndecided(_ verdict: Verdict, _ batch: Batch, _ lane: Lane, permitted: ByLane<Bool>) -> Bool {
    guard case .refused = verdict, batch.events.count == 1, lanes[lane].suspicion.isActive else { return false }
    // Lanes that each wait for a proof by the other would be sent in turns, without a pause.
    let others = waiting.and(permitted)
    guard !Lane.allCases.contains(where: { $0 != lane && others[$0] && !isRefused($0) }) else { return false }
    // `try?`: an unreadable store gives no proof now.
    return ((try? proof(lane)) ?? nil) == nil
  }

  /// Of the given lanes, those without a refused event, or all if each has one: their regular batches show whether the server takes any.
  func unsuspected(_ lanes: ByLane<Bool>) -> ByLane<Bool> {
    var others = lanes
    for lane in Lane.allCases where isRefused(lane) { others[lane] = false }
    return Lane.allCases.contains { others[$0] } ? others : lanes
  }

  /// The lane has a refused event, and nothing has shown yet whether the server takes any.
  private func isRefused(_ lane: Lane) -> Bool {
    let suspicion = lanes[lane].suspicion
    return !serverKeepsCount && suspicion.wantsProof && !suspicion.isHangUp
  }

  /// The server took a batch of this lane, which is the proof for the refused events of others.
  func someWasTaken(in lane: Lane) {
    for other in Lane.allCases where other != lane && lanes[other].suspicion.wantsProof {
      guard !lanes[other].suspicion.isHangUp else { continue }
      lanes[other].suspicion.anotherPassed()
    }
  }

  /// The event that is to show whether the server takes any; `nil`: there is none.
  ///
  /// A server that keeps count gets an empty batch or, after a hang-up, the event before the suspect, which it has already: with a later one, it
  /// would believe that it had the events before that. Other servers get an event after the suspect, which is not sent again in its turn; after a
  /// hang-up, if there is none, the event before the suspect.
  func proof(_ lane: Lane) throws(StoreError) -> Batch? {
    let suspicion = lanes[lane].suspicion
    guard let suspect = suspicion.seq else { return nil }
    if serverKeepsCount {
      let known = suspicion.isHangUp || suspicion.isAsked ? try lastEvent(before: suspect, lane) : nil
      return known.map { Batch($0, lane: laneSent(lane)) } ?? Batch(empty: laneSent(lane))
    }
    let had = ahead(lane)
    // Another event each time: the server may refuse it, too.
    let place = suspicion.nextProof(ahead: had.max(), last: store.lastSeq)
    for passed in [had.union(suspicion.failedOthers), had] {
      for first in [place, suspect] {
        let later = try Batch(
          after: first, of: store, lane: laneSent(lane),
          limits: Batch.Limits(events: passed.count + Self.maxGaps, bytes: .max), filter: filter, present: present
        ).events.first { $0.kind != EventKind.gap.rawValue && !passed.contains($0.seq) }
        if let later { return Batch(later, lane: laneSent(lane)) }
      }
    }
    guard suspicion.isHangUp else { return nil }
    return try lastEvent(before: suspect, lane).map { Batch($0, lane: laneSent(lane)) }
  }

  /// Events that tell of losses, which are no proof, and may stand between two others.
  private static let maxGaps = 8

  /// Events of the lane that the server took out of turn.
  func ahead(_ lane: Lane) -> Set<Int64> { lanes[lane].ahead.epoch == store.epoch ? lanes[lane].ahead.seqs : [] }

  /// The server took an event that was sent as a proof.
  func tookAhead(_ batch: Batch, _ lane: Lane) {
    guard !serverKeepsCount, let seq = batch.events.first?.seq, seq > lanes[lane].taken else { return }
    let taken = lanes[lane].taken
    lanes[lane].ahead = (ahead(lane).filter { $0 > taken }.union([seq]), store.epoch)
  }

  /// Events before the suspect that are searched.
  private static let maxBefore = 500

  private func lastEvent(before suspect: Int64, _ lane: Lane) throws(StoreError) -> JournalEvent? {
    // To a hub, an event of an earlier epoch would be new.
    let first = max(beginning, store.identity.epochFirst - 1, suspect - 1 - Int64(Self.maxBefore))
    let taken = lanes[lane].taken
    guard first < taken else { return nil }
    let limits = Batch.Limits(events: Self.maxBefore, bytes: .max)
    let before = try Batch(after: first, of: store, lane: laneSent(lane), limits: limits, filter: filter)
    let isKnown = { (event: JournalEvent) in
      event.seq < suspect && event.seq <= taken && event.kind != EventKind.gap.rawValue
    }
    // An event that was folded into a newer one was never sent.
    var newer: Set<Folding.Key> = []
    for event in before.events.reversed() {
      if folds, let key = Folding.Key(event) {
        guard newer.insert(key).inserted, folding?.place(of: event) != .folded else { continue }
      }
      if isKnown(event), try !store.isDeadLetter(event.seq, of: name) { return event }
    }
    return nil
  }
}
