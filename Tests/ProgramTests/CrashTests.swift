// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Testing
import Timing

extension WholeProgramTests {
  /// `kill -9` at random moments under steady traffic.
  @Suite struct Crashes {
    static let rounds = 30

    @Test(arguments: [UInt64(20_261_121)]) func `after kills, the hub has each committed event once`(
      _ seed: UInt64
    ) throws {
      var random = SeededRandom(seed: seed)
      let rig = try Rig()
      try rig.startRadio(["--queue", "100000", "--contacts", "20"])
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      let total = 4000
      rig.radio?.write("inject r0 150 \(total)")
      for round in 0..<Self.rounds * 2 {
        usleep(UInt32.random(in: 100_000...700_000, using: &random))
        if round % 2 == 0 {
          rig.gateway?.kill9()
          try rig.startGateway()
        } else {
          rig.hub?.kill9()
          try rig.startHub()
        }
      }
      try rig.radio?.line(with: "\"injected\"")
      try rig.waitForSync()
      try untilTrue("the radio's queue to be empty") { try rig.radioStats()["queued"]?.integer == 0 }
      try untilTrue("everything at the hub") {
        let status = try rig.status()
        return status?["sync"]?["state"]?.string == "synced"
          && status?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
      try check(rig, total: total, seed: seed)
    }

    private func check(_ rig: Rig, total: Int, seed: UInt64) throws {
      let status = try #require(try rig.status())
      let events = try rig.hubRows("events")
      let seqs = events.compactMap { $0["seq"]?.integer }
      let last = status["store"]?["last_seq"]?.integer ?? 0
      #expect(seqs.sorted() == Array(1...last), "each committed event once (seed \(seed))")
      #expect(Rig.isInOrder(events), "in order by lane (seed \(seed)): \(seqs)")
      #expect(Set(events.compactMap { $0["epoch"]?.string }).count == 1)
      let texts = try rig.hubTexts()
      #expect(Set(texts).count == texts.count, "nothing is there twice (seed \(seed))")
      let handedOver = Int(try rig.radioStats()["handed_over"]?.integer ?? 0)
      let stored = Int(status["store"]?["messages"]?.integer ?? 0)
      #expect(texts.count == stored, "each stored message is at the hub (seed \(seed))")
      let lost = handedOver - stored
      print(
        "kill -9: \(Self.rounds) of the gateway, \(Self.rounds) of the hub; the radio handed over \(handedOver) messages, "
          + "\(stored) are stored and at the hub, \(lost) were taken by a kill before the commit")
      #expect(lost >= 0 && lost <= Self.rounds, "at most one a kill (seed \(seed))")
      #expect(handedOver == total)
    }
  }
}
