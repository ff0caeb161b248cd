// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import SQLite
import TestSupport
import Testing

@testable import Relay
@testable import Store

/// The reported state of a message at each upstream.
@Suite(.serialized) struct StandingTests {
  private static let moment = Moment(milliseconds: 1_795_000_000_000, trusted: true)

  /// Stores received messages, in order.
  private func hear(_ texts: [String], _ store: Store) throws -> [ConversationRow] {
    var ids: [Int64] = []
    store.write { store throws(SQLiteError) in
      for (number, text) in texts.enumerated() {
        let message = ChannelMessage(
          snr: nil, slot: 0, path: ReceivedPath(raw: 0), senderTime: UInt32(number), text: Text(text))
        if case .stored(let id, _) = try store.insert(.channel(message), at: Self.moment) { ids.append(id) }
      }
    }
    try store.commitNow()
    var rows: [ConversationRow] = []
    try store.eachMessage(after: ids[0] - 1, limit: ids.count) { message in
      rows.append(.received(message))
      return true
    }
    return rows
  }

  private func states(_ rows: [ConversationRow], _ upstream: Upstream) throws -> [MessageStanding.State] {
    try rows.map { try upstream.journal.standing(of: $0).state }
  }

  @Test func `a message is waiting, acknowledged, or a dead letter until that is dropped`() throws {
    let bench = try Bench()
    bench.refused = [2]
    let rows = try hear(["one", "two", "three"], bench.store)
    #expect(try states(rows, bench.upstream) == [.waiting, .waiting, .waiting])
    bench.run(until: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(try states(rows, bench.upstream) == [.acknowledged, .deadLetter, .acknowledged])
    #expect(
      try bench.upstream.journal.standing(of: rows[1])
        == MessageStanding(upstream: "hub", state: .deadLetter, isCurrent: nil, deadLetter: 2))
    #expect(try bench.upstream.journal.standing(of: rows[0]).isCurrent == nil)
    _ = try bench.store.dropDeadLetters(of: "hub")
    #expect(try states(rows, bench.upstream) == [.acknowledged, .dropped, .acknowledged])
  }

  @Test func `a sent message shows whether its newest state was acknowledged, too`() throws {
    let bench = try Bench()
    var message = try sent(bench)
    var standing: MessageStanding { get throws { try bench.upstream.journal.standing(of: .sent(message, .last)) } }
    #expect(try standing == MessageStanding(upstream: "hub", state: .waiting))
    bench.run(until: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(try standing == MessageStanding(upstream: "hub", state: .acknowledged, isCurrent: true))
    bench.refused = [2]
    message.state = .failed
    bench.store.write { store throws(SQLiteError) in try store.updateOutgoing(message, at: Self.moment) }
    try bench.store.commitNow()
    #expect(try standing == MessageStanding(upstream: "hub", state: .acknowledged, isCurrent: false))
    bench.run(until: { bench.upstream.status.pending == 0 }, "refused")
    #expect(
      try standing == MessageStanding(upstream: "hub", state: .acknowledged, isCurrent: false, deadLetter: 2))
    bench.refused = []
    #expect(try bench.store.retryDeadLetters(of: "hub", seq: 2) == 1)
    bench.upstream.resume()
    bench.run(until: { bench.upstream.status.deadLetters == 0 }, "sent again")
    #expect(try standing == MessageStanding(upstream: "hub", state: .acknowledged, isCurrent: true))
  }

  /// A message of ours that is stored and not sent yet.
  private func sent(_ bench: Bench) throws -> OutgoingMessage {
    var message = OutgoingMessage(
      key: "k", origin: "control", priority: 0, kind: .direct,
      recipient: PublicKey(bytes: Array(repeating: 5, count: 32)),
      text: "hello", created: Self.moment, lifetime: 1000)
    bench.store.write { store throws(SQLiteError) in message = try store.insertOutgoing(message) ?? message }
    try bench.store.commitNow()
    return message
  }

  private func upstream(_ bench: Bench, _ journal: Upstream.Settings) throws -> Upstream {
    try Upstream(
      UpstreamSettings(
        kind: .hub(isLive: false, keepAlive: 300), journal: journal, url: "http://127.0.0.1:\(bench.server.port)",
        tokenFile: bench.scratch.location("token"), timeout: .seconds(5)),
      store: bench.store, on: bench.loop, log: Log(level: .error, sink: { _, _ in }))
  }

  @Test func `events that the filter excludes, or from before an upstream was added, are not for it`() throws {
    let bench = try Bench()
    let rows = try hear(["one"], bench.store)
    let picky = try upstream(bench, .init(name: "picky", filter: EventFilter(kinds: ["advert"]), fromStart: true))
    let late = try upstream(bench, .init(name: "late"))
    let other = try upstream(bench, .init(name: "other", filter: EventFilter(channels: ["#trees"]), fromStart: true))
    defer { for upstream in [picky, late, other] { upstream.stop() } }
    for upstream in [picky, late, other] { #expect(try states(rows, upstream) == [.filtered], "\(upstream.name)") }
    #expect(try states(rows, bench.upstream) == [.waiting])
  }

  @Test func `for an upstream with an age limit, a passed message does not count as acknowledged`() throws {
    let bench = try Bench()
    bench.upstream.stop()
    var filter = EventFilter()
    filter.age = AgeLimit(oldest: 300)
    bench.upstream = try upstream(bench, .init(name: "aged", filter: filter, fromStart: true))
    let rows = try hear(["one"], bench.store)
    bench.run(until: { bench.upstream.status.pending == 0 }, "its turn has come")
    #expect(try states(rows, bench.upstream) == [.passed])
  }

  @Test func `a message that has not ended waits for its end at an upstream that gets only ends`() throws {
    let bench = try Bench()
    var filter = EventFilter()
    filter.endsOnly = true
    let late = try upstream(bench, .init(name: "late", filter: filter, fromStart: true))
    defer { late.stop() }
    var message = try sent(bench)
    var standing: MessageStanding { get throws { try late.journal.standing(of: .sent(message, .last)) } }
    #expect(try standing == MessageStanding(upstream: "late", state: .waiting, awaitsEnd: true))
    #expect(try bench.upstream.journal.standing(of: .sent(message, .last)).awaitsEnd == false)
    (message.state, message.endedAt) = (.failed, Self.moment.milliseconds)
    bench.store.write { store throws(SQLiteError) in try store.updateOutgoing(message, at: Self.moment) }
    try bench.store.commitNow()
    #expect(try standing == MessageStanding(upstream: "late", state: .waiting))
  }

  @Test func `a message that the quota deleted is lost, and later unknown`() throws {
    let bench = try Bench(journalMaxSize: 1000)
    bench.answers = [bench.answer(503)]
    let rows = try hear((0..<40).map { "number \($0)" }, bench.store)
    bench.run(until: { bench.upstream.status.state == .waiting }, "waits")
    bench.store.trimJournal(now: Self.moment)
    bench.store.commit()
    #expect(try states([rows[0], rows[39]], bench.upstream) == [.lost, .waiting])
    bench.run(until: { bench.upstream.status.pending == 0 }, "delivered")
    #expect(try states([rows[0], rows[39]], bench.upstream) == [.unknown, .acknowledged])
  }
}
