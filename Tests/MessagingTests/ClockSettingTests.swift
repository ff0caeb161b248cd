// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Messaging

/// No clock is ever set ahead of true time, whatever the mesh and the companion do.
@Suite struct ClockSettingTests {
  /// A node with MeshCore's rules (`CommonCLI.cpp`), in true time of seconds since 1970.
  private struct Node {
    /// Seconds that its clock is ahead, and those that it gains in each second.
    var offset: Double
    let drift: Double
    /// Its companion's clock, which `clock sync` would pass on.
    let companion: Double
    /// By how much a command has set it ahead of true time.
    var setAhead: Double = -.infinity

    mutating func pass(_ seconds: Double) { offset += seconds * drift }

    func clock(_ now: Double) -> Double { now + offset }

    mutating func carryOut(_ command: String, _ now: Double) {
      let words = command.split(separator: " ")
      switch words.first {
      case "clkreboot": offset = 1_715_770_351 - now
      case "time":
        guard let epoch = words.last.flatMap({ Double($0) }), epoch > clock(now).rounded(.down) else { return }
        set(epoch, now)
      case "clock":
        guard words.count == 2, companion > clock(now) else { return }
        set(companion + 1, now)
      default: Issue.record("\(command)")
      }
    }

    private mutating func set(_ time: Double, _ now: Double) {
      offset = time - now
      setAhead = max(setAhead, offset)
    }
  }

  /// Carries out the decisions over a mesh that loses, delays and repeats packets.
  private static func run(_ random: inout SeededRandom) -> (Node, last: ClockSetting.Action?, wasSynchronised: Bool) {
    func draw(_ range: ClosedRange<Double>) -> Double { Double.random(in: range, using: &random) }
    var now = draw(1_793_500_000...1_900_000_000)
    let isWrong = draw(0...1) < 0.9
    var node = Node(
      offset: isWrong
        ? [draw(-90_000_000...0), draw(-900...900), draw(0...90_000_000)].randomElement(using: &random)! : 0,
      drift: draw(-0.0005...0.0005), companion: now + draw(-300_000_000...300_000_000))
    // The machine's clock: synchronised within a second, or wrong by anything.
    var isSynchronised = draw(0...1) < 0.9
    var error = isSynchronised ? draw(-0.9...0.9) : draw(-1_000_000...1_000_000)
    var setting = ClockSetting(mayReboot: draw(0...1) < 0.5)
    /// The machine's clock may be set by anybody while it counts as synchronised.
    var proof = ClockProof()
    func isSure() -> Bool {
      proof.look(wall: Int64((now + error) * 1000), sinceBoot: Int64(now * 1000), isSynchronised: isSynchronised)
      return isSynchronised && proof.doubt == nil
    }
    _ = isSure()
    var wasSynchronised = isSynchronised
    /// Commands that are on their way, or will arrive again.
    var late: [(at: Double, command: String)] = []

    func pass(_ seconds: Double) {
      let end = now + seconds
      for one in late.filter({ $0.at <= end }).sorted(by: { $0.at < $1.at }) {
        node.pass(one.at - now)
        now = max(now, one.at)
        node.carryOut(one.command, now)
      }
      late.removeAll { $0.at <= end }
      node.pass(end - now)
      now = end
    }
    func send(_ command: String) {
      if draw(0...1) > 0.2 { late.append((now + draw(0.2...20), command)) }
      if draw(0...1) < 0.2 { late.append((now + draw(0.2...7200), command)) }
      pass(draw(0...25))
    }
    for _ in 0..<40 {
      let asked = Int64((now + error) * 1000)
      pass(draw(0.2...10))
      let time = UInt32(max(0, node.clock(now)))
      pass(draw(0.2...10))
      if draw(0...1) < 0.05 {
        isSynchronised.toggle()
        error = isSynchronised ? draw(-0.9...0.9) : draw(-1_000_000...1_000_000)
      }
      if isSynchronised, draw(0...1) < 0.03 { error += draw(6...100_000) * [-1, 1].randomElement(using: &random)! }
      wasSynchronised = wasSynchronised && isSure()
      guard draw(0...1) > 0.1 else { continue }  // the answer was lost
      guard isSure() else { return (node, nil, false) }
      let action = setting.read(ClockDifference(time: time, asked: asked, answered: Int64((now + error) * 1000)))
      switch action {
      case .set:
        pass(draw(0...60))
        if isSynchronised, draw(0...1) < 0.03 { error += draw(6...100_000) * [-1, 1].randomElement(using: &random)! }
        if let command = ClockSetting.command(at: Int64((now + error) * 1000), isSynchronised: isSure()) {
          send(command)
        }
      case .reboot:
        send("clkreboot")
        pass(30)
      case .done, .ahead, .failed:
        pass(10_000)
        return (node, action, wasSynchronised)
      }
    }
    pass(10_000)
    return (node, nil, wasSynchronised)
  }

  @Test func `in 10,000 random schedules with a companion whose clock lies, no clock is set ahead of true time`() {
    var random = SeededRandom(seed: 2026)
    var (done, ahead, failed) = (0, 0, 0)
    for schedule in 0..<10_000 {
      let (node, last, wasSynchronised) = Self.run(&random)
      #expect(node.setAhead <= 0, "schedule \(schedule): ahead by \(node.setAhead) s")
      guard wasSynchronised else { continue }
      switch last {
      case .done(let found): done += found.mayBeRight ? 1 : 0
      case .ahead(let found): ahead += found.least > 5 ? 1 : 0
      case .failed: failed += 1
      default: break
      }
    }
    #expect(done > 4000 && ahead > 1000, "\(done) done, \(ahead) ahead, \(failed) failed")
  }

  @Test
  func `a clock that is behind is set, one that is ahead wants to be started anew, and an unsure machine sets none`() {
    let now: Int64 = 1_800_000_000_900
    func difference(_ ahead: Int64) -> ClockDifference {
      ClockDifference(time: UInt32(now / 1000 + ahead), asked: now - 2000, answered: now + 2000)
    }
    var setting = ClockSetting(mayReboot: false)
    #expect(setting.read(difference(0)) == .done(difference(0)))
    #expect(difference(0).seconds == 0 && difference(0).within == 3)
    #expect(setting.read(difference(100)) == .ahead(difference(100)))
    for _ in 1...3 { #expect(setting.read(difference(-100)) == .set) }
    #expect(setting.read(difference(-100)) == .failed(difference(-100)))
    var starting = ClockSetting(mayReboot: true)
    #expect(starting.read(difference(100)) == .reboot && starting.read(difference(-80_000_000)) == .set)
    #expect(starting.read(difference(100)) == .failed(difference(100)), "once")
    #expect(ClockSetting.command(at: now, isSynchronised: true) == "time 1799999999")
    #expect(ClockSetting.command(at: now, isSynchronised: false) == nil)
    #expect(ClockSetting.command(at: 5000, isSynchronised: true) == nil)
  }
}
