// SPDX-License-Identifier: MIT

/// Deletes what `[retention]` no longer keeps, while the hub serves: every hour, a step at a time, and not while batches wait.
struct Caretaker: Sendable {
  private static let interval: Duration = .seconds(3600)
  /// A step has a fifth of the time.
  private static let rest = 4
  /// Bytes of batches that wait: beyond it gateways come first, for at most `longestWait`.
  private static let busy = 256 << 10
  private static let longestWait: Duration = .seconds(60)

  let stores: HubStores
  let retention: Retention
  private let rare = RareLine(HubLog.write)
  private let doubts = RareLine(HubLog.write)

  init(stores: HubStores, retention: Retention) { (self.stores, self.retention) = (stores, retention) }

  /// Until it is cancelled. Hubs that start together do not do this together.
  func run() async {
    do {
      try await Task.sleep(for: .seconds(Int.random(in: 60...3600)))
      while true {
        await once(at: HubClock.now)
        try await Task.sleep(for: Self.interval)
      }
    } catch {
      // Cancelled.
    }
  }

  @discardableResult
  func once(at clock: Int64) async -> Purge.Count? {
    let now: Int64
    do {
      now = try await stores.caretaker.surelyPassed(at: clock)
    } catch {
      rare.say("retention: \(error)")
      return nil
    }
    if let words = HubStore.clockTrouble(clock, surely: now) { doubts.say("retention: \(words)") }
    let purge = Purge(stores.caretaker, retention.plan, at: now, deletes: true) { [stores] took in
      try await Task.sleep(for: max(took * Self.rest, .milliseconds(20)))
      let begun = ContinuousClock.now
      while stores.ingest.admission.waiting.bytes > Self.busy, .now - begun < Self.longestWait {
        try await Task.sleep(for: .milliseconds(500))
      }
    }
    do {
      let count = try await purge.run { [stores] table, rows in stores.metrics.purged(rows, of: table) }
      if !count.isEmpty { HubLog.write(.info, "retention: deleted \(count.message)") }
      return count
    } catch is CancellationError {
      return nil
    } catch {
      rare.say("retention: \(error)")
      return nil
    }
  }
}
