// SPDX-License-Identifier: MIT

import Alerts
import EventLoop
import Synchronization

/// Deletes rows beyond `[retention]`, and lists of removed gateways, while the hub serves: every hour, a step at a time, and not while batches wait.
struct RetentionService: Sendable {
  private static let interval: Duration = .seconds(3600)
  /// The first run, in seconds after the start. A random one separates hubs that start together.
  private static let firstPause = 60...600
  /// The pause after a step, as a multiple of the step's duration: it deletes for a fifth of the time.
  private static let rest = 4
  /// The shortest pause between two steps.
  private let leastRest: Duration
  /// Bytes of waiting batches above which gateways come first, for at most `longestWait`.
  private static let busy = 256 << 10
  private static let longestWait: Duration = .seconds(60)
  /// Parts with a progress. Gateways name kinds: the events of further unknown ones are kept.
  private static let mostParts = 1000
  /// A gateway with a contact within this time exists, with any token: milliseconds.
  private static let lately: Int64 = 86_400_000

  let stores: HubStores
  let retention: Retention
  /// `nil`: the service does not know which gateways have tokens.
  private let access: HubAccess?
  private let log: HubLog.Write
  private let rare: ThrottledLog
  private let doubts: ThrottledLog

  init(
    stores: HubStores, retention: Retention, access: HubAccess? = nil, leastRest: Duration = .milliseconds(20),
    log: @escaping HubLog.Write = HubLog.write
  ) {
    (self.stores, self.retention, self.access) = (stores, retention, access)
    (self.leastRest, self.log) = (leastRest, log)
    (rare, doubts) = (ThrottledLog(log), ThrottledLog(log))
  }

  /// Runs until it is cancelled.
  func run() async {
    // Time counts from the start.
    await logging { try await stores.maintenance.surelyPassed(at: HubClock.now) }
    await logging { try await stores.maintenance.keepMark() }
    let pause = Int.random(in: Self.firstPause)
    if !retention.isEmpty {
      log(.notice, "retention: the first run begins in \(AlertRule.words(.seconds(pause))), the next ones every hour")
    }
    do {
      try await Task.sleep(for: .seconds(pause))
      await forgetLonelyReports()
      while true {
        await logging { try await stores.maintenance.keepMark() }
        await hourly(at: HubClock.now)
        try await Task.sleep(for: Self.interval)
      }
    } catch {
      // Cancelled.
    }
  }

  /// `nil`: it was cancelled, or failed, and the log has the reason.
  @discardableResult
  private func logging<Value>(_ work: () async throws -> Value) async -> Value? {
    do {
      return try await work()
    } catch is CancellationError {
      return nil
    } catch {
      rare.say("retention: \(error)")
      return nil
    }
  }

  /// The work of each hour. `clock` and `uptime`: as of `once`.
  func hourly(at clock: Int64, uptime: Int64 = LinuxClocks().sinceBoot) async {
    await once(at: clock, uptime: uptime)
    // A clock that is ahead makes no gateway look gone.
    let passed = await logging {
      try await stores.maintenance.surelyPassed(at: clock, uptime: uptime, keeps: false)
    }
    if let passed, passed > 0 { await forgetHearers(at: passed) }
  }

  func forgetHearers(at now: Int64) async {
    guard let access else { return }
    let gone = await logging {
      try await stores.maintenance.forgetHearers(of: access.tokenHolders, unseenSince: now - Self.lately)
    }
    for gateway in gone ?? [] { log(.info, "\(gateway) has no token any more: what others heard is not kept for it") }
  }

  /// Once after each start: purges of earlier versions left some.
  func forgetLonelyReports() async {
    let count = await logging {
      try await purge(PurgePlan(age: { _ in nil }), at: 0, clock: 0, deletes: true)
        .reports { [stores] table, rows in stores.metrics.purged(rows, of: table) }
    }
    if let count, !count.isEmpty { log(.info, "retention: deleted \(count.message) of messages that are gone") }
  }

  /// Deletes old rows once. `clock`: the machine's clock; `uptime`: milliseconds since its boot.
  @discardableResult
  func once(at clock: Int64, uptime: Int64 = LinuxClocks().sinceBoot) async -> Purge.Count? {
    let passed = await logging { try await stores.maintenance.surelyPassed(at: clock, uptime: uptime) }
    guard let now = passed, now > 0 else { return nil }
    if !retention.isEmpty, let words = HubStore.clockTrouble(clock, surely: now) { doubts.say("retention: \(words)") }
    let count = await logging { try await run(at: now, clock: clock) }
    if let count, !count.isEmpty { log(.info, "retention: deleted \(count.message)") }
    return count
  }

  /// `isAgain`: parts that came up meanwhile wait for the next run. Gateways name kinds, and could make each run the first of another one.
  private func run(at now: Int64, clock: Int64, isAgain: Bool = false) async throws -> Purge.Count {
    let (store, retention) = (stores.maintenance, retention)
    var progress = try await store.retentionProgress()
    if retention.isEmpty, progress.isEmpty { return Purge.Count() }
    // A part without known progress begins at its oldest row.
    let unknown = Mutex(Set<Purge.Part>())
    var plan = retention.plan
    plan.bound = { [progress] part in
      guard let own = progress[part], let age = retention.age(of: part) else {
        unknown.withLock { parts in
          guard part.isKnown || progress.count + parts.count < Self.mostParts else { return }
          parts.insert(part)
        }
        return .min
      }
      return own.bound(now - age, at: now)
    }
    let count = try await purge(plan, at: now, clock: clock, deletes: true)
      .run { [stores] table, rows in stores.metrics.purged(rows, of: table) }
    try await advance(&progress, at: now, clock: clock)
    let new = unknown.withLock { $0 }
    for part in new {
      guard let age = retention.age(of: part) else { continue }
      let first = try await oldest(part, latest: max(now, clock))
      progress[part] = RetentionProgress(through: first ?? now - age, at: now)
    }
    try await store.keep(progress)
    guard !new.isEmpty, !isAgain else { return count }
    return count.adding(try await run(at: now, clock: clock, isAgain: true))
  }

  /// The oldest date of a part's rows at any gateway; `nil`: there is none. One gateway at a time: batches wait for the same connection.
  private func oldest(_ part: Purge.Part, latest: Int64) async throws -> Int64? {
    let store = stores.maintenance
    guard case .events(let kind) = part else {
      return try await store.oldMessages(after: 0, before: .max, latest: latest, limit: 100).dates?.lowerBound
    }
    var oldest: Int64?
    var gateway = try await store.gateway(after: "", only: nil)
    while let id = gateway {
      if let at = try await store.oldestEvent(of: id, kind, after: 0, latest: latest) { oldest = min(oldest ?? at, at) }
      gateway = try await store.gateway(after: id, only: nil)
    }
    return oldest
  }

  /// Notes the progress of a run, and counts and reports the rows beyond its limit.
  private func advance(_ progress: inout [Purge.Part: RetentionProgress], at now: Int64, clock: Int64) async throws {
    let overdue = progress.filter { part, own in retention.age(of: part).map { own.isOverdue(from: now - $0) } ?? false
    }
    var waiting = Purge.Count()
    if !overdue.isEmpty {
      var plan = retention.plan
      plan.bound = { [overdue] part in overdue[part] == nil ? .min : .max }
      waiting = try await purge(plan, at: now, clock: clock, deletes: false, most: HeldRetention.mostCounted).run()
    }
    for (part, before) in progress {
      guard let age = retention.age(of: part) else {
        progress[part]?.heldSince = 0
        continue
      }
      let cutoff = now - age
      var own = RetentionProgress(through: max(before.through, before.bound(cutoff, at: now)), at: now)
      if overdue[part] != nil {
        let rows = waiting.rows(of: part)
        if rows > 0 || waiting.rows >= HeldRetention.mostCounted {
          (own.held, own.heldThrough) = (Int64(rows), cutoff)
          own.heldSince = before.heldSince > 0 ? before.heldSince : clock
        } else {
          own.through = cutoff
        }
      }
      progress[part] = own
      guard (own.heldSince > 0) != (before.heldSince > 0) else { continue }
      // The count may have reached its limit with other parts.
      let rows = own.held > 0 ? "\(own.held) rows" : "rows"
      log(
        .warning,
        own.heldSince > 0
          ? "retention: \(rows) of \(part.name) are to go at once, far more than its last runs deleted: they wait. "
            + HeldRetention.remedy
          : "retention: \(part.name): nothing waits any more")
    }
  }

  private func purge(
    _ plan: PurgePlan, at now: Int64, clock: Int64, deletes: Bool, most: Int = .max
  ) -> Purge {
    Purge(
      stores.maintenance, plan, at: now, clock: clock, deletes: deletes, most: most, looksForReports: false
    ) { [stores, leastRest] took in
      try await Task.sleep(for: max(took * Self.rest, leastRest))
      let begun = ContinuousClock.now
      while stores.ingest.admission.waiting.bytes > Self.busy, .now - begun < Self.longestWait {
        try await Task.sleep(for: .milliseconds(500))
      }
    }
  }
}

extension Purge.Count {
  func rows(of part: Purge.Part) -> Int {
    switch part {
    case .messages: tables[.messages] ?? 0
    case .events(let kind): kinds[kind] ?? 0
    }
  }

  fileprivate func adding(_ later: Self) -> Self {
    var sum = self
    sum.tables.merge(later.tables, uniquingKeysWith: +)
    sum.kinds.merge(later.kinds, uniquingKeysWith: +)
    if let dates = later.dates { sum.dates = dates.upperBound.within(dates.lowerBound.within(sum.dates)) }
    return sum
  }
}
