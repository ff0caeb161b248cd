// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Relay

/// A hub's bucket in memory, as docs/hub-protocol.md describes it.
private struct ModelHub {
  var updates: [CatchUp.Update] = []
  var seq: Int64 = 0
  var first: Int64 = 1
  var clock: Int64 = 1_000_000

  mutating func push(id: String) {
    (seq, clock) = (seq + 1, clock + 7)
    updates.append(CatchUp.Update(seq: seq, at: clock, id: id, body: []))
  }

  mutating func trim(keeping count: Int) {
    updates.removeFirst(max(0, updates.count - count))
    first = updates.first?.seq ?? seq + 1
  }

  func page(_ from: CatchUp.Position, until: Int64?, limit: Int) -> CatchUp.Page {
    let known = updates.first { $0.seq == from.seq }?.at
    if from.seq > seq || (known != nil && from.at != nil && known != from.at) {
      let resume = updates.last { $0.at <= from.since }?.seq ?? 0
      return .diverged(resume: resume, at: updates.first { $0.seq == resume }?.at)
    }
    let end = min(until ?? seq, seq)
    let found = updates.filter { $0.seq > from.seq && $0.seq <= end }.prefix(limit)
    let last = found.count == limit ? found.last?.seq ?? 0 : max(end, from.seq)
    return .updates(
      Array(found), first: first, last: last, lastAt: updates.first { $0.seq == last }?.at, more: last < end)
  }
}

@Suite struct CatchUpTests {
  private static let name = "channel/0011223344556677"

  /// Runs a client against a hub until it is quiet; it records the ids of applied updates and the reported losses.
  private struct Client {
    var catchUp = CatchUp(
      [CatchUpTests.name: CatchUp.Position()], settings: CatchUp.Settings(page: 10, maxBehind: 200))
    var applied: Set<String> = []
    var lost: Int64 = 0

    /// Makes one step; `during` happens while the answer is in transit. False: there is nothing to do.
    mutating func step(_ hub: inout ModelHub, during: (inout ModelHub, inout CatchUp) -> Void = { _, _ in }) -> Bool {
      guard let action = catchUp.next() else { return false }
      switch action {
      case .askState:
        let state = (CatchUpTests.name, hub.seq, hub.updates.last?.at ?? 0)
        during(&hub, &catchUp)
        catchUp.stateArrived([state])
      case .skip(let bucket, let first, let last, let position):
        lost += last - first + 1
        catchUp.moved(bucket, CatchUp.Outcome(position: position), skipped: last - first + 1)
      case .fetch(let bucket, let from, let until, let limit, _):
        let page = hub.page(from, until: until, limit: limit)
        during(&hub, &catchUp)
        guard let outcome = catchUp.read(page, of: bucket) else {
          catchUp.failed()
          return true
        }
        let fresh = outcome.updates.filter { applied.insert($0.id).inserted }
        let gone = outcome.lost.map { Int64($0.count) } ?? 0
        lost += gone
        catchUp.moved(
          bucket, outcome, applied: fresh.count, duplicates: outcome.updates.count - fresh.count, skipped: gone)
      }
      return true
    }

    mutating func run(_ hub: inout ModelHub) {
      var steps = 0
      while step(&hub), steps < 100_000 { steps += 1 }
    }

    var statistics: UpdatesReport.Statistics { catchUp.statistics[0].3 }
    var position: CatchUp.Position { catchUp.statistics[0].position }
  }

  @Test func `updates that arrive during a thousand fetches are fetched, and the counts add up`() {
    var (hub, client) = (ModelHub(), Client())
    for number in 1...50 { hub.push(id: "\(number)") }
    client.catchUp.connected()
    for number in 51...1050 {
      _ = client.step(&hub) { hub, catchUp in
        hub.push(id: "\(number)")
        catchUp.hasNew(Self.name, hub.seq)
      }
    }
    client.run(&hub)
    #expect(client.applied.count == 1050)
    #expect(client.position.seq == hub.seq)
    #expect(client.statistics.applied == 1050 && client.statistics.duplicates == 0 && client.statistics.skipped == 0)
    #expect(client.statistics.followUps > 900, "each has-new during a fetch makes one more follow")
    #expect(client.catchUp.isQuiet)
  }

  @Test func `without shares a gap that is too long is cut, and its oldest updates are reported lost`() {
    var (hub, client) = (ModelHub(), Client())
    for number in 1...1000 { hub.push(id: "\(number)") }
    client.catchUp.connected()
    client.run(&hub)
    #expect(client.lost == 790 && client.applied.count == 210)
    #expect(client.statistics.skipped == 790 && client.statistics.applied == 210)
  }

  @Test func `updates that the hub has deleted are reported lost`() {
    var (hub, client) = (ModelHub(), Client())
    for number in 1...30 { hub.push(id: "\(number)") }
    client.catchUp.connected()
    client.run(&hub)
    client.catchUp.disconnected()
    for number in 31...150 { hub.push(id: "\(number)") }
    hub.trim(keeping: 40)
    client.catchUp.connected()
    client.run(&hub)
    #expect(client.lost == 80 && client.applied.count == 70)
  }

  @Test func `the time before which everything is known never goes back, and stays a margin behind`() {
    var (hub, client) = (ModelHub(), Client())
    for number in 1...30 { hub.push(id: "\(number)") }
    client.catchUp.connected()
    client.run(&hub)
    let since = client.position.since
    #expect(since == hub.clock - 60_000)
    let outcome = CatchUp.Page.updates(
      [CatchUp.Update(seq: 31, at: 5, id: "old", body: [])], first: 1, last: 31, lastAt: 5, more: false)
    client.catchUp.hasNew(Self.name, 31)
    guard case .fetch? = client.catchUp.next(), let read = client.catchUp.read(outcome, of: Self.name) else {
      Issue.record("no fetch")
      return
    }
    #expect(read.position.since == since)
  }

  @Test(arguments: [UInt64(1), 2, 3, 4])
  func `after random faults of the hub and the link, all updates are there or reported lost`(
    _ seed: UInt64
  ) {
    var random = SeededRandom(seed: seed)
    for round in 0..<500 {
      var (hub, client, number) = (ModelHub(), Client(), 0)
      var backup = hub
      var sinceBackup: [String] = []
      client.catchUp.connected()
      for _ in 0..<Int.random(in: 10...120, using: &random) {
        switch Int.random(in: 0..<12, using: &random) {
        case 0..<5:
          number += 1
          hub.push(id: "\(number)")
          sinceBackup.append("\(number)")
          client.catchUp.hasNew(Self.name, hub.seq)
        case 5: backup = hub; sinceBackup = []
        case 6 where Bool.random(using: &random):
          // The hub is restored; more time than the margin has passed, and all later updates are lost.
          let clock = hub.clock
          hub = backup
          hub.clock = clock + 61_000
          backup = hub
          sinceBackup = []
          client.catchUp.disconnected()
          client.catchUp.connected()
        case 7:
          client.catchUp.disconnected()
          client.catchUp.connected()
        case 8: client.catchUp.failed()
        default:
          _ = client.step(&hub) { hub, catchUp in
            number += 1
            hub.push(id: "\(number)")
            sinceBackup.append("\(number)")
            catchUp.hasNew(Self.name, hub.seq)
          }
        }
      }
      client.catchUp.disconnected()
      client.catchUp.connected()
      client.run(&hub)
      let missing = hub.updates.filter { !client.applied.contains($0.id) }
      #expect(missing.isEmpty, "seed \(seed), round \(round)")
      #expect(
        client.position.seq == hub.seq && client.catchUp.isQuiet,
        "seed \(seed), round \(round): \(client.catchUp) hub at \(hub.seq)")
      #expect(client.statistics.applied == UInt64(client.applied.count))
    }
  }
}
