// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// The daemon with a clock that a test sets. Its upstream is away all the time.
  @Suite struct Clocks {
    private static let day = 86_400

    private final class Clocked {
      let rig: Rig
      private var clock: [String: String]
      private var boots = 0

      init() throws {
        rig = try Rig()
        clock = try rig.clockDouble()
        clock["MESHPOST_TEST_BOOT"] = rig.scratch.location("boot")
        boot()
        try rig.startRadio(["--queue", "1000"])
        rig.writeGatewayConfiguration()
      }

      /// The machine starts anew with the gateway's next start.
      func boot() {
        boots += 1
        let number = "\(boots)"
        _ = rig.scratch.write("boot", String(repeating: "0", count: 36 - number.count) + number)
      }

      func set(ahead days: Int, synchronised: Bool) {
        _ = rig.scratch.write("clock", "\(days * Clocks.day) \(synchronised ? 1 : 0)\n")
      }

      func end() throws {
        guard let running = rig.gateway else { return }
        running.send(SIGTERM)
        _ = try running.ended()
        rig.gateway = nil
      }

      /// In place of one that runs. The journal is looked after at its start.
      func start() throws {
        try end()
        try rig.startGateway(environment: clock)
        try rig.waitForSync()
      }

      func inject(_ count: Int) throws {
        // The same text in the same second of the radio's clock would be the same message.
        usleep(1_100_000)
        let before = try store("messages")
        rig.radio?.write("inject r0 0 \(count)")
        try untilTrue("\(count) more messages") { try self.store("messages") == before + Int64(count) }
      }

      func store(_ name: String) throws -> Int64 { try rig.status()?["store"]?[name]?.integer ?? 0 }
      func lost() throws -> Int64 { try rig.status()?["upstreams"]?.array?.first?["lost"]?.integer ?? -1 }
      var hasToldOfLoss: Bool { rig.gateway?.lines.contains { $0.contains("given up") } ?? false }
    }

    @Test func `a clock that steps begins no alert and ends none`() throws {
      let clocked = try Clocked()
      let rig = clocked.rig
      func configure(_ seconds: Int) {
        rig.writeGatewayConfiguration(
          extra: """
            [alerts]
            clock_wrong = false
            disk_full = false
            backlogged_after_s = \(seconds)
            radio_lost_after_s = \(seconds)
            radio_lost_over_s = \(seconds)
            nodes = ["r1"]
            node_silent_after_s = \(seconds)
            """)
      }
      func open() throws -> Set<String> {
        Set(try rig.status()?["alerts"]?.array?.compactMap { $0["rule"]?.string } ?? [])
      }
      /// It looks at everything that it can.
      func look() throws {
        let reloads = { rig.gateway?.lines.count { $0.contains("configuration reloaded") } ?? 0 }
        let before = reloads()
        rig.gateway?.send(SIGHUP)
        try untilTrue("a look") { reloads() > before }
      }
      configure(86_400)
      clocked.set(ahead: 0, synchronised: true)
      try clocked.start()
      rig.killRadio()
      try untilTrue("the radio is gone") { try rig.status()?["radio"]?["state"]?.string != "up" }
      for days in [100, -300, 0] {
        clocked.set(ahead: days, synchronised: true)
        try look()
        #expect(try open().isEmpty, "\(days) days ahead")
      }
      configure(1)
      try look()
      let all: Set<String> = ["backlogged", "radio_lost", "node_silent"]
      try untilTrue("all three: \(rig.gateway?.lines ?? [])") { try open() == all }
      configure(86_400)
      try look()
      try rig.startRadio(["--queue", "1000"])
      try untilTrue("the radio is there") { try rig.status()?["radio"]?["state"]?.string == "up" }
      for days in [100, -300, 0] {
        clocked.set(ahead: days, synchronised: true)
        try look()
        #expect(try open().isSuperset(of: ["backlogged", "radio_lost"]), "\(days) days ahead")
      }
    }

    @Test func `a board without a clock of its own gives up nothing when its clock is set`() throws {
      let clocked = try Clocked()
      clocked.set(ahead: -120, synchronised: false)
      try clocked.start()
      try clocked.inject(1)
      clocked.set(ahead: 0, synchronised: true)
      try clocked.inject(200)
      for _ in 0..<2 {
        try clocked.start()
        #expect(try clocked.store("oldest_seq") == 1)
        #expect(try clocked.lost() == 0 && !clocked.hasToldOfLoss)
      }
    }

    @Test func `a synchronised clock that jumps by 100 days gives up nothing`() throws {
      let clocked = try Clocked()
      clocked.set(ahead: 0, synchronised: true)
      try clocked.start()
      try clocked.inject(51)
      for ahead in [100, 0, -100, 5000] {
        clocked.set(ahead: ahead, synchronised: true)
        try clocked.inject(1)
        try clocked.start()
        #expect(try clocked.store("oldest_seq") == 1, "\(ahead) days ahead")
        #expect(try clocked.lost() == 0 && !clocked.hasToldOfLoss)
      }
    }

    @Test func `what is old by a clock that was right is given up, alone, and that is said`() throws {
      let clocked = try Clocked()
      clocked.set(ahead: -116, synchronised: true)
      try clocked.start()
      try clocked.inject(20)
      let old = try clocked.store("last_seq")
      // The machine is off for a month at a time, and sees that it was.
      for ahead in [-87, -58, -29] {
        try clocked.end()
        clocked.boot()
        clocked.set(ahead: ahead, synchronised: true)
        try clocked.start()
        try clocked.inject(10)
        #expect(try clocked.lost() == 0)
      }
      try clocked.end()
      clocked.boot()
      clocked.set(ahead: 0, synchronised: true)
      try clocked.start()
      try clocked.end()
      clocked.boot()
      clocked.set(ahead: 29, synchronised: true)
      try clocked.start()
      try clocked.rig.gateway?.line(with: "were deleted: older than journal_max_age_days")
      #expect(try clocked.lost() >= old && clocked.lost() < old + 20, "of \(old)")
      #expect(try clocked.store("given_up") == clocked.lost())
      #expect(try clocked.store("oldest_seq") == clocked.lost() + 1)
      let shown = try clocked.rig.meshpost("status").lines
      #expect(shown.contains { $0.contains("events were deleted before every upstream had them") }, "\(shown)")
    }
  }
}
