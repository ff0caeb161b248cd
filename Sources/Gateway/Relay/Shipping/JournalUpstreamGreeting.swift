// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import Timing

/// How a connection begins: the server reports what it has, and each lane continues from there.
extension JournalUpstream {
  func greet() async throws(CancellationError) {
    mend()
    release()
    isResting = false
    shipment.greetingSent()
    let epoch = store.epoch
    let greeting = await carrier.greet()
    if Task.isCancelled { throw CancellationError() }
    switch greeting {
    case .has(let acknowledged, let digests):
      let floors = await floors(acknowledged)
      if Task.isCancelled { throw CancellationError() }
      // Another upstream has begun a new one: what was said of the old one says nothing of it.
      guard store.epoch == epoch else { return shipment.greetAgain() }
      switch floors {
      case .success(let floors): known(acknowledged, digests, floors)
      case .failure(let verdict): return took(verdict)
      }
    case .ready:
      knowsLanes = true
      shipment.greeted()
      // What it has acknowledged does not go again, even where the cursors are not on disk yet.
      startOver(from: takenSeqs)
      keepCursors()
      // Where nothing is connected, nothing is known yet: the first batch will tell.
      if carrier.keepsConnection { recovered() }
    case .failed(let verdict): return took(verdict)
    }
    holder = loop.begin { [weak self, carrier] in
      // Cancelled: another task opens the next connection.
      guard let end = try? await carrier.hold() else { return }
      self?.ended(end)
    }
  }

  public func test() async -> String? {
    let end = loop.now + .seconds(10)
    // `try?`: who was cancelled waits no more.
    while isBusy, loop.now < end, (try? await loop.sleep(for: .milliseconds(50))) != nil {}
    if isBusy { return "busy sending; see its state in `meshpost status`" }
    isTesting = true
    isResting = false
    mend()
    // Nothing else is sent meanwhile.
    shipment.greetingSent()
    release()
    let verdict = await carrier.test()
    isTesting = false
    shipment.greetAgain()
    wake()
    switch verdict {
    case .acknowledged: return nil
    case .retry(let reason, _), .busy(let reason, _), .hungUp(let reason), .diverged(let reason),
      .stopped(let reason), .refused(_, let reason):
      return reason
    }
  }

  private func ended(_ end: ConnectionEnd) {
    // Ended on purpose: nothing to report.
    guard !isClosed else { return }
    holder = nil
    switch end {
    case .outdated: isOutdated = true
    case .lost(nil): break
    case .lost(let verdict?):
      forgetFlights()
      shipment.greetingSent()
      took(verdict)
    }
    woken.resume()
  }

  /// The server says what it has of this epoch; either side may have been restored meanwhile.
  private func known(_ acknowledged: Acknowledged, _ digests: ByLane<String?>, _ floors: ByLane<Int64>) {
    let (has, lanesKnown) = Self.positions(acknowledged)
    knowsLanes = lanesKnown
    var through = ByLane<Int64>(all: 0)
    // What cannot be read now is sent once more.
    let isAlone = store.ifReadable { try !store.hasUpstream(besides: unrelated() + [name]) } ?? false
    for lane in Lane.allCases {
      through[lane] = resumption(lane, has[lane], floors[lane], leads: isAlone || !lanesKnown)
    }
    let highest = Lane.allCases.reduce(through.highest) { max($0, has[$1] ?? 0) }
    guard highest <= store.lastSeq else {
      return diverged("it has event \(highest), and the journal ends with \(store.lastSeq)", last: highest)
    }
    for lane in Lane.allCases {
      guard let seq = has[lane], let digest = digests[lane] else { continue }
      let own = ownDigest(of: seq)
      if own == digest { continue }
      guard own == nil || digest.isEmpty else { return diverged("it has another event \(seq)", last: highest) }
      // Ours is gone, or its own is (an empty digest). What it has acknowledged to us shows that it has ours up to there, and nothing else does:
      // what we heard after that would be passed over.
      guard seq > max(lanes[lane].taken, lanes[lane].told.seq) else { continue }
      return diverged(
        "it has an event \(seq) that it has not acknowledged here, and \(digest.isEmpty ? "it" : "the journal") has deleted its own",
        last: highest)
    }
    let isForgetful = Lane.allCases.contains { lane in
      lanes[lane].told.epoch == store.epoch && has[lane] ?? 0 < lanes[lane].told.seq
    }
    guard !isForgetful || starts.returns.take(at: loop.now) else {
      return took(.retry(reason: "the server forgets what it has acknowledged, again and again", after: nil))
    }
    shipment.greeted()
    starts.wasInStep = true
    for lane in Lane.allCases { lanes[lane].serverHas = has[lane] ?? 0 }
    // An answer that was lost, or, where nothing is left to send, the only one. That it can be reached, again and again, is no success.
    let isNews = Lane.allCases.contains { through[$0] > lanes[$0].taken }
    startOver(from: through)
    if isNews || lastSuccess == nil && pendingEvents == 0 { lastSuccess = clock.milliseconds }
    if Lane.allCases.contains(where: { lanes[$0].taken != lanes[$0].cursor }) { keepCursors() }
    recovered()
  }

  private static func positions(_ acknowledged: Acknowledged) -> (ByLane<Int64?>, lanesKnown: Bool) {
    switch acknowledged {
    case .whole(let seq): (ByLane(all: seq), false)
    case .byLane(let seqs): (seqs, true)
    }
  }

  /// Where a lane continues of which the server has nothing in this epoch: where its cursor is, unless the server lacks what the cursor is
  /// behind, because it was emptied, or is an older copy of itself.
  private func floors(_ acknowledged: Acknowledged) async -> Result<ByLane<Int64>, Verdict> {
    let (has, lanesKnown) = Self.positions(acknowledged)
    let lowest = cursor.lowest
    var floors = ByLane<Int64>(all: 0)
    var asked = ByLane<Int64?>(all: nil)
    let told = store.ifReadable { try store.told(name, beforeEpoch: true) }
    for lane in Lane.allCases where has[lane] == nil {
      floors[lane] = min(lanesKnown ? lanes[lane].cursor : lowest, store.epochFirst - 1)
      if lanesKnown, floors[lane] > beginning {
        // The journal may have deleted it since.
        let told = told.flatMap { (beginning + 1...floors[lane]).contains($0[lane]) ? $0[lane] : nil }
        asked[lane] = newestSent(lane, through: floors[lane]) ?? told
      }
    }
    guard asked != ByLane(all: nil), let epoch = store.epochBefore(of: store.epochFirst - 1) else {
      return .success(floors)
    }
    switch await carrier.standing(of: epoch, through: asked) {
    case .failed(let verdict): return .failure(verdict)
    case .ready, .has(.whole, _): return .success(floors)
    case .has(.byLane(let seqs), let digests):
      for lane in Lane.allCases {
        guard let newest = asked[lane] else { continue }
        // A hub that knows nothing of the question names its newest event, which may be beyond.
        if let seq = seqs[lane], seq > newest { continue }
        if let seq = seqs[lane], let digest = digests[lane],
          digest.isEmpty || ownDigest(of: seq).map({ $0 == digest }) ?? true
        {
          if seq < newest { floors[lane] = seq }
        } else {
          // Nothing of it, or something else: it looks itself at what it has of what comes.
          floors[lane] = beginning
        }
      }
      return .success(floors)
    }
  }

  /// The newest event of a lane up to there that is for this server; `nil`: none is here.
  private func newestSent(_ lane: Lane, through end: Int64) -> Int64? {
    var (found, width): (Int64?, Int64) = (nil, 64)
    repeat {
      width *= 8
      // What cannot be read now is found when events are read.
      _ = store.ifReadable {
        try store.readJournal(after: max(0, end - width), lane: lane) {
          [filter = settings.filter, store] event, isSound in
          guard event.seq <= end else { return false }
          // `try?`: as above.
          if isSound, Lane(kind: event.kind) == lane, (try? filter.passes(event, store, nil)) == true {
            found = event.seq
          }
          return true
        }
      }
    } while found == nil && width < end
    return found
  }

  /// Where a lane continues at a server that has it up to there; `nil`: the server has nothing. `leads`: all that it has came from here. Else what
  /// it has may be another upstream's, through another filter: what lies before it and is for this one is sent, and what it has is left out there.
  private func resumption(_ lane: Lane, _ has: Int64?, _ floor: Int64, leads: Bool) -> Int64 {
    let progress = lanes[lane]
    let isBefore = has.map { $0 == progress.serverHas && $0 > 0 } ?? false
    let has = has.map { leads ? $0 : min($0, progress.taken) }
    // Nothing of the lane came after it, or nothing that is for this server.
    if isBefore, let has { return max(has, progress.taken) }
    let whole = ByLane(messages: lanes.messages.cursor, nodes: lanes.nodes.cursor, packets: lanes.packets.cursor)
    let cursor = knowsLanes ? progress.cursor : whole.lowest
    let through = past(buried: max(beginning, has ?? floor), in: lane)
    if through != cursor {
      // A lane in which nothing happens is behind the others at the server; then this is how it always is.
      let words = "\(name): the server has \(lane.rawValue) up to \(through), not \(cursor): continuing from there"
      // Further on than where we were: that is written along with something else, and a power cut may have taken it.
      if through < min(cursor, store.newestSeq[lane]), settings.filter.leavesNothingOut {
        log.notice(words)
      } else {
        log.debug(words)
      }
    }
    return through
  }

  /// What our event of that number says; `nil`: it is not here any more, or damaged.
  private func ownDigest(of seq: Int64) -> String? {
    var digest: String?
    // What cannot be read now is found when events are read.
    _ = store.ifReadable {
      try store.readJournal(after: seq - 1, limit: 1) { event, isSound in
        // `try?`: a damaged body says nothing.
        guard event.seq == seq, isSound, let body = try? JSONValue(parsing: event.body) else { return false }
        digest = EventContent.digest(at: event.at, kind: event.kind, body: body)
        return false
      }
    }
    return digest
  }

  /// The server has other events than we under the same numbers: our database is an older copy of itself, another gateway has our id, or
  /// somebody else has written in our name. What it lacks is sent in a new epoch.
  /// `last`: the last event that it has.
  func diverged(_ reason: String, last: Int64? = nil) {
    guard starts.renewals.take(at: loop.now) else {
      shipment.greetingSent()
      return took(.retry(reason: "the server has other events in each new epoch: \(reason)", after: nil))
    }
    log.error(
      "\(name): \(reason) under this gateway's id and epoch \(store.epoch): this database is an older copy, another gateway has the "
        + "same id, or somebody else writes with its token. What the journal has goes there in a new epoch. See docs/hub.md, \"One identity, two histories\""
    )
    starts.renewalsInARow += 1
    historyFound(.conflict(reason: reason, events: pendingEvents))
    do {
      let loss = try store.renewEpoch(afterConflict: last, wasInStep: starts.wasInStep)
      if let loss { log.warning("\(name): \(loss). Every upstream is told") }
      shipment.greetAgain()
      // Twice without anything taken between: the server must not make us spin.
      if starts.renewalsInARow > 1 {
        shipment.greetingSent()
        took(.retry(reason: "the server has other events under each new epoch: \(reason)", after: nil))
      }
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }
}

/// How often an upstream begins anew for a server: an honest one was put back once, a cloned card has two gateways at odds for a while.
struct FreshStarts {
  /// It had nothing that is not here, in this run of the program.
  var wasInStep = false
  /// New epochs without anything taken between.
  var renewalsInARow = 0
  var renewals = Ration(most: 16, oneIn: .seconds(300))
  /// Greetings of a server that has forgotten what it had acknowledged.
  var returns = Ration(most: 16, oneIn: .seconds(300))
}

/// What an upstream finds out about the journal and its server.
public enum HistoryFinding: Equatable, Sendable {
  /// It has other events than ours under the same numbers: why, and how many go again.
  case conflict(reason: String, events: Int64)
  /// It had events, and has them no more, and the journal has not kept them: at most so many.
  case lost(events: Int64)
  /// It has events that were counted as lost: they were under way when the journal deleted them.
  case arrived(events: Int64)
}
