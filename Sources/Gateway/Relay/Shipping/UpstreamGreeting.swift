// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// How a connection begins: the server reports what it has, and each lane continues from there.
extension Upstream {
  func greet() async throws(CancellationError) {
    replaceCarrier()
    underWay.release()
    shipment.asks()
    let epoch = store.epoch
    let greeting = await carrier.greet()
    if Task.isCancelled { throw CancellationError() }
    switch greeting {
    case .has(let acknowledged, let digests):
      let floors: ByLane<Int64>
      do throws(Verdict) {
        floors = try await journal.floors(acknowledged, carrier)
      } catch {
        if Task.isCancelled { throw CancellationError() }
        return failed(error)
      }
      if Task.isCancelled { throw CancellationError() }
      // Another upstream has begun a new one: what was said of the old one says nothing of it.
      guard store.epoch == epoch else { return shipment.greetAgain() }
      do throws(Verdict) { try goOn(from: acknowledged, digests, floors) } catch { return failed(error) }
    case .ready:
      journal.knowsLanes = true
      shipment.greeted()
      // What it has acknowledged does not go again, even where the cursors are not on disk yet.
      startOver(from: journal.taken)
      keepCursors()
      // Where nothing is connected, nothing is known yet: the first batch will tell.
      if carrier.keepsConnection { health.recovered(pending: journal.pendingEvents) }
    case .failed(let verdict): return failed(verdict)
    }
    underWay.holder = loop.begin { [weak self, carrier] in
      // Cancelled: another task opens the next connection.
      guard let end = try? await carrier.hold() else { return }
      self?.ended(end)
    }
  }

  /// Talks to the server without the journal: is it there, does it take us? `nil`: yes; else what is wrong.
  public func test() async -> String? {
    let end = loop.now + .seconds(10)
    // `try?`: who was cancelled waits no more.
    while isBusy, loop.now < end, (try? await loop.sleep(for: .milliseconds(50))) != nil {}
    if isBusy { return "busy sending; see its state in `meshpost status`" }
    replaceCarrier()
    underWay.release()
    shipment.asks(isTest: true)
    let verdict = await carrier.test()
    shipment.tested()
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
    underWay.holder = nil
    switch end {
    case .outdated: shipment.hold(.outdated)
    case .lost(nil): break
    case .lost(let verdict?): failed(verdict)
    }
    woken.resume()
  }

  /// Continues from what the server says it has of this epoch.
  private func goOn(
    from acknowledged: Acknowledged, _ digests: ByLane<String?>, _ floors: ByLane<Int64>
  ) throws(Verdict) {
    // What cannot be read now is sent once more.
    let others = (health.observer?.uncountedUpstreams ?? []) + [name]
    let isAlone = store.ifReadable { try !store.hasUpstream(besides: others) } ?? false
    let through: ByLane<Int64>
    switch journal.compare(acknowledged, digests, floors, isAlone: isAlone) {
    case .diverged(let reason, let last): return diverged(reason, last: last)
    case .resumes(let seqs): through = seqs
    }
    guard !journal.isForgetful(acknowledged) || health.starts.returns.take(at: loop.now) else {
      throw .retry(reason: "the server forgets what it has acknowledged, again and again", after: nil)
    }
    shipment.greeted()
    health.starts.wasInStep = true
    let (has, _) = JournalReader.positions(acknowledged)
    for lane in Lane.allCases { journal.lanes[lane].serverHas = has[lane] ?? 0 }
    // An answer that was lost, or, where nothing is left to send, the only one. That it can be reached, again and again, is no success.
    let isNews = Lane.allCases.contains { through[$0] > journal.lanes[$0].taken }
    startOver(from: through)
    let pending = journal.pendingEvents
    if isNews || health.lastSuccess == nil && pending == 0 { health.succeeded() }
    if journal.taken != journal.cursor { keepCursors() }
    health.recovered(pending: pending)
  }

  /// The server has other events than we under the same numbers: our database is an older copy of itself, another gateway has our id, or
  /// somebody else has written in our name. What it lacks is sent in a new epoch.
  /// `last`: the last event that it has.
  func diverged(_ reason: String, last: Int64? = nil) {
    guard health.starts.renewals.take(at: loop.now) else {
      return failed(.retry(reason: "the server has other events in each new epoch: \(reason)", after: nil))
    }
    log.error(
      "\(name): \(reason) under this gateway's id and epoch \(store.epoch): this database is an older copy, another gateway has the "
        + "same id, or somebody else writes with its token. What the journal has goes there in a new epoch. See docs/hub.md, \"One identity, two histories\""
    )
    health.observer?.upstream(name, found: .conflict(reason: reason, events: journal.pendingEvents))
    do {
      let loss = try store.renewEpoch(afterConflict: last, wasInStep: health.starts.wasInStep)
      if let loss { log.warning("\(name): \(loss). Every upstream is told") }
      health.starts.renewalsInARow += 1
      if health.starts.renewalsInARow > 1 {
        // Twice without anything taken between: the server must not make us spin.
        failed(.retry(reason: "the server has other events under each new epoch: \(reason)", after: nil))
      } else {
        shipment.greetAgain()
      }
    } catch {
      failed(.retry(reason: "\(error)", after: nil))
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

  mutating func tookSome() { (renewalsInARow, wasInStep) = (0, true) }
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
