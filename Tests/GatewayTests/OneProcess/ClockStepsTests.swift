// SPDX-License-Identifier: MIT

import Testing
import Timing

/// A gateway whose wall clock is set while its upstream is unreachable.
@Suite struct ClockStepsTests {
  private func away(_ rig: Rig) -> Rig {
    rig.hub.mood = .unreachable
    return rig
  }

  private func set(_ rig: Rig, ahead days: Int64, synchronised: Bool = true) {
    (rig.machine.wallOffset, rig.machine.isWallSynchronised) = (days * 86_400_000, synchronised)
  }

  private func store(_ rig: Rig, _ name: String) throws -> Int64 { try rig.status()["store"]?[name]?.integer ?? 0 }
  private func lost(_ rig: Rig) throws -> Int64 { try rig.upstream("hub")?["lost"]?.integer ?? -1 }

  private func inject(_ count: Int64, _ rig: Rig) throws {
    // The same text in the same second of the radio's clock is the same message.
    rig.pass(.seconds(2))
    let before = try store(rig, "messages")
    rig.air("inject r0 0 \(count)")
    try rig.until("\(count) more messages") { try self.store(rig, "messages") == before + count }
  }

  @Test func `how long an event has waited is not told by a clock that was set`() throws {
    let rig = away(try Rig())
    try rig.startSynced()
    set(rig, ahead: 0, synchronised: false)
    try inject(1, rig)
    rig.pass(.seconds(75))
    func age() throws -> Int64 { try rig.upstream("hub")?["age_s"]?.integer ?? -1 }
    #expect(try (70...110).contains(age()), "the clock was not right")
    for (days, isSynchronised) in [(Int64(1), true), (-400, true), (30, false), (0, true)] {
      set(rig, ahead: days, synchronised: isSynchronised)
      let told = try age()
      #expect((70...110).contains(told), "\(days) days ahead")
    }
  }

  @Test func `a step of the clock begins no alert and ends none`() throws {
    let rig = away(try Rig())
    func tables(_ seconds: Int) -> String {
      """
      [alerts]
      clock_wrong = false
      disk_full = false
      backlogged_after_s = \(seconds)
      radio_lost_after_s = \(seconds)
      radio_lost_ends_after_s = \(seconds)
      nodes = ["r1"]
      node_silent_after_s = \(seconds)
      """
    }
    rig.configure(tables(86_400))
    try rig.startSynced()
    rig.link.isPresent = false
    try rig.until("the radio is gone") { try rig.status()["radio"]?["state"]?.string != "up" }
    for days: Int64 in [100, -300, 0] {
      set(rig, ahead: days)
      rig.reload(tables(86_400))
      #expect(try rig.openAlerts().isEmpty, "\(days) days ahead")
    }
    rig.reload(tables(1))
    let all: Set<String> = ["backlogged", "radio_lost", "node_silent"]
    try rig.until("all three") { try Set(rig.openAlerts()) == all }
    rig.reload(tables(86_400))
    rig.link.isPresent = true
    try rig.until("the radio is there") { try rig.status()["radio"]?["state"]?.string == "up" }
    for days: Int64 in [100, -300, 0] {
      set(rig, ahead: days)
      rig.reload(tables(86_400))
      #expect(try Set(rig.openAlerts()).isSuperset(of: ["backlogged", "radio_lost"]), "\(days) days ahead")
    }
  }

  @Test func `a board without a clock of its own deletes nothing when its clock is set`() throws {
    let rig = away(try Rig { $0.queueCapacity = 1000 })
    set(rig, ahead: -120, synchronised: false)
    try rig.startSynced()
    try inject(1, rig)
    set(rig, ahead: 0)
    try inject(200, rig)
    for _ in 0..<2 {
      rig.end()
      try rig.startSynced()
      #expect(try store(rig, "oldest_seq") == 1)
      #expect(try lost(rig) == 0 && !rig.hasSaid("given up"))
    }
  }

  @Test func `only events that are old by a trusted clock are deleted, and the loss is reported`() throws {
    let rig = away(try Rig())
    func boot(_ days: Int64) {
      rig.machine.boot = "\(days)"
      set(rig, ahead: days)
    }
    boot(-116)
    try rig.startSynced()
    try inject(20, rig)
    let old = try store(rig, "last_seq")
    // The machine is off for a month at a time, and knows it.
    for days: Int64 in [-87, -58, -29] {
      rig.end()
      boot(days)
      try rig.startSynced()
      try inject(10, rig)
      #expect(try lost(rig) == 0)
    }
    for days: Int64 in [0, 29] {
      rig.end()
      boot(days)
      try rig.startSynced()
    }
    try rig.until("it to be said") { rig.hasSaid("were deleted: older than journal_max_age_days") }
    #expect(try lost(rig) >= old && lost(rig) < old + 20, "of \(old)")
    #expect(try store(rig, "given_up") == lost(rig))
    #expect(try store(rig, "oldest_seq") == lost(rig) + 1)
  }

  @Test func `a jump of the synchronised clock by 100 days deletes nothing`() throws {
    let rig = away(try Rig { $0.queueCapacity = 1000 })
    try rig.startSynced()
    try inject(51, rig)
    for ahead: Int64 in [100, 0, -100, 5000] {
      set(rig, ahead: ahead)
      try inject(1, rig)
      rig.end()
      try rig.startSynced()
      #expect(try store(rig, "oldest_seq") == 1, "\(ahead) days ahead")
      #expect(try lost(rig) == 0 && !rig.hasSaid("given up"))
    }
  }
}
