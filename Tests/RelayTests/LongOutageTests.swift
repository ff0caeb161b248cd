// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import JSON
import SQLite
import Store
import TestSupport
import Testing

@testable import HTTP
@testable import Relay

/// Two servers, one of them unreachable for 30 days of invented time, with a journal that is too small for these events.
private final class LongOutage {
  static let quota: Int64 = 1 << 20
  static let day: Int64 = 86_400_000
  let scratch = Scratch(inMemory: true)
  let loop = EventLoop()
  let store: Store
  private var servers: [HTTPServer] = []
  private(set) var upstreams: [Upstream] = []
  var isAway = true
  /// The sent seqs of each upstream, in order.
  var seqs: [[Int64]] = [[], []]
  var gaps: [(first: Int64, last: Int64, count: Int64, reason: String)] = []

  init() throws {
    store = try Store(Store.Settings(location: scratch.location("gw.db"), journalMaxSize: Self.quota))
    for index in 0..<2 {
      let server = try HTTPServer(loopbackPort: 0, on: loop) { [unowned self] in self.answer(index, $0, $1) }
      servers.append(server)
      upstreams.append(
        try Upstream(
          UpstreamSettings(
            kind: .hub(isLive: false, keepAlive: 300),
            journal: Upstream.Settings(name: "hub\(index)", fromStart: true),
            url: "http://127.0.0.1:\(server.port)", timeout: .seconds(5)),
          store: store, on: loop, log: Log(level: .error, sink: { _, _ in })))
    }
    try store.keepOnlyCursors(of: ["hub0", "hub1"])
    loop.afterTurn { [unowned self] in
      store.commit()
      if store.transactions.takeNews().hasGrown { for upstream in upstreams { upstream.wake() } }
    }
  }

  deinit {
    for upstream in upstreams { upstream.stop() }
    for server in servers { server.stop() }
  }

  private func answer(_ index: Int, _ request: HTTPRequest, _ responder: HTTPResponder) {
    if index == 0, isAway { return responder.respond(HTTPResponse(status: 503)) }
    // `try?`: a greeting has no body.
    let events = (try? JSONValue(parsing: request.body))?["events"]?.array ?? []
    for event in events {
      let seq = event["seq"]?.integer ?? 0
      if event["kind"]?.string == "gap", let body = event["body"] {
        if index == 1 { Issue.record("a gap for the server that was never away") }
        gaps.append(
          (
            body["first"]?.integer ?? 0, body["last"]?.integer ?? 0, body["count"]?.integer ?? 0,
            body["reason"]?.string ?? ""
          ))
      }
      seqs[index].append(seq)
    }
    let acknowledged = seqs[index].last
    responder.respond(HTTPResponse(status: 200, body: JSONWriter.object { $0.field("acknowledged", acknowledged) }))
  }

  /// A day's events; the reachable server gets them at once.
  func live(day: Int64, events: Int) {
    for index in 0..<events {
      let moment = Moment(milliseconds: day * Self.day + Int64(index) * Self.day / Int64(events), trusted: true)
      store.write { store throws(SQLiteError) in
        try store.append(.message, at: moment, body: Array("{\"text\":\"\(String(repeating: "x", count: 100))\"}".utf8))
      }
    }
    until { self.upstreams[1].status.pending == 0 }
    trim(day: day + 1)
  }

  private func trim(day: Int64) {
    while true {
      let before = store.journalSize.oldest
      store.trimJournal(now: Moment(milliseconds: day * Self.day, trusted: true))
      store.commit()
      if store.journalSize.oldest == before { return }
    }
  }

  func until(_ condition: () -> Bool) {
    let isSo = turn(loop, until: condition)
    #expect(isSo)
  }
}

@Suite struct LongOutageTests {
  @Test func `after 30 days beyond the quota the gap is exact, and another upstream is undisturbed`() throws {
    let outage = try LongOutage()
    var largest: Int64 = 0
    for day in 0..<30 as Range<Int64> {
      outage.live(day: day, events: 500)
      // The same with constant queries.
      let journal = (outage.store.lastSeq, outage.store.journalSize.oldest)
      #expect(outage.upstreams[0].status.pending == journal.0 - journal.1 + 1, "\(journal)")
      largest = max(largest, try outage.store.size())
    }
    let last = outage.store.lastSeq
    #expect(last == 15_000)
    #expect(outage.seqs[1] == Array(1...last), "the other got each, once, in order")
    #expect(outage.store.journalSize.bytes <= LongOutage.quota)
    #expect(largest < 2 * LongOutage.quota, "\(largest) bytes of database for a quota of \(LongOutage.quota)")
    let oldest = outage.store.journalSize.oldest
    #expect(oldest > 5000, "the quota has forced some out")
    let status = outage.upstreams[0].status
    #expect(
      status.losses.ahead == oldest - 1 && status.pending == last - oldest + 1 && status.age ?? 0 > 0, "\(status)")
    #expect(outage.upstreams[1].status.losses.ahead == 0)
    outage.isAway = false
    outage.upstreams[0].resume()
    outage.until { outage.upstreams[0].status.pending == 0 }
    let gap = try #require(outage.gaps.first)
    #expect(outage.gaps.count == 1)
    #expect(gap.first == 1 && gap.last == oldest - 1 && gap.count == oldest - 1 && gap.reason == "quota", "\(gap)")
    #expect(
      outage.seqs[0] == [oldest - 1] + Array(oldest...last), "the gap in its place, then all that is left, in order")
  }
}
