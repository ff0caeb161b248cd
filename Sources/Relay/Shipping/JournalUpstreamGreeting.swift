// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// How a connection begins: the server reports what it has, and each lane continues from there.
extension JournalUpstream {
  func greet() async throws(CancellationError) {
    mend()
    release()
    isResting = false
    shipment.greetingSent()
    let greeting = await carrier.greet()
    if Task.isCancelled { throw CancellationError() }
    switch greeting {
    case .has(let acknowledged): known(acknowledged)
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
  private func known(_ acknowledged: Acknowledged) {
    let (has, lanesKnown): (ByLane<Int64?>, Bool) =
      switch acknowledged {
      case .whole(let seq): (ByLane(all: seq), false)
      case .byLane(let seqs): (seqs, true)
      }
    knowsLanes = lanesKnown
    var through = ByLane<Int64>(all: 0)
    for lane in Lane.allCases { through[lane] = resumption(lane, has[lane]) }
    guard through.highest <= store.lastSeq else { return goneBack(acknowledged: through.highest) }
    shipment.greeted()
    for lane in Lane.allCases { lanes[lane].serverHas = has[lane] ?? 0 }
    // It says what it has: as good as an acknowledgement, and the only one where nothing is left to send.
    lastSuccess = clock.milliseconds
    startOver(from: through)
    if Lane.allCases.contains(where: { lanes[$0].taken != lanes[$0].cursor }) { keepCursors() }
    recovered()
  }

  /// Where a lane continues at a server that has it up to there; `nil`: the server has nothing.
  private func resumption(_ lane: Lane, _ has: Int64?) -> Int64 {
    let progress = lanes[lane]
    // Nothing of the lane came after it, or nothing that is for this server.
    if let has, has == progress.serverHas, has > 0 { return max(has, progress.taken) }
    let whole = ByLane(messages: lanes.messages.cursor, nodes: lanes.nodes.cursor, packets: lanes.packets.cursor)
    let cursor = knowsLanes ? progress.cursor : whole.lowest
    let through = past(
      buried: max(beginning, has ?? min(cursor, store.epochFirst - 1)), in: lane)
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

  /// The server knows numbers of this epoch that we never gave out: our database is an older copy of itself.
  private func goneBack(acknowledged: Int64) {
    log.error(
      "\(name): the server has seq \(acknowledged) of this epoch, the journal ends at \(store.lastSeq): "
        + "the database is an older copy. A new epoch begins")
    epochRenewals += 1
    do {
      try store.renewEpoch()
      shipment.greetAgain()
      // Twice in a row is impossible; a server that claims it must not make us spin.
      if epochRenewals > 1 {
        shipment.greetingSent()
        took(.retry(reason: "the server reports sequence numbers of an epoch that it cannot know", after: nil))
      }
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }
}
