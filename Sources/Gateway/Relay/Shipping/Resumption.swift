// SPDX-License-Identifier: MIT

import JSON
import Store

/// Decides where each lane continues, from the server's report.
extension JournalReader {
  enum Comparison {
    /// Each lane continues after that event.
    case resumes(ByLane<Int64>)
    /// The server has other events under our numbers. `last`: the last event that it has.
    case diverged(String, last: Int64)
  }

  static func positions(_ acknowledged: Acknowledged) -> (ByLane<Int64?>, lanesKnown: Bool) {
    switch acknowledged {
    case .whole(let seq): (ByLane(all: seq), false)
    case .byLane(let seqs): (seqs, true)
    }
  }

  /// Compares the server's report on this epoch with the journal; either side may have been restored meanwhile. `digests`: of the server's newest
  /// events. `floors`: where lanes continue of which the server has nothing. `isAlone`: all its events came from this upstream.
  func compare(
    _ acknowledged: Acknowledged, _ digests: ByLane<String?>, _ floors: ByLane<Int64>, isAlone: Bool
  ) -> Comparison {
    let (has, lanesKnown) = Self.positions(acknowledged)
    knowsLanes = lanesKnown
    let through: ByLane<Int64> = ByLane { resumption($0, has[$0], floors[$0], leads: isAlone || !lanesKnown) }
    let highest = Lane.allCases.reduce(through.highest) { max($0, has[$1] ?? 0) }
    guard highest <= store.lastSeq else {
      return .diverged("it has event \(highest), and the journal ends with \(store.lastSeq)", last: highest)
    }
    for lane in Lane.allCases {
      guard let seq = has[lane], let digest = digests[lane] else { continue }
      let own = ownDigest(of: seq)
      if own == digest { continue }
      guard own == nil || digest.isEmpty else { return .diverged("it has another event \(seq)", last: highest) }
      // Our event is gone, or the server's is (an empty digest). Only its acknowledgements to us prove that it has our events: beyond them, resuming
      // could skip events that it does not have.
      guard seq > max(lanes[lane].taken, lanes[lane].told.seq) else { continue }
      // No other copy of the database can have an epoch that began in this run: what the server has of it came from here, and an answer was lost.
      // A hub has no row, and so an empty digest, of an event that it had of an earlier epoch. With a new epoch each time, a bad line would have the
      // whole journal sent again and again.
      guard !store.identity.beganInThisRun else { continue }
      return .diverged(
        "it has an event \(seq) that it has not acknowledged here, and \(digest.isEmpty ? "it" : "the journal") has deleted its own",
        last: highest)
    }
    return .resumes(through)
  }

  /// The server lacks events that it has acknowledged in this run of the program.
  func isForgetful(_ acknowledged: Acknowledged) -> Bool {
    let has = Self.positions(acknowledged).0
    return Lane.allCases.contains { lanes[$0].told.epoch == store.epoch && has[$0] ?? 0 < lanes[$0].told.seq }
  }

  /// Where a lane continues at a server that has it up to `has`; `nil`: it has nothing. `leads`: all the server's events came from here. Otherwise
  /// some may be from another upstream with another filter: this one sends its own events before `has`, too, and the server ignores duplicates.
  private func resumption(_ lane: Lane, _ has: Int64?, _ floor: Int64, leads: Bool) -> Int64 {
    let progress = lanes[lane]
    let isBefore = has.map { $0 == progress.serverHas && $0 > 0 } ?? false
    let has = has.map { leads ? $0 : min($0, progress.taken) }
    // The server's position has not changed: there were no later events of the lane for it.
    if isBefore, let has { return max(has, progress.taken) }
    let cursor = knowsLanes ? progress.cursor : self.cursor.lowest
    let through = skipDeadLetters(after: max(beginning, has ?? floor), in: lane)
    if through != cursor {
      // Only a step back is worth a notice. An idle lane always lags at the server; and the cursor may lag after a power cut, because it is written
      // along with something else.
      let words = "\(name): the server has \(lane.rawValue) up to \(through), not \(cursor): continuing from there"
      if through < min(cursor, store.newestSeq[lane]), filter.leavesNothingOut {
        log.notice(words)
      } else {
        log.debug(words)
      }
    }
    return through
  }

  /// The most dead letters that are skipped.
  private static let maxSkipped = 1000

  /// Skips dead letters right after the server's position: a server that keeps count does not count them, and they must not be sent again
  /// automatically.
  private func skipDeadLetters(after acknowledged: Int64, in lane: Lane) -> Int64 {
    var through = acknowledged
    let limits = Batch.Limits(events: 1, bytes: 1)
    for _ in 0..<Self.maxSkipped where through < lanes[lane].cursor {
      guard
        // If the store cannot be read, the next step fails, too.
        let batch = store.ifReadable({ try read(lane, after: through, limits: limits, isPast: true) }),
        batch.last <= lanes[lane].cursor, let event = batch.events.first, !Self.standsForOthers(event),
        store.ifReadable({ try store.isDeadLetter(event.seq, of: name) }) == true
      else { break }
      through = batch.last
    }
    return through
  }

  /// A gap has the number of the last event that it stands for: if that is a dead letter, the server may still lack those before.
  private static func standsForOthers(_ event: JournalEvent) -> Bool {
    guard event.kind == EventKind.gap.rawValue, let first = event.json?["first"]?.count else { return false }
    return first < event.seq
  }

  // MARK: A server that has nothing of this epoch

  /// Where a lane continues of which the server has nothing in this epoch: at its cursor, unless the server lacks earlier events, because it was
  /// emptied, or is an older copy of itself.
  func floors(_ acknowledged: Acknowledged, _ carrier: any Carrier) async throws(Verdict) -> ByLane<Int64> {
    let (has, lanesKnown) = Self.positions(acknowledged)
    var floors = ByLane<Int64>(all: 0)
    var asked = ByLane<Int64?>(all: nil)
    let told = store.ifReadable { try store.told(name, beforeEpoch: true) }
    for lane in Lane.allCases where has[lane] == nil {
      floors[lane] = min(lanesKnown ? lanes[lane].cursor : cursor.lowest, store.identity.epochFirst - 1)
      if lanesKnown, floors[lane] > beginning {
        // The journal may have deleted that event: then its stored number serves.
        let told = told.flatMap { (beginning + 1...floors[lane]).contains($0[lane]) ? $0[lane] : nil }
        asked[lane] = newestSent(lane, through: floors[lane]) ?? told
      }
    }
    guard asked != ByLane(all: nil), let epoch = store.identity.epochBefore(of: store.identity.epochFirst - 1) else {
      return floors
    }
    switch await carrier.standing(of: epoch, through: asked) {
    case .failed(let verdict): throw verdict
    case .ready, .has(.whole, _): break
    case .has(.byLane(let seqs), let digests):
      for lane in Lane.allCases {
        guard let newest = asked[lane] else { continue }
        // A hub that does not know this request names its newest event, which may be beyond.
        if let seq = seqs[lane], seq > newest { continue }
        // Without the same event at both ends, the server may have nothing of the lane, or other events: it gets everything, and ignores what it has.
        let same = seqs[lane].flatMap { seq in ownDigest(of: seq).flatMap { $0 == digests[lane] ? seq : nil } }
        if let same, same < newest { floors[lane] = same } else if same == nil { floors[lane] = beginning }
      }
    }
    return floors
  }

  /// The lane's newest event up to `end` that is for this server; `nil`: the journal has none.
  private func newestSent(_ lane: Lane, through end: Int64) -> Int64? {
    var (found, width): (Int64?, Int64) = (nil, 64)
    repeat {
      width *= 8
      // An unreadable store fails the next reading of events, too.
      _ = store.ifReadable {
        try store.readJournal(after: max(0, end - width), lane: lane) { [filter, store] event, isSound in
          guard event.seq <= end else { return false }
          // `try?`: the same.
          if isSound, !event.isDeleted, Lane(kind: event.kind) == lane, (try? filter.passes(event, store, nil)) == true
          {
            found = event.seq
          }
          return true
        }
      }
    } while found == nil && width < end
    return found
  }

  /// The digest of our event with this number; `nil`: it was deleted, or is damaged.
  private func ownDigest(of seq: Int64) -> String? {
    var digest: String?
    // An unreadable store fails the next reading of events, too.
    _ = store.ifReadable {
      try store.readJournal(after: seq - 1, limit: 1) { event, isSound in
        guard event.seq == seq, isSound, !event.isDeleted, let body = event.json else { return false }
        digest = EventContent.digest(at: event.at, kind: event.kind, body: body)
        return false
      }
    }
    return digest
  }
}
