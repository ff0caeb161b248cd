// SPDX-License-Identifier: MIT

import Store
import Testing

@testable import Relay

/// Servers that have an event in whose place the journal has none any more.
@Suite(.serialized) struct TrimmedHistoryTests {
  private static let welcome =
    #"{"acknowledged":12,"lanes":{"messages":12},"digests":{"messages":"0123456789abcdef"}}"#

  /// `had`: so many events were delivered here before the server went away, and the journal was trimmed.
  private func bench(had: Int) throws -> (bench: Bench, findings: () -> [HistoryFinding]) {
    let bench = try Bench(journalMaxSize: 2000)
    var findings: [HistoryFinding] = []
    bench.upstream.historyFound = { findings.append($0) }
    bench.append(had)
    bench.run(until: { bench.isDelivered }, "delivered")
    bench.answers = [bench.answer(503)]
    bench.append(60)
    bench.run(until: { bench.upstream.status.state == .waiting }, "it is away")
    var oldest: Int64 = 0
    while bench.store.journalSize.oldest != oldest {
      oldest = bench.store.journalSize.oldest
      bench.store.trimJournal(now: Moment(milliseconds: 1, trusted: true))
      bench.store.commit()
    }
    #expect(oldest > 13, "beyond what the server has")
    bench.greetings = [Self.welcome]
    return (bench, { findings })
  }

  @Test func `of what is no longer here a conflict is taken for granted where nothing shows that there is none`() throws
  {
    let (bench, findings) = try bench(had: 5)
    let (epoch, oldest) = (bench.store.epoch, bench.store.journalSize.oldest)
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(bench.store.epoch != epoch)
    #expect(bench.gaps.map(\.0) == [6] && bench.gaps.map(\.1) == [oldest - 1], "\(bench.gaps)")
    guard case .conflict(_, let events) = findings().first else { return #expect(Bool(false), "\(findings())") }
    #expect(findings().count == 1 && events == 66 - oldest)
  }

  @Test func `a server that was away for long, and has what it acknowledged, is not at odds`() throws {
    let (bench, findings) = try bench(had: 12)
    let (epoch, oldest) = (bench.store.epoch, bench.store.journalSize.oldest)
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(bench.store.epoch == epoch && findings().isEmpty)
    #expect(bench.gaps.map(\.0) == [13] && bench.gaps.map(\.1) == [oldest - 1], "\(bench.gaps)")
  }
}
