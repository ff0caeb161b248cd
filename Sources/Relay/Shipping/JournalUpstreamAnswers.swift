// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// What becomes of a batch that was answered.
extension JournalUpstream {
  func took(_ verdict: Verdict, _ batch: Batch? = nil) {
    let isProven = isProven(verdict, batch)
    let consequence = shipment.answered(
      verdict, after: taken, isUrgent: suspicion.isUrgent, now: loop.now, using: &random)
    if isProven, case .hungUp(let reason) = verdict, let batch, let event = batch.events.first {
      shipment.resume()
      return bury(event, through: batch.last, status: 0, reason: "the server hangs up over it: \(reason)")
    }
    switch consequence {
    case .advance(let through):
      batches &+= 1
      advance(to: min(through, max(batch?.last ?? taken, taken)))
    case .bury(let status, let reason):
      guard let batch, let event = batch.events.first else { return }
      bury(event, through: batch.last, status: status, reason: reason)
    case .keep: report()
    }
  }

  func bury(_ event: JournalEvent, through: Int64, status: Int, reason: String) {
    log.warning("\(name): event \(event.seq) is refused for good (\(reason)); see `meshpost outbox`")
    let at = clock.milliseconds
    isBurying = true
    move(to: through, when: .now) { [name] store throws(SQLiteError) in
      try store.bury(event, upstream: name, status: status, reason: reason, at: at)
      try store.setCursor(of: name, to: through)
    }
  }

  /// The cursor moves in a transaction of its own; if that is lost, events are sent again, which is always safe. A hub says itself
  /// what it has: where it is, is written along with something else.
  func advance(to seq: Int64) {
    lastSuccess = clock.milliseconds
    taken = seq
    suspicion.advanced(to: seq)
    recovered()
    guard seq != cursor else { return }
    if carrier.kind == "hub" {
      store.writeAlong("cursor:\(name)") { [name] store throws(SQLiteError) in try store.setCursor(of: name, to: seq) }
      cursor = seq
    } else {
      move(to: seq, when: .soon) { [name] store throws(SQLiteError) in try store.setCursor(of: name, to: seq) }
    }
  }

  /// The cursor follows when it is on disk. Shipping goes on meanwhile.
  func move(to seq: Int64, when: When, _ work: @escaping Store.Work) {
    let epoch = store.epoch
    loop.begin { [weak self, store] in
      var failure: StoreError?
      do throws(StoreError) { try await store.save(when: when, work) } catch { failure = error }
      // Of another database nothing is known.
      guard let self, !self.isClosed else { return }
      self.isBurying = false
      guard store.epoch == epoch else { return }
      if let failure {
        self.shipment.greetingSent()
        self.took(.retry(reason: "\(failure)", after: nil))
      } else {
        (self.cursor, self.taken) = (seq, max(self.taken, seq))
      }
      self.woken.resume()
    }
  }

  func recovered() {
    guard troubleLogged != nil else { return }
    log.notice("\(name): connected again, \(max(0, store.lastSeq - cursor)) events to send")
    troubleLogged = nil
  }

  /// Once per trouble, not per try.
  func report() {
    switch shipment.state {
    case .waiting(_, let reason) where troubleLogged != reason:
      log.warning("\(name): \(reason). Nothing is lost; trying again by itself")
      troubleLogged = reason
    case .stopped(_, let reason) where troubleLogged != reason:
      log.error("\(name): stopped: \(reason). Nothing is lost; mend it, then `meshpost outbox resume`")
      troubleLogged = reason
    default: break
    }
  }
}
