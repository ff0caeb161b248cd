// SPDX-License-Identifier: MIT

import Deflate
import Synchronization
import Timing

/// Counters since the hub's start. Label values are constants: ten thousand gateways make as many series as one. The names in `/metrics` are promised
/// in docs/observability.md.
final class HubMetrics: Sendable {
  /// Why a request or a batch has to be retried later.
  enum Busy: String, CaseIterable {
    /// The gateway exceeds its rate limit.
    case rate
    /// Too many batches of this gateway, or of all gateways, wait for the database; or too many commands wait for the gateway.
    case queue
    /// The database is unavailable, or cannot write.
    case database
    /// Large requests use all of their memory.
    case memory
    /// The token's holder has too many connections.
    case connections
    /// Too many readers follow `/v1/live`.
    case readers
    /// Too many people sign in at the same time.
    case passwords
  }

  enum Login: String, CaseIterable { case unknown, forbidden }

  /// How an attempt to push ended; `gone`: the browser has unsubscribed.
  enum Push: String, CaseIterable { case sent, gone, failed }

  enum Encoding: String, CaseIterable {
    case plain, deflate, dictionary

    init(_ compression: PerMessageDeflate?) {
      self = compression.map { $0.hasDictionary ? .dictionary : .deflate } ?? .plain
    }
  }

  /// The numbers of values between bounds, and their sum.
  struct Histogram: Equatable {
    let bounds: [Double]
    private(set) var counts: [Int]
    private(set) var sum = 0.0

    /// `bounds` increase.
    init(_ bounds: [Double]) {
      self.bounds = bounds
      counts = [Int](repeating: 0, count: bounds.count + 1)
    }

    mutating func add(_ value: Double) {
      counts[bounds.firstIndex { value <= $0 } ?? bounds.count] += 1
      sum += value
    }
  }

  struct Counts {
    var links: [Encoding: Int] = [:]
    var linksOpened = 0
    /// By lane; `nil`: batches in the order of the whole journal, as in version 1.
    var batches: [EventBatch.Lane?: Int] = [:]
    var events: [EventBatch.Lane?: Int] = [:]
    /// Seconds from the newest event of a batch to its commit, by lane.
    var delays: [EventBatch.Lane?: Histogram] = [:]
    var outOfOrder = 0
    var conflicts = 0
    var refusedBatches = 0
    /// Events of stored batches with content that is not served.
    var refusedEvents = 0
    var busy: [Busy: Int] = [:]
    var logins: [Login: Int] = [:]
    var commitSeconds = Histogram([0.005, 0.02, 0.1, 0.5, 2, 10])
    var commitBatches = Histogram([1, 4, 16, 64, 256])
    var failedCommits: [HubDatabaseError.Kind: Int] = [:]
    var slow = 0
    var purged: [PurgedTable: Int] = [:]
    var pushes: [Push: Int] = [:]
    var pushSubscriptions = 0
    /// Of them, those whose last push failed.
    var failingPushes = 0
  }

  private let counts = Mutex(Counts())

  var now: Counts { counts.withLock { $0 } }

  // MARK: Counting

  func linkOpened(_ encoding: Encoding) {
    counts.withLock { counts in
      counts.links[encoding, default: 0] += 1
      counts.linksOpened += 1
    }
  }

  func linkEnded(_ encoding: Encoding) { counts.withLock { $0.links[encoding, default: 0] -= 1 } }
  func wasBusy(_ reason: Busy) { counts.withLock { $0.busy[reason, default: 0] += 1 } }
  func refused(_ login: Login) { counts.withLock { $0.logins[login, default: 0] += 1 } }
  func refusedBatch() { counts.withLock { $0.refusedBatches += 1 } }
  func pushed(_ push: Push) { counts.withLock { $0.pushes[push, default: 0] += 1 } }
  func pushes(subscriptions: Int, failing: Int) {
    counts.withLock { ($0.pushSubscriptions, $0.failingPushes) = (subscriptions, failing) }
  }
  func wasSlow() { counts.withLock { $0.slow += 1 } }
  func purged(_ rows: Int, of table: PurgedTable) { counts.withLock { $0.purged[table, default: 0] += rows } }

  /// Counts a transaction of batches, some of which may have been left out.
  func committed(_ batches: [PreparedBatch], _ answers: [HubStore.IngestAnswer], within time: Duration) {
    counts.withLock { counts in
      counts.commitSeconds.add(time.inSeconds)
      counts.commitBatches.add(Double(batches.count))
      for (batch, answer) in zip(batches, answers) {
        switch answer {
        case .acknowledged: break
        case .outOfOrder:
          counts.outOfOrder += 1
          continue
        case .conflict:
          counts.conflicts += 1
          continue
        }
        counts.batches[batch.lane, default: 0] += 1
        counts.events[batch.lane, default: 0] += batch.events.count
        counts.refusedEvents += batch.events.count(where: \.isRefused)
        // Without a trusted clock the delay is unknown.
        if let last = batch.events.last?.event, last.trusted {
          let delay = Double(max(0, batch.at - last.at)) / 1000 + time.inSeconds
          counts.delays[batch.lane, default: Self.delays].add(delay)
        }
      }
    }
  }

  func failed(_ kind: HubDatabaseError.Kind) { counts.withLock { $0.failedCommits[kind, default: 0] += 1 } }

  /// A second to a day: how far behind gateways are.
  private static let delays = Histogram([1, 10, 60, 600, 3600, 86_400])
}

/// Logs one line a minute: with a line for each link, a fleet that reconnects would fill the journal.
struct LogSummary: Sendable {
  private static let interval: Duration = .seconds(60)

  let stores: HubStores

  func run() async {
    var before = stores.metrics.now
    // Ends when it is cancelled, while it sleeps.
    while (try? await Task.sleep(for: Self.interval)) != nil {
      let now = stores.metrics.now
      if let words = Self.words(now, since: before) { HubLog.write(.info, words) }
      before = now
    }
  }

  /// `nil`: nothing is worth a line.
  static func words(_ now: HubMetrics.Counts, since before: HubMetrics.Counts) -> String? {
    func sum<Key>(_ table: [Key: Int]) -> Int { table.values.reduce(0, +) }
    let (open, opened) = (sum(now.links), now.linksOpened - before.linksOpened)
    let ended = opened - (open - sum(before.links))
    let busy = sum(now.busy) - sum(before.busy)
    let failed = sum(now.failedCommits) - sum(before.failedCommits)
    guard opened > 0 || ended > 0 || busy > 0 || failed > 0 else { return nil }
    let parts = [
      "\(open) links, \(opened) made, \(ended) ended",
      "\(sum(now.batches) - sum(before.batches)) batches, \(sum(now.events) - sum(before.events)) events",
      busy > 0 ? "\(busy) to come again" : nil, failed > 0 ? "\(failed) transactions failed" : nil,
    ]
    return "the last minute: " + parts.compactMap { $0 }.joined(separator: "; ")
  }
}
