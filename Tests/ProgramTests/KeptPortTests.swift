// SPDX-License-Identifier: MIT

import Companion
import Foundation
import JSON
import TestSupport
import Testing
import Timing

extension WholeProgramTests {
  /// The serial port outlives the gateway: a service manager keeps it, with bytes that were read and not stored.
  @Suite struct KeptPort {
    static let kills = 50

    private func start(
      _ rig: Rig, watchdog: Double? = nil, profile: String = "durable", upstream: String = ""
    ) throws -> Program {
      rig.writeGatewayConfiguration(extra: upstream, store: "profile = \"\(profile)\"")
      let command = watchdog.map { ["--watchdog", "\($0)"] } ?? []
      let keeper = try Program(
        Checkout.folder.appending(path: "hardware/keeper").path(),
        command + [
          Program.programs.appending(path: "meshpostd").path(), "--config", rig.scratch.location("gw.toml"),
        ])
      try keeper.line(with: "READY=1")
      return keeper
    }

    @Test(arguments: [("durable", UInt64(20_261_122)), ("wear", 20_261_123)])
    func `no message is lost between the radio and the store over many kills`(
      _ profile: String, _ seed: UInt64
    ) throws {
      var random = SeededRandom(seed: seed)
      let rig = try Rig()
      try rig.startRadio(["--queue", "100000", "--contacts", "20", "--forgetful"])
      let keeper = try start(rig, profile: profile)
      try rig.waitForSync()
      let total = 3000
      rig.radio?.write("inject r0 300 \(total)")
      for _ in 0..<Self.kills {
        usleep(UInt32.random(in: 20_000...250_000, using: &random))
        let before = keeper.lines.count
        keeper.send(SIGUSR1)
        try keeper.line(with: "READY=1", from: before)
      }
      try rig.radio?.line(with: "\"injected\"")
      try rig.waitForSync()
      try untilTrue("the radio's queue to be empty") { try rig.radioStats()["queued"]?.integer == 0 }
      let handedOver = try rig.radioStats()["handed_over"]?.integer ?? 0
      let stored = try #require(try rig.status()?["store"]?["messages"]?.integer)
      print("kept port, \(profile): \(Self.kills) kills, \(handedOver) handed over, \(stored) stored")
      #expect(handedOver == Int64(total))
      #expect(stored == handedOver, "seed \(seed)")
    }

    @Test func `packets that wait for the disk survive a kill`() throws {
      let rig = try Rig()
      try rig.startRadio(["--nodes", "3", "--forgetful", "--airtime", "0"])
      let keeper = try start(rig, upstream: "kinds = [\"packet\"]")
      try rig.waitForSync()
      for number in 0..<40 {
        rig.radio?.write("dm r1 r2 \(number)")
        usleep(50_000)
        guard number % 10 == 9 else { continue }
        let before = keeper.lines.count
        keeper.send(SIGUSR1)
        try keeper.line(with: "READY=1", from: before)
      }
      var messages: Set<String> = []
      try untilTrue("the packets to be on disk: \(messages.count)") {
        let rows = rig.control("GET", "/v1/events?limit=1000")?.body ?? []
        for row in try rows.split(separator: 10).map({ try JSONValue(parsing: Array($0)) }) {
          guard let raw = row["body"]?["raw"]?.string, let packet = try Hex.bytes(raw).map(Packet.init(decoding:)),
            packet.type == .text
          else { continue }
          messages.insert(raw)
        }
        return messages.count >= 40
      }
      #expect(messages.count == 40)
    }

    @Test func `a gateway that hangs is killed and restarted, and a restart loses nothing`() throws {
      let rig = try Rig()
      try rig.startRadio(["--queue", "100000", "--forgetful"])
      let keeper = try start(rig, watchdog: 3)
      try rig.waitForSync()
      rig.radio?.write("inject r0 200 1000")
      let first = try #require(process(of: keeper))
      kill(first, SIGSTOP)
      try keeper.line(with: "keeper: watchdog: no sign of life")
      let killed = keeper.lines.count
      try keeper.line(with: "READY=1", from: killed)
      #expect(process(of: keeper) != first)
      for _ in 0..<5 {
        let before = keeper.lines.count
        keeper.send(SIGUSR2)
        try keeper.line(with: "STOPPING=1", from: before)
        try keeper.line(with: "with 3 descriptors", from: before)
        try keeper.line(with: "READY=1", from: before)
      }
      try rig.radio?.line(with: "\"injected\"")
      try untilTrue("all of them to be stored") { try rig.status()?["store"]?["messages"]?.integer == 1000 }
      try keeper.line(with: "WATCHDOG=1")
      try keeper.line(with: "STATUS=radio up, synced")
    }

    @Test func `a kept port whose device was unplugged is not used for the new device`() throws {
      let rig = try Rig()
      try rig.startRadio(["--queue", "100000", "--forgetful"])
      let keeper = try start(rig)
      try rig.waitForSync()
      let first = try #require(process(of: keeper))
      kill(first, SIGSTOP)
      let before = rig.radio?.lines.count ?? 0
      rig.radio?.write("unplug r0 1")
      rig.radio?.write("stats r0")
      try rig.radio?.line(with: "\"stats\"", from: before)
      try untilTrue("it to be plugged in again") {
        FileManager.default.fileExists(atPath: rig.scratch.location("radio.tty"))
      }
      keeper.send(SIGUSR1)
      rig.radio?.write("inject r0 0 50")
      try untilTrue("the later messages") { try rig.status()?["store"]?["messages"]?.integer == 50 }
      #expect(process(of: keeper) != first)
    }

    /// The process id of the newest gateway.
    private func process(of keeper: Program) -> Int32? {
      keeper.lines.last { $0.hasPrefix("keeper: started") }.flatMap { Int32($0.split(separator: " ")[2]) }
    }
  }
}
