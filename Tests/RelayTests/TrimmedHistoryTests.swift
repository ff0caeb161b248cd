// SPDX-License-Identifier: MIT

import SQLite
import Store
import Testing

@testable import Relay

/// Servers with an event that the journal has deleted.
@Suite(.serialized) struct TrimmedHistoryTests {
  private static let welcome =
    #"{"acknowledged":12,"lanes":{"messages":12},"digests":{"messages":"0123456789abcdef"}}"#

  /// `had`: the number of events that were delivered before the server became unreachable, and the journal was trimmed.
  private func bench(had: Int) throws -> Bench {
    let bench = try Bench(journalMaxSize: 2000)
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
    #expect(oldest > (had > 0 ? 13 : 1), "beyond the server's position")
    bench.greetings = [Self.welcome]
    return bench
  }

  @Test func `for deleted events a conflict is assumed unless something shows that there is none`() throws {
    let bench = try bench(had: 5)
    let (epoch, oldest) = (bench.store.epoch, bench.store.journalSize.oldest)
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(bench.store.epoch != epoch)
    #expect(bench.gaps.map(\.0) == [6] && bench.gaps.map(\.1) == [oldest - 1], "\(bench.gaps)")
    guard case .conflict(_, let events) = bench.observer.findings.first else {
      return #expect(Bool(false), "\(bench.observer.findings)")
    }
    #expect(bench.observer.findings.count == 1 && events == 66 - oldest)
  }

  @Test func `a server that was away for long, and has its acknowledged events, has no conflict`() throws {
    let bench = try bench(had: 12)
    let (epoch, oldest) = (bench.store.epoch, bench.store.journalSize.oldest)
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(bench.store.epoch == epoch && bench.observer.findings.isEmpty)
    #expect(bench.gaps.map(\.0) == [13] && bench.gaps.map(\.1) == [oldest - 1], "\(bench.gaps)")
  }

  @Test(arguments: [0, 5] as [Int64])
  func `a restored server gets a gap for all deleted events, also those that it had acknowledged`(
    _ has: Int64
  ) throws {
    let bench = try bench(had: 12)
    let (epoch, oldest) = (bench.store.epoch, bench.store.journalSize.oldest)
    bench.greetings = [
      has == 0
        ? #"{"acknowledged":0,"lanes":{}}"#
        : #"{"acknowledged":5,"lanes":{"messages":5},"digests":{"messages":"0123456789abcdef"}}"#
    ]
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    // Events that the server never had were counted when they were deleted.
    #expect(
      bench.store.epoch == epoch && bench.observer.findings == [.lost(events: 12 - has)], "\(bench.observer.findings)")
    #expect(bench.gaps.map(\.0) == [has + 1] && bench.gaps.map(\.1) == [oldest - 1], "\(bench.gaps)")
  }

  @Test func `a restored server gets the gap for deleted events also if the last of them is a dead letter`() throws {
    let bench = try Bench(journalMaxSize: 2000)
    bench.append(60)
    bench.run(until: { bench.isDelivered }, "delivered")
    var oldest: Int64 = 0
    while bench.store.journalSize.oldest != oldest {
      oldest = bench.store.journalSize.oldest
      bench.store.trimJournal(now: Moment(milliseconds: 1, trusted: true))
      bench.store.commit()
    }
    #expect(oldest > 7)
    let last = JournalEvent(seq: oldest - 1, at: 1, trusted: true, kind: "message", body: Array("{}".utf8))
    bench.store.write { [name = bench.upstream.name] store throws(SQLiteError) in
      _ = try store.bury(last, upstream: name, status: 422, reason: "no", at: 1)
    }
    try bench.store.commitNow()
    bench.answers = [bench.answer(503)]
    bench.append(1)
    bench.run(until: { bench.upstream.status.state == .waiting }, "it is away")
    bench.greetings = [
      #"{"acknowledged":5,"lanes":{"messages":5},"digests":{"messages":"0123456789abcdef"}}"#
    ]
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(bench.gaps.first?.0 == 6 && bench.gaps.last?.1 == oldest - 1, "\(bench.gaps)")
  }

  @Test(arguments: [12, 0])
  func `a new upstream that asks for the whole journal gets gaps for all deleted events`(_ had: Int) throws {
    let bench = try bench(had: had)
    let oldest = bench.store.journalSize.oldest
    let (cursor, _) = try bench.store.openCursor(of: "late", fromStart: true)
    let batch = try Batch(
      after: cursor.messages, of: bench.store, lane: .messages, limits: Batch.Limits(events: 200, bytes: 1 << 20))
    let gaps = batch.events.filter { $0.kind == "gap" }.map { String(decoding: $0.body, as: UTF8.self) }
    let count = Int(oldest) - 1 - had
    let trimmed = #"{"lane":"messages","first":\#(had + 1),"last":\#(oldest - 1),"count":\#(count),"reason":"quota"}"#
    let missing = #"{"lane":"messages","first":1,"last":12,"count":12,"reason":"missing"}"#
    #expect(gaps == (had > 0 ? [missing, trimmed] : [trimmed]))
    #expect(batch.events.count { $0.kind == "message" } == had + 60 - Int(oldest) + 1)
  }

  /// The answer may be lost: then the greeting shows the arrived events.
  @Test(arguments: [true, false])
  func `deleted events that were in flight do not count as lost if they arrived`(_ isAnswered: Bool) throws {
    let bench = try Bench(journalMaxSize: 2000)
    var (deleted, doubtful): (Int64, Int64) = (0, 0)
    bench.answers = [
      { bench.take($0, $1) },
      { request, responder in
        var oldest: Int64 = 0
        while bench.store.journalSize.oldest != oldest {
          oldest = bench.store.journalSize.oldest
          bench.store.trimJournal(now: Moment(milliseconds: 1, trusted: true))
          bench.store.commit()
        }
        deleted = oldest - 2
        doubtful = deleted - bench.upstream.status.losses.givenUp
        if isAnswered { return bench.take(request, responder) }
        bench.acknowledged[bench.store.epoch] = 5
        bench.received[bench.store.epoch, default: []] += 2...5
        bench.answer(503)(request, responder)
      },
    ]
    bench.append(60)
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    let told = bench.gaps.reduce(0) { $0 + $1.1 - $1.0 + 1 }
    let messages = Set(bench.received.values.joined()).subtracting(bench.gaps.map(\.1))
    #expect(told == 60 - messages.count && told == deleted - 4, "\(bench.gaps) \(bench.received)")
    #expect(doubtful == 4 && bench.observer.findings == [.arrived(events: 4)])
    #expect(bench.upstream.status.losses.givenUp == told)
    #expect(try bench.store.givenUp()?.events == told)
  }

  /// A restored card conflicts with two hubs: the second answers after the first has caused a new epoch.
  @Test func `a server's greeting for an ended epoch is ignored, and the server is asked again`() throws {
    let bench = try Bench()
    bench.append(12)
    bench.run(until: { bench.isDelivered }, "delivered")
    bench.answers = [bench.answer(503)]
    bench.append(60)
    bench.run(until: { bench.upstream.status.state == .waiting }, "it is away")
    bench.greetings = [Self.welcome]
    var epoch = ""
    bench.onGreeting = {
      do { try bench.store.renewEpoch() } catch { Issue.record("\(error)") }
      epoch = bench.store.epoch
    }
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(bench.store.epoch == epoch && bench.observer.findings.isEmpty, "\(bench.observer.findings)")
    #expect(Set(bench.received.values.joined()).isSuperset(of: 1...72), "\(bench.received)")
  }

  /// The same with a batch.
  @Test func `a conflict about an ended epoch begins no further epoch`() throws {
    let bench = try Bench()
    bench.append(12)
    bench.run(until: { bench.isDelivered }, "delivered")
    var epoch = ""
    bench.answers = [
      { request, responder in
        do { try bench.store.renewEpoch() } catch { Issue.record("\(error)") }
        epoch = bench.store.epoch
        bench.answer(409, body: #"{"code":"conflict","seq":13}"#)(request, responder)
      }
    ]
    bench.append(60)
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(bench.store.epoch == epoch && bench.observer.findings.isEmpty, "\(bench.observer.findings)")
    #expect(Set(bench.received.values.joined()).isSuperset(of: 1...72), "\(bench.received)")
  }

  @Test(arguments: [5, 12])
  func `a server that deleted the event at its position has no conflict if it acknowledged that event`(_ had: Int)
    throws
  {
    let bench = try Bench()
    bench.append(had)
    bench.run(until: { bench.isDelivered }, "delivered")
    let epoch = bench.store.epoch
    bench.answers = [bench.answer(503)]
    bench.append(60)
    bench.run(until: { bench.upstream.status.state == .waiting }, "it is away")
    bench.greetings = [#"{"acknowledged":12,"lanes":{"messages":12},"digests":{"messages":""}}"#]
    bench.run(impatiently: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(
      (bench.store.epoch == epoch) == (had == 12) && bench.observer.findings.isEmpty == (had == 12),
      "\(bench.observer.findings)")
    #expect(bench.gaps.isEmpty)
  }
}
