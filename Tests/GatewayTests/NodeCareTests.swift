// SPDX-License-Identifier: MIT

import Alerts
import Companion
import Delivery
import Store
import TestSupport
import Testing
import Timing

@testable import Gateway

/// Faults of other nodes are told once, with begin and end, and none is invented.
@Suite struct NodeCareTests {
  /// Each planted fault, as it is to be told.
  private static func plant(_ fleet: FleetOfRepeaters) -> [String] {
    var faults: [String] = []
    func fault(_ rule: AlertRule, _ index: Int, isOver: Bool = true) {
      faults.append("\(rule.rawValue) Repeater \(index)\(isOver ? ", over" : "")")
    }
    let day = 24.0
    for index in 0..<5 {  // clocks that walk, of which two are set right
      let (rate, isSet) = (index.isMultiple(of: 2) ? -110.0 : 90.0, index < 2)
      fleet.nodes[index].clock = { hour in
        isSet && hour > 23 * day ? 1 : rate * hour / day
      }
      fault(.nodeClockWrong, index, isOver: isSet)
    }
    for index in 5..<10 {  // clocks that were lost with the power, or set wrong
      let (from, until) = (Double(6 + index) * day, Double(11 + index) * day)
      fleet.nodes[index].clock = { (from..<until).contains($0) ? (index < 8 ? -80_000_000 : 7200) : 1 }
      fault(.nodeClockWrong, index)
      guard index < 8 else { continue }
      fleet.nodes[index].restarts = [from]
      fault(.nodeRestarted, index)
    }
    for index in 10..<18 {  // started anew: two of them twice
      let hours = [Double(index - 4) * day + 0.4] + (index < 12 ? [Double(index + 6) * day] : [])
      fleet.nodes[index].restarts = hours
      for _ in hours { fault(.nodeRestarted, index) }
    }
    for index in 18..<24 {  // the sun is too little for ten days
      let from = Double(index - 13) * day
      fleet.nodes[index].drain = { max(0, min(($0 - from) / day, 10) * 40 - max(0, $0 - from - 10 * day) * 40) }
      fault(.nodeBatteryFalling, index)
    }
    for index in 24..<28 {  // nearly empty within half a day, for two days
      let from = Double(index - 16) * day
      fleet.nodes[index].drain = { (from..<(from + 2 * day)).contains($0) ? min(800, ($0 - from) * 80) : 0 }
      fault(.nodeBatteryLow, index)
    }
    for index in 28..<31 {
      let from = Double(index - 24) * day
      fleet.nodes[index].noise = { (from..<(from + 2 * day)).contains($0) ? -80 : -112 }
      fault(.nodeNoisy, index)
    }
    for index in 31..<36 {  // polled, and gone for four days; the first ones had no power
      let from = Double(index - 27) * day
      fleet.nodes[index].silences = [from..<(from + 4 * day)]
      fault(.nodeUnanswering, index)
      guard index < 33 else { continue }
      fleet.nodes[index].restarts = [from + 4 * day]
      fault(.nodeRestarted, index)
    }
    for index in 40..<46 {  // only heard, and gone for good or for eight days
      let (from, isBack) = (Double(index - 26) * day, index < 43)
      fleet.nodes[index].silences = [from..<(isBack ? from + 8 * day : 1000)]
      fault(.nodeSilent, index, isOver: isBack)
    }
    return faults
  }

  @Test(arguments: [UInt64(1), 3])
  func `of 50 repeaters in 30 days, each fault is told once with begin and end, and none is invented`(seed: UInt64)
    throws
  {
    let fleet = try FleetOfRepeaters(count: 50, seed: seed)
    let faults = Self.plant(fleet)
    let day = 24.0
    fleet.live(until: 5 * day)
    fleet.live(until: 5.5 * day, hears: false)
    fleet.live(until: 12 * day)
    // The gateway is off for a day and a half.
    fleet.stop()
    fleet.wait(hours: 36)
    try fleet.startAgain()
    fleet.live(until: 20 * day)
    fleet.stop()
    try fleet.startAgain()
    fleet.live(until: 30 * day)
    let told = try fleet.told()
    let difference = told.sorted().difference(from: faults.sorted())
    #expect(difference.isEmpty, "\(difference.map { "\($0)" }.joined(separator: "\n"))")
    #expect(
      fleet.refusedPolls == 0 && fleet.mostAirtime <= AirtimeBudget.Limits().airtime / 2, "\(fleet.mostAirtime) ms")
    let clocks = try fleet.store.alerts(openOnly: false, limit: 1000).filter { $0.rule == "node_clock_wrong" }.map(
      \.text)
    #expect(clocks.count { $0.contains("and walks: it loses 1") } == 3, "\(clocks)")
    #expect(clocks.count { $0.contains("and walks: it gains 9") || $0.contains("and walks: it gains 8") } == 2)
    #expect(clocks.count { $0.contains("does not walk") } == 5, "\(clocks)")
  }

  @Test func `a mesh in which a thousand nodes fall silent has a bounded list, which says how many`() {
    var groups = SharedAlerts()
    var board = AlertBoard(AlertSettings(AlertRule.ofGateways))
    func read(_ rule: AlertRule, _ key: PublicKey, _ reading: AlertReading) {
      let (subject, placed) = groups.place(rule, key, "N\(key.bytes[0])", reading, isOpen: { board.isOpen($0) })
      _ = board.read(subject, placed, now: MonotonicTime(seconds: 200_000))
    }
    let keys = (0..<1000).map {
      PublicKey(bytes: [UInt8($0 & 255), UInt8($0 >> 8)] + [UInt8](repeating: 1, count: 30))!
    }
    for rule in AlertRule.ofNodes {
      for key in keys {
        read(rule, key, .bad(text: "wrong"))
        if rule == .nodeRestarted { read(rule, key, .well) }
      }
      #expect(board.open.count { $0.rule == rule } == SharedAlerts.most + 1)
      let others = AlertSubject(rule, SharedAlerts.others)
      #expect(board.said(of: others)?.value == 984)
      #expect(board.said(of: others)?.text.hasPrefix("984 further nodes") == true)
      for key in keys { read(rule, key, .well) }
      for change in board.timedOut(now: MonotonicTime(seconds: 200_000 + 86_401)) { _ = change }
      #expect(board.open.isEmpty)
    }
  }

  @Test func `a gateway whose own radio hears nobody reports that, and not the silence of each node`() throws {
    let fleet = try FleetOfRepeaters(count: 20, seed: 4)
    fleet.live(until: 10 * 24)
    #expect(try fleet.told() == [])
    for node in fleet.nodes { node.silences = [(10 * 24)..<(15 * 24)] }
    fleet.live(until: 14 * 24)
    let told = try fleet.told()
    #expect(told == ["node_silent all"], "\(told)")
    let text = try fleet.store.alerts(openOnly: true, limit: 9).last?.text
    #expect(text?.hasPrefix("none of 20 nodes that are usually heard has been heard for ") == true, "\(text ?? "")")
    fleet.stop()
    try fleet.startAgain()
    fleet.live(until: 20 * 24)
    let after = try fleet.told()
    #expect(after == ["node_silent all, over"], "\(after)")
  }

  @Test func `without a synchronised clock no node's clock is judged`() throws {
    let fleet = try FleetOfRepeaters(count: 5, seed: 5)
    fleet.machine.isWallSynchronised = false
    fleet.machine.wallOffset = 90_000_000
    for node in fleet.nodes { node.clock = { _ in -90_000 } }
    fleet.live(until: 5 * 24)
    #expect(try fleet.told() == [])
    fleet.machine.wallOffset = 0
    fleet.machine.isWallSynchronised = true
    for node in fleet.nodes { node.clock = { _ in 0 } }
    fleet.live(until: 8 * 24)
    #expect(try fleet.told() == [])
  }

  @Test(arguments: [1, 20], [3_600_000, -86_400_000])
  func `a step of this machine's clock is its own fault, and no node's`(count: Int, step: Int) throws {
    let fleet = try FleetOfRepeaters(count: count, seed: 7)
    fleet.live(until: 3 * 24)
    fleet.machine.wallOffset = Int64(step)
    for node in fleet.nodes { node.clock = { _ in -Double(step) / 1000 } }  // they go on as before
    fleet.live(until: 6 * 24)
    #expect(try fleet.told() == [])
    let open = try fleet.store.alerts(openOnly: true, limit: 9)
    #expect(open.map(\.rule) == ["clock_wrong"], "\(open)")
    #expect(
      open.first?.text.contains(step > 0 ? "was set 60 min forward" : "was set 24 h 0 min back") == true, "\(open)")
    // A restart does not forget it.
    fleet.stop()
    try fleet.startAgain()
    fleet.live(until: 8 * 24)
    #expect(!fleet.store.judgingNow.trusted)
    fleet.machine.wallOffset = 0
    for node in fleet.nodes { node.clock = { _ in 0 } }
    fleet.live(until: 9 * 24)
    #expect(fleet.store.judgingNow.trusted)
    #expect(try fleet.told() == [])
    #expect(try fleet.store.alerts(openOnly: true, limit: 9).isEmpty)
  }

  @Test func `a clock that is put right is believed as soon as nodes agree with it`() throws {
    let fleet = try FleetOfRepeaters(count: 20, seed: 8)
    fleet.machine.wallOffset = 3_600_000
    for node in fleet.nodes { node.clock = { _ in -3600 } }
    fleet.live(until: 2 * 24)
    #expect(try fleet.told().isEmpty, "it moved against the time since boot")
    fleet.machine.wallOffset = 0
    for node in fleet.nodes { node.clock = { _ in 0 } }
    fleet.live(until: 3 * 24)
    #expect(fleet.store.judgingNow.trusted)
    #expect(try fleet.told().isEmpty)
  }

  @Test(arguments: [1, 20])
  func `over a restart of the machine, nodes that agreed before contradict its clock`(count: Int) throws {
    let fleet = try FleetOfRepeaters(count: count, seed: 9)
    fleet.live(until: 3 * 24)
    fleet.stop()
    fleet.machine.boot = "the second"
    fleet.machine.wallOffset = 3_600_000
    for node in fleet.nodes { node.clock = { _ in -3600 } }
    try fleet.startAgain()
    fleet.live(until: 6 * 24)
    #expect(try fleet.told() == [])
    #expect(!fleet.store.judgingNow.trusted)
    #expect(try fleet.store.alerts(openOnly: true, limit: 9).map(\.rule) == ["clock_wrong"])
    let doubts = fleet.logged.filter { $0.hasPrefix("since this machine was started its clock differs") }
    #expect(doubts.count == 1, "\(doubts)")
    fleet.store.confirmClock()
    fleet.live(until: 12 * 24)
    #expect(try fleet.told().count == min(count, 17), "a person has said that it is right")
  }

  @Test func `a node that loses its clock while the machine restarts says nothing about the machine's`() throws {
    let fleet = try FleetOfRepeaters(count: 1, seed: 10)
    fleet.live(until: 3 * 24)
    fleet.stop()
    fleet.machine.boot = "the second"
    for node in fleet.nodes { node.clock = { _ in -80_000_000 } }
    try fleet.startAgain()
    fleet.live(until: 5 * 24)
    #expect(try fleet.told() == ["node_clock_wrong Repeater 0"])
  }

  @Test func `a poll that is removed ends the alert that nobody answers it, and hides no silence`() throws {
    let fleet = try FleetOfRepeaters(count: 20, seed: 11)
    fleet.live(until: 10 * 24)
    for node in fleet.nodes.prefix(2) { node.silences = [(10 * 24)..<1000] }
    fleet.live(until: 10.5 * 24)
    #expect(try fleet.told().sorted() == ["node_unanswering Repeater 0", "node_unanswering Repeater 1"])
    fleet.nodes[0].isPolled = false
    fleet.live(until: 16 * 24)
    let told = try fleet.told().sorted()
    #expect(
      told == ["node_silent Repeater 0", "node_unanswering Repeater 0, over", "node_unanswering Repeater 1"], "\(told)")
  }

  @Test func `without the rule about polls, a polled node that is gone is told as silent`() throws {
    let fleet = try FleetOfRepeaters(count: 20, seed: 12)
    fleet.configuration.rules.times[.nodeUnanswering] = nil
    fleet.alerts.change(fleet.configuration)
    fleet.live(until: 10 * 24)
    fleet.nodes[0].silences = [(10 * 24)..<1000]
    fleet.live(until: 16 * 24)
    #expect(try fleet.told() == ["node_silent Repeater 0"])
  }

  @Test(arguments: [true, false])
  func `in a small fleet unanswered polls are told soon, if anybody at all is heard`(isAnybodyHeard: Bool) throws {
    let fleet = try FleetOfRepeaters(count: 4, seed: 13)
    for node in fleet.nodes.dropFirst() { node.isPolled = false }
    fleet.live(until: 5 * 24)
    // The others advert too rarely to be heard meanwhile.
    for node in fleet.nodes { node.silences = [(5 * 24)..<1000] }
    let stranger = KeyPrefix(bytes: [9, 9, 9, 9, 9, 9])!
    while fleet.hour < 5 * 24 + 12 {
      fleet.live(until: fleet.hour + 0.5)
      if isAnybodyHeard { fleet.alerts.heard(stranger, at: fleet.machine.wallMilliseconds) }
    }
    let told = try fleet.told()
    #expect(told == (isAnybodyHeard ? ["node_unanswering Repeater 0"] : []), "\(told)")
  }

  @Test func `watched nodes are in care also if silence is not told`() throws {
    let fleet = try FleetOfRepeaters(count: 42, seed: 16)
    fleet.configuration.care.scope = .own
    fleet.configuration.nodes = ["Repeater 41"]
    fleet.configuration.rules.times[.nodeSilent] = nil
    fleet.alerts.change(fleet.configuration)
    for node in fleet.nodes.suffix(2) { node.clock = { _ in 5000 } }
    fleet.live(until: 3 * 24)
    #expect(try fleet.told() == ["node_clock_wrong Repeater 41"])
  }

  @Test func `a silent node that is watched from now on stays told until it is heard`() throws {
    let fleet = try FleetOfRepeaters(count: 45, seed: 17)
    fleet.live(until: 10 * 24)
    fleet.nodes[41].silences = [(10 * 24)..<(20 * 24)]
    fleet.live(until: 17 * 24)
    #expect(try fleet.told() == ["node_silent Repeater 41"])
    fleet.configuration.nodes = ["Repeater 41", "Repeater 42"]
    fleet.alerts.change(fleet.configuration)
    fleet.live(until: 18 * 24)
    #expect(try fleet.told() == ["node_silent Repeater 41"])
    fleet.live(until: 22 * 24)
    #expect(try fleet.told() == ["node_silent Repeater 41, over"])
  }

  @Test func `only nodes of one's own are judged by default`() throws {
    let fleet = try FleetOfRepeaters(count: 45, seed: 6)
    fleet.configuration.care.scope = .own
    fleet.alerts.change(fleet.configuration)
    for node in fleet.nodes { node.clock = { _ in 5000 } }
    fleet.live(until: 3 * 24)
    let told = try fleet.told()
    // 40 are polled: 16 of them have an alert each.
    #expect(told.count == 17 && told.allSatisfy { $0.hasPrefix("node_clock_wrong") }, "\(told)")
    #expect(try fleet.store.alerts(openOnly: true, limit: 99).contains { $0.text.hasPrefix("24 further nodes with") })
  }
}
