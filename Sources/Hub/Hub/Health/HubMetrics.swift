// SPDX-License-Identifier: MIT

import Deflate
import Synchronization

/// What the hub counts of itself since its start. Labels come from lists of ours, never from outside: there are as many series with ten thousand
/// gateways as with one. The names in `/metrics` are promised in docs/observability.md.
final class HubMetrics: Sendable {
  /// Why a request, or a batch, has to come again later.
  enum Busy: String, CaseIterable {
    /// The gateway sends more than its limits allow.
    case rate
    /// Too much waits for the database, of this gateway or of all.
    case queue
    /// The database is not there, or cannot write.
    case database
    /// Large requests use all the memory that they may.
    case memory
    /// The holder of the token has too many connections.
    case connections
  }

  enum Login: String, CaseIterable { case unknown, forbidden }

  /// How a link is compressed.
  enum Encoding: String, CaseIterable {
    case plain, deflate, dictionary

    init(_ compression: PerMessageDeflate?) {
      self = compression.map { $0.hasDictionary ? .dictionary : .deflate } ?? .plain
    }
  }

  /// How many values lie between bounds, and their sum.
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
    var busy: [Busy: Int] = [:]
    var logins: [Login: Int] = [:]
    var commitSeconds = Histogram([0.005, 0.02, 0.1, 0.5, 2, 10])
    var commitBatches = Histogram([1, 4, 16, 64, 256])
    var failedCommits: [HubDatabaseError.Kind: Int] = [:]
    var slow = 0
    var purged: [String: Int] = [:]
  }

  private let counts = Mutex(Counts())

  var now: Counts { counts.withLock { $0 } }

  // MARK: What happens

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
  func wasSlow() { counts.withLock { $0.slow += 1 } }
  func purged(_ rows: Int, of table: PurgedTable) { counts.withLock { $0.purged[table.rawValue, default: 0] += rows } }

  /// A group of batches, of which some may have been left out, is on disk.
  func committed(_ batches: [PreparedBatch], _ answers: [HubStore.IngestAnswer], within time: Duration) {
    counts.withLock { counts in
      counts.commitSeconds.add(time.seconds)
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
        // A clock that is not set says nothing; one that is ahead, less than nothing.
        if let last = batch.events.last?.event, last.trusted {
          let delay = Double(max(0, batch.at - last.at)) / 1000 + time.seconds
          counts.delays[batch.lane, default: Self.delays].add(delay)
        }
      }
    }
  }

  func failed(_ kind: HubDatabaseError.Kind) { counts.withLock { $0.failedCommits[kind, default: 0] += 1 } }

  /// A second, a minute, an hour, a day: how far behind gateways are.
  private static let delays = Histogram([1, 10, 60, 600, 3600, 86_400])
}

extension Duration {
  var seconds: Double { Double(components.seconds) + Double(components.attoseconds) / 1e18 }
}
