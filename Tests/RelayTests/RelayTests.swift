// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import JSON
import Sockets
import Store
import TestSupport
import Testing
import Timing

@testable import HTTP
@testable import Relay

/// Records the findings of an upstream.
final class RecordingObserver: UpstreamObserver {
  var findings: [HistoryFinding] = []
  var uncountedUpstreams: [String] = []
  func upstreamTroubleChanged() {}
  func upstream(_ name: String, found finding: HistoryFinding) { findings.append(finding) }
}

/// A store, an upstream and a scripted hub, on one loop.
final class Bench {
  let scratch = Scratch(inMemory: true)
  let loop = EventLoop()
  let store: Store
  var upstream: Upstream!
  let observer = RecordingObserver()
  var server: HTTPServer!
  /// The hub's events: by epoch, the seqs in order of arrival, with all repetitions.
  var received: [String: [Int64]] = [:]
  var gaps: [(Int64, Int64, String)] = []
  var acknowledged: [String: Int64] = [:]
  /// The next answers to batches; when empty, the hub accepts them.
  var answers: [(HTTPRequest, HTTPResponder) -> Void] = []
  /// Handles a batch with these seqs in place of storing it.
  var onBatch: (([Int64], HTTPRequest, HTTPResponder) -> Void)?
  /// Seqs that this hub refuses with 422.
  var refused: Set<Int64> = []
  /// The next answers to greetings; when empty, the hub reports its position.
  var greetings: [String] = []
  /// Called before the next greeting is answered.
  var onGreeting: (() -> Void)?
  var posts = 0
  var greeted = 0
  var askedWhatItHas = 0
  var postTimes: [MonotonicTime] = []

  init(journalMaxSize: Int64 = 256 << 20, timeout: Duration = .seconds(5), batchEvents: Int = 200) throws {
    store = try Store(Store.Settings(location: scratch.location("gw.db"), journalMaxSize: journalMaxSize))
    server = try HTTPServer(loopbackPort: 0, on: loop) { [unowned self] in self.handle($0, $1) }
    let token = scratch.write("token", "secret-token-of-16\n")
    upstream = try Upstream(
      UpstreamSettings(
        kind: .hub(isLive: false, keepAlive: 300),
        journal: Upstream.Settings(name: "hub", batchEvents: batchEvents),
        url: "http://127.0.0.1:\(server.port)", tokenFile: token, timeout: timeout),
      store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    upstream.health.observer = observer
    try store.keepOnlyCursors(of: ["hub"])
    loop.afterTurn { [unowned self] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream.wake() }
    }
  }

  deinit {
    upstream.stop()
    server.stop()
  }

  private func handle(_ request: HTTPRequest, _ responder: HTTPResponder) {
    let epoch = request.query["epoch"] ?? store.epoch
    if request.method == "GET" {
      greeted += 1
      onGreeting?()
      onGreeting = nil
      if request.query["epoch"] != nil { askedWhatItHas += 1 }
      if !greetings.isEmpty { return answer(200, body: greetings.removeFirst())(request, responder) }
      let body = JSONWriter.object { $0.field("acknowledged", acknowledged[epoch]) }
      return responder.respond(HTTPResponse(status: 200, body: body))
    }
    posts += 1
    postTimes.append(loop.now)
    if !answers.isEmpty { return answers.removeFirst()(request, responder) }
    if let onBatch {
      // `try?`: a request that is no batch has no events.
      let events = (try? JSONValue(parsing: request.body))?["events"]?.array ?? []
      return onBatch(events.compactMap { $0["seq"]?.integer }, request, responder)
    }
    take(request, responder)
  }

  func take(_ request: HTTPRequest, _ responder: HTTPResponder) {
    guard let json = try? JSONValue(parsing: request.body), let epoch = json["epoch"]?.string else { return }
    let events = json["events"]?.array ?? []
    if let bad = events.compactMap({ $0["seq"]?.integer }).first(where: refused.contains) {
      let body = JSONWriter.object { $0.field("error", "event \(bad) is not to my taste") }
      return responder.respond(HTTPResponse(status: 422, body: body))
    }
    for event in events {
      let seq = event["seq"]?.integer ?? 0
      received[epoch, default: []].append(seq)
      if event["kind"]?.string == "gap", let body = event["body"] {
        gaps.append((body["first"]?.integer ?? 0, body["last"]?.integer ?? 0, body["reason"]?.string ?? ""))
      }
      acknowledged[epoch] = max(acknowledged[epoch] ?? 0, seq)
    }
    let body = JSONWriter.object { $0.field("acknowledged", acknowledged[epoch] ?? 0) }
    responder.respond(HTTPResponse(status: 200, body: body))
  }

  func answer(_ status: Int, headers: HTTPHeaders = [:], body: String = "") -> (HTTPRequest, HTTPResponder) -> Void {
    { _, responder in
      responder.respond(HTTPResponse(status: status, headers: headers, body: Array(body.utf8)))
    }
  }

  private var appended: Int64 = 0
  var isDelivered: Bool { store.lastSeq == appended && upstream.status.pending == 0 }

  func append(_ count: Int) {
    appended += Int64(count)
    store.write { store throws(SQLiteError) in
      for _ in 0..<count {
        try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array("{\"x\":1}".utf8))
      }
    }
  }

  /// Turns the loop until the condition is true.
  func run(until condition: () -> Bool, _ what: Comment) {
    loop.later {}
    let isSo = turn(loop, until: condition)
    #expect(isSo, what)
  }

  /// As `run`, without the pauses between tries.
  func run(impatiently condition: () -> Bool, _ what: Comment) {
    run(
      until: {
        if condition() { return true }
        if upstream.status.state == .waiting { upstream.networkChanged() }
        return false
      }, what)
  }

  var here: [Int64] { received[store.epoch] ?? [] }
}

@Suite(.serialized) struct RelayTests {
  @Test func `everything arrives once, in order, and the cursor is kept`() throws {
    let bench = try Bench()
    bench.append(1000)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == Array(1...1000))
    // A hub reports its position itself, so the cursor is written along with the next write, and at the end.
    bench.store.settle()
    #expect(try bench.store.cursor(of: "hub") == ByLane(all: 1000))
    #expect(bench.upstream.status.batches >= 6, "200 events at once, at most, and one at first")
  }

  @Test func `an outage of 10,000 events loses none of them`() throws {
    let bench = try Bench()
    bench.answers = (0..<3).map { _ in bench.answer(503) }
    for _ in 0..<100 {
      bench.append(100)
      bench.run(until: { bench.store.lastSeq % 100 == 0 && bench.store.lastSeq > 0 }, "stored")
    }
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == Array(1...10_000))
  }

  /// Two upstreams may lead to one server, with different filters.
  @Test(arguments: ["a hub", "a broker", "none"])
  func `another upstream's position at a server says nothing about this upstream's events`(_ other: String) throws {
    let bench = try Bench()
    bench.answers = [bench.answer(503)]
    bench.append(12)
    bench.run(until: { bench.upstream.status.state == .waiting }, "it is away")
    if other != "none" { bench.store.write { store throws(SQLiteError) in try store.setCursor(of: "other", to: 12) } }
    if other == "a broker" { bench.observer.uncountedUpstreams = ["other"] }
    bench.greetings = [#"{"acknowledged":9,"lanes":{"messages":9}}"#]
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(bench.here == (other == "a hub" ? Array(1...12) : Array(10...12)))
  }

  @Test func `a server with errors gets everything when it recovers`() throws {
    let bench = try Bench()
    bench.answers = [bench.answer(500, body: "oops")]
    bench.append(1)
    bench.run(until: { bench.upstream.status.state == .waiting }, "waits")
    #expect(bench.upstream.status.reason == "HTTP 500: oops")
    #expect(bench.upstream.status.pending == 1)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == [1])
  }

  /// Between two attempts the server reports its position, which is no progress.
  @Test func `a server that answers but accepts nothing counts as stuck until it accepts something`() throws {
    let bench = try Bench()
    bench.answers = (0..<3).map { _ in bench.answer(500) }
    bench.append(1)
    var (wasStuck, hasCeased) = (false, false)
    bench.run(
      until: {
        if case .stuck(1, "HTTP 500") = bench.upstream.progress {
          wasStuck = true
        } else if wasStuck, !bench.isDelivered {
          hasCeased = true
        }
        return bench.isDelivered
      }, "delivered")
    #expect(wasStuck && !hasCeased && bench.greeted >= 4 && bench.upstream.progress == .fine)
  }

  @Test func `Retry-After is respected`() throws {
    let bench = try Bench()
    bench.answers = [bench.answer(429, headers: ["Retry-After": "2"])]
    bench.append(1)
    #expect(bench.upstream.status.nextAttempt == nil)
    bench.run(until: { bench.upstream.status.nextAttempt != nil }, "a pause that the status shows")
    #expect(bench.upstream.status.nextAttempt == 2)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.upstream.status.nextAttempt == nil)
    #expect(bench.postTimes[1] - bench.postTimes[0] >= .seconds(2))
  }

  @Test func `a busy hub is not asked for its position again, and a busy proxy is`() throws {
    for (body, greetings) in [(#"{"error":"too many batches are waiting"}"#, 1), ("<html>503</html>", 2)] {
      let bench = try Bench()
      bench.answers = [bench.answer(503, headers: ["Retry-After": "1"], body: body)]
      bench.append(1)
      bench.run(until: { bench.isDelivered }, "delivered")
      #expect(bench.here == [1])
      #expect(bench.askedWhatItHas == greetings)
      #expect(bench.postTimes[1] - bench.postTimes[0] >= .seconds(1))
    }
  }

  @Test(
    arguments: [
      ("120", Duration.seconds(120)), ("Sat, 21 Nov 2026 05:00:30 GMT", .seconds(30)),
      ("Sat, 21 Nov 2026 04:00:00 GMT", .zero), ("Sat, 21 Nov 2099 04:00:00 GMT", .seconds(3600)),
      ("99999999999999999999", .seconds(3600)), ("soon", nil), ("", nil),
      ("Sat, 21 Nov 2026 05:00:30 GMT!", nil), ("-5", .zero),
    ] as [(String, Duration?)]) func `Retry-After is read in seconds or as a date, an hour at most`(
      _ text: String, _ wait: Duration?
    )
  {
    let response = HTTPResponse(status: 503, headers: ["Retry-After": text])
    // 05:00:00 of that day.
    let verdict = RetryPolicy.verdict(.success(response), now: 1_795_237_200) { _ in nil }
    #expect(verdict == .failing(reason: "HTTP 503", after: wait))
  }

  @Test func `a date in Retry-After is relative to the server's clock`() {
    let response = HTTPResponse(
      status: 503,
      headers: ["Retry-After": "Sat, 21 Nov 2026 05:00:30 GMT", "Date": "Sat, 21 Nov 2026 05:00:00 GMT"])
    // Our clock is 120 days behind.
    let verdict = RetryPolicy.verdict(.success(response), now: 1_795_237_200 - 120 * 86_400) { _ in nil }
    #expect(verdict == .failing(reason: "HTTP 503", after: .seconds(30)))
  }

  @Test func `a refused token stops the upstream and loses nothing`() throws {
    let bench = try Bench()
    bench.answers = [bench.answer(401)]
    bench.append(3)
    bench.run(until: { bench.upstream.status.state == .stopped }, "stopped")
    #expect(bench.upstream.status.pending == 3)
    #expect(bench.upstream.status.reason?.contains("token") == true)
    bench.upstream.resume()
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == [1, 2, 3])
  }

  /// Impossible numbers from a hub: they overflow in calculations, or lie beyond all sent events.
  static let absurd = [
    "-9223372036854775808", "9223372036854775807", "-1", "9007199254740993", "1e308", "0.5",
    String(repeating: "9", count: 400),
  ]

  @Test(arguments: absurd) func `a greeting with an impossible number is retried later`(_ number: String) throws {
    let bench = try Bench()
    bench.append(2)
    bench.greetings = ["{\"acknowledged\":\(number)}"]
    bench.run(until: { bench.upstream.status.state == .waiting }, "waits")
    #expect(bench.posts == 0, "nothing is sent after an invalid greeting")
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == [1, 2])
  }

  @Test(
    arguments: ["garbage", "{\"ok\":true}", "[1]", "", "{\"acknowledged\":\"x\"}", "{\"acknowledged\":0}"]
      + absurd.map { "{\"acknowledged\":\($0)}" })
  func `an invalid answer acknowledges nothing`(_ body: String) throws {
    let bench = try Bench()
    bench.answers = [bench.answer(200, body: body)]
    bench.append(2)
    bench.run(until: { bench.upstream.status.state == .waiting }, "waits")
    #expect(bench.upstream.status.pending == 2)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == [1, 2])
  }

  @Test func `a server that does not answer is given up after the time limit and tried again`() throws {
    let bench = try Bench(timeout: .seconds(1))
    var silent: [HTTPResponder] = []
    bench.answers = [{ _, responder in silent.append(responder) }]
    bench.append(1)
    bench.run(until: { bench.upstream.status.state == .waiting }, "waits")
    #expect(bench.upstream.status.reason == "no answer in time")
    bench.run(until: { bench.isDelivered }, "delivered")
  }

  @Test func `an unreadable token file is reported although nothing is to be sent`() throws {
    let bench = try Bench()
    bench.run(until: { bench.upstream.status.state == .idle && bench.greeted > 0 }, "connected")
    let token = bench.scratch.location("token")
    try FileManager.default.moveItem(atPath: token, toPath: token + ".away")
    bench.upstream.setState("gateway", Array("{}".utf8))
    bench.run(until: { bench.upstream.status.reason != nil }, "said")
    #expect(bench.upstream.status.reason == "the token file \(token) cannot be read")
    try FileManager.default.moveItem(atPath: token + ".away", toPath: token)
    bench.upstream.setState("gateway", Array("{\"n\":1}".utf8))
    bench.run(until: { bench.upstream.status.reason == nil }, "mended")
  }

  @Test func `after a lost answer a batch is sent again with the same identity`() throws {
    let bench = try Bench()
    bench.answers = [
      { [unowned bench] request, responder in
        bench.take(request, HTTPResponder.swallowing)
        responder.abort()
      }
    ]
    bench.append(3)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(Set(bench.here) == [1, 2, 3])
  }

  @Test func `a refused event is found by halving and becomes a dead letter, and the others are delivered`() throws {
    let bench = try Bench()
    bench.refused = [17, 62]
    bench.append(100)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == Array(1...100).filter { ![17, 62].contains($0) })
    var letters: [DeadLetter] = []
    try bench.store.eachDeadLetter {
      letters.append($0)
      return true
    }
    #expect(letters.map(\.event.seq) == [17, 62])
    #expect(letters[0].status == 422)
    #expect(letters[0].reason.contains("not to my taste"))
    bench.refused = []
    #expect(try bench.store.retryDeadLetters(of: "hub") == 2)
    bench.upstream.resume()
    bench.run(until: { bench.upstream.status.deadLetters == 0 }, "sent again")
    #expect(bench.here.suffix(2) == [17, 62])
  }

  @Test func `a dead letter that is marked for a retry during its retry is sent once more`() throws {
    let bench = try Bench()
    bench.refused = [2]
    bench.append(3)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.here == [1, 3] && bench.upstream.status.deadLetters == 1)
    // The server is repaired after it has refused the event again, and before the gateway learns of that.
    bench.answers = [
      { [unowned bench] request, responder in
        bench.refused = []
        #expect(throws: Never.self) { try bench.store.retryDeadLetters(of: "hub") }
        bench.upstream.resume()
        bench.answer(422)(request, responder)
      }
    ]
    #expect(try bench.store.retryDeadLetters(of: "hub") == 1)
    bench.upstream.resume()
    bench.run(until: { bench.upstream.status.deadLetters == 0 }, "sent again")
    #expect(bench.here == [1, 3, 2])
  }

  @Test func `events that the quota deleted are sent as a gap`() throws {
    let bench = try Bench(journalMaxSize: 1000)
    bench.answers = [bench.answer(503)]
    bench.append(100)
    bench.run(until: { bench.upstream.status.state == .waiting }, "waits")
    bench.store.trimJournal(now: Moment(milliseconds: 1, trusted: true))
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.gaps.count == 1)
    // It deletes no more than necessary: 25 rows of 39 bytes fit into the thousand.
    #expect(bench.gaps.first.map { [$0.0, $0.1] } == [1, 75])
    #expect(bench.gaps.first?.2 == "quota")
    #expect(bench.here == Array(75...100), "the gap has the number of its last event")
  }

  @Test func `a hub that was restored gets its lost events again`() throws {
    let bench = try Bench()
    bench.append(50)
    bench.run(until: { bench.isDelivered }, "delivered")
    bench.acknowledged[bench.store.epoch] = 20
    bench.received = [:]
    bench.answers = [bench.answer(503)]
    bench.append(1)
    bench.run(until: { bench.here.last == 51 }, "delivered")
    #expect(bench.here == Array(21...51))
  }

  @Test func `a hub with a higher position than ours makes the gateway begin a new epoch`() throws {
    let bench = try Bench()
    let epoch = bench.store.epoch
    bench.acknowledged[epoch] = 500
    bench.append(10)
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.store.epoch != epoch)
  }
}

extension HTTPResponder {
  /// A responder whose answer is dropped.
  static var swallowing: HTTPResponder {
    HTTPResponder(NowhereStream(), isHead: false, peer: nil, changed: Waiter(), of: nil)
  }
}

private final class NowhereStream: ByteStream {
  var pendingBytes: Int { 0 }
  var movedBytes: UInt64 { 0 }
  var isQuiet: Bool { true }
  func read() async throws(StreamEnd) -> [UInt8] { throw .closed }
  func drained() async throws(StreamEnd) {}
  func write(_ bytes: [UInt8]) {}
  func close() {}
}
