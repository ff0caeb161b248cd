// SPDX-License-Identifier: MIT

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
