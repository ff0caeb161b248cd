// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// The beginning of a connection: the server reports its position, and each lane continues from there.
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
      // Another upstream has begun a new epoch: the answer is about the old one.
      guard store.epoch == epoch else { return shipment.greetAgain() }
      do throws(Verdict) { try goOn(from: acknowledged, digests, floors) } catch { return failed(error) }
    case .ready:
      journal.knowsLanes = true
      shipment.greeted()
      // Acknowledged events are not sent again, even if the cursors are not on disk yet.
      startOver(from: journal.taken)
      keepCursors()
      // Without a connection, only the first batch shows whether the server works.
      if carrier.keepsConnection { health.recovered(pending: journal.pendingEvents) }
    case .failed(let verdict): return failed(verdict)
    }
    underWay.holder = loop.begin { [weak self, carrier] in
      // Cancelled: another task opens the next connection.
      guard let end = try? await carrier.hold(), !Task.isCancelled else { return }
      self?.ended(end)
    }
    // The server may have the event in question already.
    answerSkipping(nil)
  }

  /// Tests the server without the journal. `nil`: it answers, and accepts the gateway; otherwise the problem.
  public func test() async -> String? {
    let end = loop.now + .seconds(10)
    // `try?`: a cancelled caller stops waiting.
    var isTested: Bool { shipment.state == .testing }
    while isBusy || isTested, loop.now < end, (try? await loop.sleep(for: .milliseconds(50))) != nil {}
    if isTested { return "another test of it is under way" }
    if isBusy { return "busy sending; see its state in `meshpost status`" }
    replaceCarrier()
    underWay.release()
    shipment.asks(isTest: true)
    let verdict = await carrier.test()
    shipment.tested()
    // Nobody would receive on the connection that the test has opened, until the upstream goes on.
    if isPaused { carrier.close() }
    wake()
    return verdict.trouble
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

  /// Continues from the server's report on this epoch.
  private func goOn(
    from acknowledged: Acknowledged, _ digests: ByLane<String?>, _ floors: ByLane<Int64>
  ) throws(Verdict) {
    // If the store cannot be read, events are sent once more.
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
    tellOtherEpochs(acknowledged)
    let (has, _) = JournalReader.positions(acknowledged)
    for lane in Lane.allCases { journal.lanes[lane].serverHas = has[lane] ?? 0 }
    // It is a success if the server has more than we knew, because an answer was lost, or if it reports for the first time that it has everything. A
    // connection alone is no success.
    let isNews = Lane.allCases.contains { through[$0] > journal.lanes[$0].taken }
    startOver(from: through)
    let pending = journal.pendingEvents
    if isNews || health.lastSuccess == nil && pending == 0 { health.succeeded() }
    if journal.taken != journal.cursor { keepCursors() }
    health.recovered(pending: pending)
  }

  /// The server has events of this gateway of epochs that this database has never had: other cards were in use, or somebody else writes under its id.
  /// What they had not sent to the other upstreams is lost: those are told.
  private func tellOtherEpochs(_ acknowledged: Acknowledged) {
    let (others, has) = (carrier.otherEpochs, JournalReader.positions(acknowledged).0)
    guard !others.isEmpty else { return }
    do {
      // A server that knows neither this epoch nor this database's earlier ones may know one from before: that is no news.
      let isNews =
        try store.identity.isFirstEpoch || Lane.allCases.contains { has[$0] != nil }
        || others.contains { (other) throws(StoreError) in try store.knows(other.epoch, through: 0) }
      guard isNews else { return }
      for other in others {
        if let words = store.reaches(other.epoch, other.last, at: name) { log.notice("\(name): \(words)") }
        guard try !store.knows(other.epoch, through: other.last) else {
          try store.note(other.epoch, through: other.last)
          continue
        }
        // A report is an event, too: the epochs of two clones that report each other would go on without end.
        if let told = health.starts.told[other.epoch] {
          let then = told.then ?? other.last
          health.starts.told[other.epoch] = ToldEpochs.Told(then: then, now: max(told.now, other.last))
          if other.last > told.now { health.observer?.upstream(name, found: .otherEpoch(other.epoch, last: then)) }
          continue
        }
        guard health.starts.foreign.take(at: loop.now) else { continue }
        guard try !journal.isKnownHistory(other.epoch) else {
          // From now on it is known: the journal does not have its first event for ever.
          try store.note(other.epoch, through: other.last)
          continue
        }
        let loss = try store.tellForeign(other.epoch, last: other.last)
        health.starts.told[other.epoch] = ToldEpochs.Told(then: other.last, now: other.last)
        log.error("\(name): \(loss). Every upstream is told. See docs/hub.md, \"One identity, two histories\"")
        health.observer?.upstream(name, found: .otherEpoch(other.epoch, last: other.last))
      }
    } catch {
      log.debug("\(name): the next greeting tells of other epochs: \(error)")
    }
  }

  /// The server has other events under our numbers: our database is an older copy of itself, another gateway has our id, or another client has
  /// written in our name. The server gets the events that it lacks in a new epoch. `last`: the last event that it has.
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
      if let loss {
        log.warning("\(name): \(loss). Every upstream is told")
        if let epoch = loss.epoch {
          health.starts.told[epoch] = ToldEpochs.Told(then: loss.last, now: loss.last ?? 0)
        }
      }
      health.starts.renewalsInARow += 1
      if health.starts.renewalsInARow > 1 {
        // A second new epoch before the server has taken anything: a pause keeps the server from making us spin.
        failed(.retry(reason: "the server has other events under each new epoch: \(reason)", after: nil))
      } else {
        shipment.greetAgain()
      }
    } catch {
      failed(.retry(reason: "\(error)", after: nil))
    }
  }
}

/// Limits how often an upstream starts over for a server: a restored server needs it once, two gateways with copies of one card need it for a while.
struct FreshStarts {
  /// In this run of the program, the journal had all events of the server at some time.
  var wasInStep = false
  /// New epochs in a row before the server took anything.
  var renewalsInARow = 0
  var renewals = Ration(most: 16, oneIn: .seconds(300))
  /// Greetings of a server that has forgotten acknowledged events.
  var returns = Ration(most: 16, oneIn: .seconds(300))
  /// Epochs that this database has never had.
  var foreign = Ration(most: 16, oneIn: .seconds(3600))
  var told = ToldEpochs()

  mutating func tookSome() { (renewalsInARow, wasInStep) = (0, true) }
}

/// Epochs of which upstreams were told in this run of the program, because this server has more of them than the database. One that goes on is of
/// another gateway with this id, which runs at the same time. A server that invents epochs can add one an hour: of those that it named last, `most`
/// are kept, and another one would be told again.
struct ToldEpochs {
  /// The server's last event of an epoch: when upstreams were told, if it was known, and since.
  struct Told {
    var then: Int64?
    var now: Int64
  }

  /// Four times what a greeting names.
  static let most = 64

  private var all: [(epoch: String, told: Told)] = []

  var count: Int { all.count }

  subscript(epoch: String) -> Told? {
    get { all.first { $0.epoch == epoch }?.told }
    set {
      all.removeAll { $0.epoch == epoch }
      if let newValue { all.append((epoch, newValue)) }
      all.removeFirst(max(0, all.count - Self.most))
    }
  }
}

/// A difference between the journal and the server.
public enum HistoryFinding: Equatable, Sendable {
  /// The server has other events under our numbers: the reason, and the number of events that are sent again.
  case conflict(reason: String, events: Int64)
  /// The server's newest events are of an epoch that the database has never had; and the last of them.
  case otherEpoch(String, last: Int64)
  /// The server has lost events that the journal has deleted: at most this many.
  case lost(events: Int64)
  /// The server has events that were counted as lost: they were under way when the journal deleted them.
  case arrived(events: Int64)
}
