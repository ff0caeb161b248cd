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
  }
}
