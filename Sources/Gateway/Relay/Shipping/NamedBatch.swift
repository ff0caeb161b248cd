// SPDX-License-Identifier: MIT

import Store

/// A batch for a server that recognises it by what it contains. As long as its answer is not known, it is sent again as it was: in another batch, its
/// events would be new to that server. Pure.
struct NamedBatch: Equatable {
  /// It may be too large for the line, or one of its events too much for the server: after so many lost answers, its events are sent in smaller batches.
  static let mostLosses = 3

  let seqs: [Int64]
  private var losses = 0
  /// The server has judged it, or its answer was lost too often.
  private(set) var isOver = false
  /// The server may have it. One that was never sent, because the disk refused what it contains, does not hold up smaller ones.
  var isSent: Bool

  init(seqs: [Int64], isSent: Bool = false) { (self.seqs, self.isSent) = (seqs, isSent) }

  mutating func answered(_ verdict: Verdict) {
    switch verdict {
    case .acknowledged, .refused, .failing, .diverged: isOver = true
    case .hungUp:
      losses += 1
      isOver = losses >= Self.mostLosses
    case .retry, .busy, .stopped: break
    }
  }
}

extension JournalReader {
  /// The batch whose answer is not known, as it was sent; `nil`: there is none, or the journal or the filter has lost a part of it.
  func repetition(_ lane: Lane, after cursor: Int64) throws(StoreError) -> Batch? {
    guard let named = lanes[lane].named, !named.isOver, let first = named.seqs.first, first > cursor else {
      return nil
    }
    let limits = Batch.Limits(events: named.seqs.count, bytes: .max)
    let batch = try read(lane, after: cursor, limits: limits, only: named.seqs)
    return batch.events.map(\.seq) == named.seqs ? batch : nil
  }
}

extension Upstream {
  /// The next batch of the portion's lane.
  func nextBatch(_ portion: Shipment.Portion) throws(StoreError) -> Batch {
    let (lane, most) = (portion.lane, maxBatchBytes(portion.lane))
    let (start, isAlone) = (journal.lanes[lane].readThrough, journal.lanes[lane].suspicion.wantsAlone)
    if carrier.namesBatches, !isAlone, let again = try journal.repetition(lane, after: start), again.size <= most {
      return again
    }
    let limits = Batch.Limits(
      events: isAlone ? 1 : portion.events, bytes: min(portion.bytes, settings.batchBytes, most))
    return try journal.read(lane, after: start, limits: limits)
  }

  /// Writes what a batch contains, and the position before it, before it is sent for the first time: after a kill, it is sent again as it was. True:
  /// wait for it.
  ///
  /// Only for messages: packets and adverts come all the time, and their positions are not on disk at once, either. One event needs no write, because a
  /// start begins with one.
  func keepsNameFirst(_ batch: Batch, _ lane: Lane) -> Bool {
    guard carrier.namesBatches else { return false }
    let seqs = batch.events.map(\.seq)
    if journal.lanes[lane].named?.seqs != seqs || journal.lanes[lane].named?.isOver == true {
      journal.lanes[lane].named = NamedBatch(seqs: seqs)
    }
    let progress = journal.lanes[lane]
    // A disk that refuses positions does not hold up events.
    guard lane == .messages, !isPositionLost, progress.keptName != seqs else { return false }
    let another = progress.keptName.first ?? 0
    guard seqs.count > 1 || max(another, progress.told.seq) > progress.cursor else { return false }
    if !shipment.holds.contains(.keepingCursor) {
      move(to: journal.taken, when: .now) { [name] store throws(SQLiteError) in
        try store.setNamedBatch(of: name, seqs)
      } kept: { [weak self] in
        self?.journal.lanes[lane].keptName = seqs
      }
    }
    shipment.hold(.keepingCursor)
    return true
  }
}
