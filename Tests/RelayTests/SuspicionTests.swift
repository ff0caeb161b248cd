// SPDX-License-Identifier: MIT

import Store
import Testing
import Timing

@testable import HTTP
@testable import Relay

@Suite(.serialized) struct SuspicionTests {
  // MARK: The decision

  @Test func `an event is proven bad when it fails alone, another event passes, and it fails again`() {
    var suspicion = Suspicion()
    let isProvenAtOnce = suspicion.hungUp(first: 7, count: 200)
    #expect(!isProvenAtOnce)
    #expect(!suspicion.wantsAlone && suspicion.isActive)
    for _ in 0..<Suspicion.maxAlone {
      #expect(!suspicion.wantsProof)
      let isProven = suspicion.hungUp(first: 7, count: 1)
      #expect(!isProven)
    }
    #expect(suspicion.wantsProof)
    suspicion.anotherPassed()
    #expect(!suspicion.wantsProof && suspicion.wantsAlone)
    let isProven = suspicion.hungUp(first: 7, count: 1)
    #expect(isProven && !suspicion.isActive)
  }

  @Test func `a bad neighbour does not protect a bad event for long`() {
    var suspicion = Suspicion()
    for _ in 0..<Suspicion.maxAlone { _ = suspicion.hungUp(first: 7, count: 1) }
    #expect(suspicion.nextProof(ahead: nil, last: 47) == 7)
    suspicion.anotherFailed(nil, isRefused: false)
    for _ in 0..<Suspicion.againAlone {
      #expect(!suspicion.wantsProof)
      let isProven = suspicion.hungUp(first: 7, count: 1)
      #expect(!isProven)
    }
    #expect(suspicion.wantsProof && suspicion.nextProof(ahead: nil, last: 47) == 27)
    suspicion.anotherPassed()
    let isProven = suspicion.hungUp(first: 7, count: 1)
    #expect(isProven)
  }

  @Test func `a server that hangs up on everything proves no event bad, however long it does`() {
    var suspicion = Suspicion()
    for _ in 0..<1000 {
      if suspicion.wantsProof {
        suspicion.anotherFailed(nil, isRefused: false)
        #expect(!suspicion.isUrgent, "it is the server's trouble: it is left in peace")
      } else {
        let isProven = suspicion.hungUp(first: 7, count: 1)
        #expect(!isProven)
      }
    }
    // The server is well again, and the suspect passes.
    suspicion.advanced(to: 7)
    #expect(suspicion == Suspicion())
  }

  @Test func `one refusal suffices to try another event, and no number suffices without one that passes`() {
    var suspicion = Suspicion()
    for round in 0..<100 {
      let isProven = suspicion.refused(7)
      #expect(!isProven && suspicion.wantsProof && suspicion.failedProofs == round)
      suspicion.anotherFailed(nil, isRefused: false)
    }
    _ = suspicion.refused(7)
    suspicion.anotherPassed()
    let isProven = suspicion.refused(7)
    #expect(isProven && suspicion == Suspicion())
  }

  @Test func `failures of one event do not count against another`() {
    var suspicion = Suspicion()
    for seq in 1...100 as ClosedRange<Int64> {
      for _ in 0..<Suspicion.maxAlone {
        let isProven = suspicion.hungUp(first: seq, count: 1)
        #expect(!isProven)
      }
      suspicion.advanced(to: seq)
      #expect(!suspicion.isActive)
    }
  }

  @Test func `a hub is tried over HTTP after five links that came to nothing, and again after five more`() {
    var retry = LinkRetry()
    for _ in 0..<2 {
      for _ in 0..<5 {
        #expect(!retry.wantsHTTP)
        retry.failed()
      }
      #expect(retry.wantsHTTP)
      retry.nothingWorks()
    }
    for _ in 0..<5 { retry.failed() }
    _ = retry.fellBack(now: MonotonicTime(seconds: 1))
    #expect(!retry.wantsHTTP && !retry.isDue(at: MonotonicTime(seconds: 1)), "a link is tried again later")
    retry.opened()
    retry.failed()
    #expect(retry.wantsHTTP, "and its failure is enough")
    retry.nothingWorks()
    for _ in 0..<4 { retry.failed() }
    retry.worked()
    retry.failed()
    #expect(!retry.wantsHTTP)
  }

  // MARK: Against servers

  /// Closes the connection at batches with any of these.
  private static func hang(_ bench: Bench, over poison: Set<Int64>) {
    bench.onBatch = { [unowned bench] seqs, request, responder in
      if seqs.contains(where: poison.contains) { responder.abort() } else { bench.take(request, responder) }
    }
  }

  private static func letters(_ bench: Bench) throws -> [Int64] {
    var letters: [Int64] = []
    try bench.store.eachDeadLetter {
      letters.append($0.event.seq)
      return true
    }
    return letters
  }

  @Test(arguments: [[1], [30], [40, 41], [60]] as [[Int64]])
  func `an event over which the server hangs up becomes a dead letter, and the others are delivered`(_ poison: [Int64])
    throws
  {
    let bench = try Bench()
    Self.hang(bench, over: Set(poison))
    bench.append(60)
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(try Self.letters(bench) == poison)
    #expect(Set(bench.here) == Set(1...60).subtracting(poison))
    try bench.store.eachDeadLetter {
      #expect($0.reason.contains("closes the connection"))
      return true
    }
    // A dead letter that is sent again does not hold up later events.
    _ = try bench.store.retryDeadLetters(of: "hub")
    bench.upstream.resume()
    bench.append(3)
    bench.run(impatiently: { bench.isDelivered && bench.here.contains(63) }, "delivered")
    #expect(try Self.letters(bench) == poison)
    // When the server is repaired, the event passes.
    bench.onBatch = nil
    _ = try bench.store.retryDeadLetters(of: "hub")
    bench.upstream.resume()
    bench.run(impatiently: { bench.upstream.status.deadLetters == 0 }, "sent again")
    #expect(Set(bench.here) == Set(1...63))
  }

  @Test func `a server that hangs up on every batch causes no dead letter, and gets everything later`() throws {
    let bench = try Bench()
    bench.append(40)
    bench.run(until: { bench.isDelivered }, "delivered")
    bench.onBatch = { _, _, responder in responder.abort() }
    bench.append(40)
    bench.run(impatiently: { bench.posts > 60 }, "tried often")
    #expect(try Self.letters(bench).isEmpty)
    #expect(bench.upstream.status.pending == 40)
    bench.onBatch = nil
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(Set(bench.here) == Set(1...80))
    #expect(try Self.letters(bench).isEmpty)
  }

  /// The answer to an operator who wants to skip an event.
  private static func skip(_ bench: Bench) throws -> Upstream.Skipped {
    var said: Upstream.Skipped?
    _ = bench.loop.begin { said = await bench.upstream.skip() }
    bench.run(until: { said != nil }, "an answer")
    return try #require(said)
  }

  /// Skips until it is known which event fails alone.
  private static func skipAlone(_ bench: Bench) throws -> Upstream.Skipped {
    bench.run(until: { bench.upstream.untaken != nil }, "a failure")
    while true {
      let (said, failed) = (try skip(bench), bench.upstream.untaken)
      guard case .isOneOf(2...) = said else { return said }
      bench.run(until: { bench.upstream.untaken != failed }, "another failure")
      bench.run(until: { bench.upstream.untaken != nil }, "which lasts")
    }
  }

  @Test func `an operator skips the one event over which a server always fails, and no other`() throws {
    let bench = try Bench()
    bench.onBatch = { [unowned bench] seqs, request, responder in
      if seqs.contains(5) { bench.answer(500)(request, responder) } else { bench.take(request, responder) }
    }
    bench.append(4)
    bench.run(impatiently: { bench.isDelivered }, "the first four")
    #expect(try Self.skip(bench) == .nothing)
    bench.append(30)
    #expect(try Self.skipAlone(bench) == .setAside(seq: 5))
    let begun = bench.loop.now
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(bench.loop.now - begun < .seconds(1), "there is no pause before the next event")
    #expect(try Self.letters(bench) == [5])
    #expect(Set(bench.here) == Set(1...34).subtracting([5]))
    #expect(try Self.skip(bench) == .nothing)
    bench.onBatch = nil
    _ = try bench.store.retryDeadLetters(of: "hub")
    bench.upstream.resume()
    bench.run(impatiently: { bench.upstream.status.deadLetters == 0 }, "sent again")
    #expect(bench.here.contains(5))
  }

  @Test func `an event is skipped, too, if the server names a time for the next try over it each time`() throws {
    let bench = try Bench(batchEvents: 1)
    bench.onBatch = { [unowned bench] seqs, request, responder in
      let fails = bench.answer(503, headers: ["Retry-After": "1"], body: "<html>503</html>")
      if seqs.contains(2) { fails(request, responder) } else { bench.take(request, responder) }
    }
    bench.append(3)
    #expect(try Self.skipAlone(bench) == .setAside(seq: 2))
    bench.run(until: { bench.isDelivered }, "delivered")
    #expect(try Self.letters(bench) == [2])
  }

  @Test func `no event is skipped while the server fails over all, and each arrives when it is well again`() throws {
    let bench = try Bench()
    bench.append(4)
    bench.run(until: { bench.isDelivered }, "the first four")
    bench.onBatch = { [unowned bench] _, request, responder in bench.answer(500)(request, responder) }
    bench.append(3)
    for _ in 0..<3 {
      #expect(
        try Self.skipAlone(bench) == .othersFail(seq: 5, reason: "HTTP 500"))
    }
    bench.run(until: { bench.upstream.status.state == .waiting }, "it waits")
    bench.onBatch = nil
    #expect(try Self.skip(bench) == .taken(seq: 5), "the failure was the server's, and is over")
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(try Self.letters(bench).isEmpty && Set(bench.here) == Set(1...7))
  }

  @Test func `no event is skipped after a failure that is no answer of the server`() throws {
    let bench = try Bench(batchEvents: 1)
    // A hang-up, a busy server, a server behind a proxy.
    let failures: [(HTTPRequest, HTTPResponder) -> Void] = [
      { $1.abort() }, bench.answer(429, headers: ["Retry-After": "1"]), bench.answer(429), bench.answer(502),
    ]
    bench.append(2)
    for failure in failures {
      bench.onBatch = { failure($1, $2) }
      let posts = bench.posts
      bench.run(impatiently: { bench.posts > posts + 1 }, "a failure")
      bench.run(until: { bench.upstream.status.state == .waiting }, "the failure's end")
      guard case .unproven(let reason) = try Self.skip(bench) else {
        Issue.record("skipped")
        continue
      }
      #expect(reason.hasPrefix("the last try got no answer about it: "), "\(reason)")
    }
    // It answered, and then it was gone.
    bench.onBatch = { [unowned bench] _, request, responder in bench.answer(500)(request, responder) }
    let posts = bench.posts
    bench.run(impatiently: { bench.posts > posts + 1 }, "an answer")
    bench.run(until: { bench.upstream.status.state == .waiting }, "the answer's end")
    bench.server.stop()
    guard case .unproven = try Self.skip(bench) else {
      Issue.record("skipped")
      return
    }
    #expect(try Self.letters(bench).isEmpty && bench.upstream.status.pending == 2)
  }

  @Test func `events do not wait for a dead letter over which the server fails again`() throws {
    let bench = try Bench()
    bench.refused = [5]
    bench.append(8)
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(try Self.letters(bench) == [5])
    bench.onBatch = { [unowned bench] seqs, request, responder in
      if seqs.contains(5) { bench.answer(500)(request, responder) } else { bench.take(request, responder) }
    }
    _ = try bench.store.retryDeadLetters(of: "hub")
    bench.upstream.resume()
    bench.run(until: { bench.upstream.journal.deadLetters.failure?.seq == 5 }, "it fails again")
    var reasons: [String] = []
    try bench.store.eachDeadLetter(of: "hub") { letter in
      reasons.append(letter.reason)
      return true
    }
    #expect(reasons == ["HTTP 500"])
    for _ in 0..<5 {
      let begun = bench.loop.now
      bench.append(1)
      bench.run(until: { bench.isDelivered }, "delivered")
      #expect(bench.loop.now - begun < .seconds(1))
    }
    #expect(try Self.letters(bench) == [5])
    (bench.onBatch, bench.refused) = (nil, [])
    bench.upstream.resume()
    bench.run(until: { bench.upstream.status.deadLetters == 0 }, "sent again")
    #expect(Set(bench.here) == Set(1...13))
  }

  @Test func `a server whose position is before a dead letter does not get that event again`() throws {
    let bench = try Bench()
    Self.hang(bench, over: [5])
    bench.append(5)
    bench.run(impatiently: { bench.isDelivered }, "delivered")
    #expect(try Self.letters(bench) == [5])
    let posts = bench.posts
    // After a new connection the server reports 4.
    bench.answers = [bench.answer(503)]
    bench.append(1)
    bench.run(impatiently: { bench.here.contains(6) }, "delivered")
    #expect(bench.posts == posts + 2)
  }

  @Test func `a gap is sent although its last event was taken out of turn`() {
    let event = { (kind: String) in
      JournalEvent(seq: 6, at: 1, trusted: true, kind: kind, body: Array(#"{"first":5,"last":6}"#.utf8))
    }
    for (kind, count) in [("gap", 1), ("message", 0)] {
      var batch = Batch(event(kind), lane: .messages)
      batch.leaveOut([6])
      #expect(batch.events.count == count, "\(kind)")
    }
  }

  @Test func `a lost connection proves nothing against an event that an operator has asked to skip`() {
    var suspicion = Suspicion()
    suspicion.askedToSkip(4)
    #expect(suspicion.wantsProof)
    suspicion.anotherPassed()
    let isProven = suspicion.hungUp(first: 4, count: 1)
    #expect(!isProven && !suspicion.isAsked && !suspicion.wantsProof)
    suspicion.askedToSkip(4)
    suspicion.anotherPassed()
    let isAnswered = suspicion.failed(4, isOnly: false)
    #expect(isAnswered)
  }
}
