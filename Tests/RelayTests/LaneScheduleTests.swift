// SPDX-License-Identifier: MIT

import Foundation
import Store
import Testing
import Timing

@Suite struct LaneScheduleTests {
  /// The seeds: as many as `MESHPOST_SCHEDULES` says, from `MESHPOST_SEED` on. A release build runs many of them: `swift build --build-tests -c
  /// release -Xswiftc -enable-testing --scratch-path …`.
  private static var seeds: Range<UInt64> {
    let given = { (name: String) in ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) } }
    let first = given("MESHPOST_SEED") ?? 0
    return first..<first + (given("MESHPOST_SCHEDULES") ?? 250)
  }

  @Test func `after random faults of line, server and gateway, each lane arrives once and in order`() throws {
    var tally = RandomSchedule.Tally()
    var wrong = 0
    for seed in Self.seeds {
      let faults = try RandomSchedule.run(seed, &tally)
      #expect(faults.isEmpty, "\(faults.joined(separator: "\n"))")
      wrong += faults.isEmpty ? 0 : 1
      try #require(wrong < 20, "that is enough")
    }
    print("\(tally)")
    guard Self.seeds.count >= 250 else { return }
    // The random schedules contain enough of each case.
    for many in [
      tally.folded, tally.cuts, tally.restarts, tally.kills, tally.restores, tally.goneBack, tally.refused,
      tally.deadly,
      tally.buried, tally.stopped, tally.upgraded,
    ] {
      #expect(many > 5, "\(tally)")
    }
    #expect(tally.innocent * 1000 < tally.schedules, "\(tally)")
  }

  @Test func `of ten thousand adverts of 800 nodes, the newest of each node is sent`() throws {
    var figures: [Bool: (events: Int, bytes: Int, seconds: Double, cpu: Duration)] = [:]
    for folds in [false, true] {
      var random = SeededRandom(seed: 9)
      let schedule = try Schedule(seed: 9, Schedule.Kind(folds: folds))
      schedule.stop()
      for _ in 0..<10_000 { schedule.append(.advert, node: Int.random(in: 0..<800, using: &random)) }
      schedule.pass(1)
      let (begun, clock) = (schedule.loop.now, ContinuousClock.now)
      try schedule.restart()
      #expect(schedule.pass(untilDelivered: 2000))
      let here = Set(schedule.hub.seqs.nodes)
      var newest: [ScheduledEvent.State: Int64] = [:]
      for event in try schedule.journal() { newest[try #require(ScheduledEvent.State(event))] = event.seq }
      #expect(newest.count == 800 && newest.values.allSatisfy(here.contains))
      #expect(schedule.hub.contents.folded.values.reduce(0, +) == (folds ? Int64(10_000 - here.count) : 0))
      figures[folds] = (
        schedule.hub.sent, schedule.hub.bytesTaken, (schedule.loop.now - begun).inSeconds, ContinuousClock.now - clock
      )
      schedule.stop()
    }
    let folded = try #require(figures[true])
    #expect(figures[false]?.events == 10_000 && folded.events < 1000, "\(figures)")
  }

  @Test(arguments: 0..<3)
  func `a broker that drops repetitions ends with the newest states, over many kills of the gateway`(
    _ seed: UInt64
  ) throws {
    let schedule = try Schedule(
      seed: seed, Schedule.Kind(server: "mqtt", folds: true, profile: .wear, batchEvents: 200))
    schedule.hub.line.bytesPerSecond = 50_000
    var random = SeededRandom(seed: seed)
    schedule.stop()
    // More nodes than a stretch may have, each heard twice: the second time soon after the first.
    for node in 0..<4000 {
      schedule.append(.advert, node: node)
      if node >= 40 { schedule.append(.advert, node: node - Int.random(in: 20...40, using: &random)) }
    }
    schedule.pass(1)
    try schedule.restart()
    for _ in 0..<4 {
      schedule.pass(Int64.random(in: 3...30, using: &random))
      try schedule.kill()
    }
    #expect(schedule.pass(untilDelivered: 4000))
    var newest: [ScheduledEvent.State: Int64] = [:]
    for event in try schedule.journal() {
      newest[try #require(ScheduledEvent.State(event))] = ScheduledEvent.identity(of: event)
    }
    let wrong = newest.filter { schedule.hub.contents.states[$0.key] != $0.value }
    #expect(newest.count == 4000 && wrong.isEmpty, "\(wrong.count) are old")
    schedule.stop()
  }

  @Test func `a hub that alternates between versions with and without lanes gets everything`() throws {
    let schedule = try Schedule(seed: 7, Schedule.Kind(knowsLanes: false))
    for round in 0..<6 {
      schedule.hub.knowsLanes = round % 2 == 1
      schedule.hub.close()
      for kind in EventKind.allCases.prefix(6) + [.packet, .telemetry] { schedule.append(kind) }
      #expect(schedule.pass(untilDelivered: 600), "round \(round)")
    }
    let events = try schedule.journal()
    for lane in Lane.allCases {
      #expect(schedule.hub.seqs[lane] == events.filter { Lane(kind: $0.kind) == lane }.map(\.seq))
    }
    schedule.stop()
  }

  @Test func `a hub that was restored before its upgrade to lanes gets everything again`() throws {
    let schedule = try Schedule(seed: 7, Schedule.Kind(knowsLanes: false))
    let some: [EventKind] = [.message, .advert, .packet, .contact, .packet]
    for kind in some { schedule.append(kind) }
    #expect(schedule.pass(untilDelivered: 600))
    // The gateway learns the hub's position at the beginning of a connection, and not after that.
    schedule.hub.lose()
    schedule.pass(60)
    schedule.hub.keepBackup()
    for kind in some { schedule.append(kind) }
    #expect(schedule.pass(untilDelivered: 600))
    schedule.hub.restore()
    schedule.hub.learnLanes()
    schedule.append(.message)
    #expect(schedule.pass(untilDelivered: 600))
    let events = try schedule.journal()
    for lane in Lane.allCases {
      #expect(schedule.hub.seqs[lane] == events.filter { Lane(kind: $0.kind) == lane }.map(\.seq))
    }
    schedule.stop()
  }

  @Test func `a message overtakes waiting events of lower lanes`() throws {
    let schedule = try Schedule(seed: 8)
    schedule.pass(2)
    for _ in 0..<500 { schedule.append(.advert) }
    schedule.pass(5)
    let before = schedule.hub.seqs.nodes.count
    schedule.append(.message)
    schedule.pass(4)
    #expect(schedule.hub.seqs.messages.count == 1)
    #expect(schedule.hub.seqs.nodes.count < 400 && schedule.hub.seqs.nodes.count > before)
    schedule.stop()
  }
}
