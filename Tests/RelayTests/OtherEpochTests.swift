// SPDX-License-Identifier: MIT

import JSON
import Testing

@testable import Relay
@testable import Store

/// Servers that have an epoch of this gateway's id that its database has never had.
@Suite(.serialized) struct OtherEpochTests {
  private static let other = "feedfeedfeedfeed"

  /// The server names another epoch in its next greeting, up to `last`, while an event waits.
  private func meet(_ last: Int64, _ bench: Bench, of epoch: String = Self.other) {
    bench.answers = [bench.answer(503)]
    bench.append(1)
    bench.run(until: { bench.upstream.status.state == .waiting }, "it is away")
    let has = bench.acknowledged[bench.store.epoch] ?? 0
    bench.greetings = [
      #"{"acknowledged":\#(has),"lanes":{"messages":\#(has)},"others":{"\#(epoch)":\#(last)}}"#
    ]
    bench.run(impatiently: { bench.greetings.isEmpty && bench.upstream.status.pending == 0 }, "delivered")
  }

  @Test func `the epoch of a clone that goes on is told once, and each further event keeps the alert open`() throws {
    let bench = try Bench()
    bench.append(3)
    bench.run(until: { bench.isDelivered }, "delivered")
    // Each report of one is a further event of its epoch for the other.
    for last: Int64 in [9, 12, 12, 15] { meet(last, bench) }
    #expect(bench.gaps.map { $0.1 } == [9] && bench.gaps.allSatisfy { $0.2 == "conflict" }, "\(bench.gaps)")
    let same = HistoryFinding.otherEpoch(Self.other, last: 9)
    #expect(bench.observer.findings == [same, same, same], "\(bench.observer.findings)")
    #expect(try !bench.store.knows(Self.other, through: 15), "the next run of the program tells of it")
  }

  @Test func `a history that a hub has made of our own events from a broker is no loss, and one of others is`() throws {
    let bench = try Bench()
    bench.append(3)
    bench.run(until: { bench.isDelivered }, "delivered")
    let body = try JSONValue(parsing: Array("{\"x\":1}".utf8))
    let own = "\(bench.store.epoch).\(EventContent.digest(at: 1, kind: "message", body: body))"
    meet(0, bench, of: own)
    #expect(bench.gaps.isEmpty && bench.observer.findings.isEmpty, "\(bench.gaps)")
    #expect(try bench.store.knows(own, through: 0), "the next run of the program does not tell of it, either")
    meet(0, bench, of: "\(bench.store.epoch).\(Self.other)")
    #expect(bench.gaps.map { $0.2 } == ["conflict"], "\(bench.gaps)")
  }

  @Test func `a further history of an epoch whose loss was told is no other loss`() throws {
    let bench = try Bench()
    bench.append(3)
    bench.run(until: { bench.isDelivered }, "delivered")
    meet(9, bench)
    meet(0, bench, of: "\(Self.other).\(Self.other)")
    #expect(bench.gaps.map { $0.1 } == [9], "\(bench.gaps)")
    #expect(bench.observer.findings.count == 1, "\(bench.observer.findings)")
  }

  @Test func `how far a server had a lost epoch is shown with the loss`() throws {
    let bench = try Bench()
    bench.store.provenance.loss = StoreLoss(cause: .log, epoch: Self.other, last: 12)
    bench.append(3)
    bench.run(until: { bench.isDelivered }, "delivered")
    meet(9, bench)
    let words = bench.store.provenance.lossWords ?? ""
    #expect(words.contains("of epoch \(Self.other) that \(bench.upstream.name) has is 9"), "\(words)")
  }

  @Test func `of epochs that a server invents, those that it named last are remembered`() {
    var told = ToldEpochs()
    for number in 1...100 {
      told["\(number)"] = ToldEpochs.Told(then: nil, now: 1)
      told["1"] = ToldEpochs.Told(then: nil, now: Int64(number))
    }
    #expect(told.count == ToldEpochs.most)
    #expect(told["1"]?.now == 100 && told["100"] != nil && told["2"] == nil)
  }
}
