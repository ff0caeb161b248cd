// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import Timing
import VirtualRadio

/// What the gateway uses the air for, and what waits while others use it.
@Suite struct AirtimeOfAGatewayTests {
  private static let long = String(repeating: "x", count: 100)

  /// Others use the channel for a second each time.
  private func noise(_ rig: Rig, _ count: Int) {
    for _ in 0..<count {
      rig.air("chan r1 0 \(Self.long)")
      rig.pass(.milliseconds(200))
    }
  }

  private func state(_ rig: Rig, _ id: String) throws -> String? { try rig.outgoing(id)?["state"]?.string }

  private func sums(_ rig: Rig) throws -> [String: Int64] {
    var sums: [String: Int64] = [:]
    for hour in try rig.json("/v1/airtime")["hours"]?.array ?? [] {
      for use in hour["purposes"]?.array ?? [] {
        sums[use["purpose"]?.string ?? "?", default: 0] += use["ms"]?.integer ?? 0
      }
      sums["heard", default: 0] += hour["heard_ms"]?.integer ?? 0
    }
    return sums
  }

  @Test func `while the channel is busy, only people's messages go out, and the status says so`() throws {
    let rig = try Rig()
    try rig.startSynced()
    noise(rig, 40)
    let use = try #require(rig.status()["messaging"]?["channel_use_percent"]?.number)
    #expect(use >= 25)
    _ = try rig.send("r1", "of a program", id: "bulk", ", \"priority\": \"bulk\"")
    _ = try rig.send("r1", "of a person", id: "own")
    try rig.until("own", is: "delivered")
    #expect(try state(rig, "bulk") == "pending")
    #expect(try rig.status()["messaging"]?["waits_for_channel"]?.bool == true)
    // Nothing more is heard: two minutes later the channel is free.
    rig.pass(.seconds(130))
    try rig.until("bulk", is: "delivered")
    #expect(try rig.status()["messaging"]?["waits_for_channel"]?.bool == false)
    #expect(!rig.hasSaid("stays busy"))
  }

  @Test func `what waits for a busy channel waits on after a restart`() throws {
    let rig = try Rig()
    try rig.startSynced()
    noise(rig, 40)
    for number in 1...3 { try rig.send("r1", "no. \(number)", id: "bulk \(number)", ", \"priority\": \"bulk\"") }
    try rig.restart()
    try rig.untilSynced()
    rig.pass(.seconds(40))
    for number in 1...3 { #expect(try state(rig, "bulk \(number)") == "pending") }
    #expect(try rig.status()["messaging"]?["waits_for_channel"]?.bool == true)
    for number in 1...3 { try rig.until("bulk \(number)", is: "delivered") }
  }

  @Test func `a channel that stays busy delays nothing for ever, and the log says that it is sent all the same`() throws
  {
    let rig = try Rig()
    try rig.startSynced()
    noise(rig, 60)
    _ = try rig.send("r1", "of another place", id: "relayed", ", \"priority\": \"relayed\"")
    _ = try rig.send("r1", "of a program", id: "bulk", ", \"priority\": \"bulk\"")
    var (relayed, bulk): (Int?, Int?) = (nil, nil)
    for second in stride(from: 0, to: 720, by: 5) {
      noise(rig, 4)
      rig.pass(.milliseconds(4200))
      if relayed == nil, try state(rig, "relayed") != "pending" { relayed = second }
      if bulk == nil, try state(rig, "bulk") != "pending" { bulk = second }
    }
    #expect(try (100...150).contains(#require(relayed)) && (580...640).contains(#require(bulk)))
    #expect(rig.hasSaid("stays busy"))
  }

  @Test func `a poll waits for the channel, and a person's question does not`() throws {
    let rig = try Rig()
    rig.configure(
      """
      [[poll]]
      node = "r1"
      every_min = 1
      """)
    try rig.startSynced()
    noise(rig, 60)
    let before = try sums(rig)["poll"]
    for _ in 0..<20 {
      noise(rig, 4)
      rig.pass(.milliseconds(4200))
    }
    #expect(try sums(rig)["poll"] == before)
    #expect(try rig.status()["messaging"]?["waits_for_channel"]?.bool == true)
    _ = try? rig.post("/v1/node/telemetry", #"{"node":"r1"}"#)
    #expect(try sums(rig)["request"] ?? 0 > 0)
    rig.pass(.seconds(200))
    #expect(try sums(rig)["poll"] ?? 0 > before ?? 0)
  }

  @Test func `the ledger says what was sent for what, and a kill loses nothing of it`() throws {
    let rig = try Rig()
    rig.configure("[messaging]\nairtime_per_hour_s = 3600\n")
    try rig.startSynced()
    _ = try rig.send("r1", "hello", id: "one")
    try rig.until("one", is: "delivered")
    #expect(try rig.post("/v1/radio/advert", "{}").status == 200)
    rig.air("loss 1")
    _ = try rig.send("r1", "nobody hears it", id: "two")
    try rig.until("two", is: "held_for_recipient")
    let before = try sums(rig)
    #expect(Set(before.keys).isSuperset(of: ["message", "retry", "advert"]))
    #expect(try #require(before["retry"]) > 0)
    rig.kill()
    try rig.startSynced()
    var after = try sums(rig)
    after["heard"] = before["heard"]
    #expect(after.filter { before[$0.key] != nil && $0.key != "retry" } == before.filter { $0.key != "retry" })
  }

  @Test func `what was heard is on disk at the end, and after a kill but for ten minutes`() throws {
    let rig = try Rig()
    try rig.startSynced()
    noise(rig, 20)
    rig.end()
    try rig.startSynced()
    let kept = try #require(sums(rig)["heard"])
    #expect(kept > 15_000)
    noise(rig, 20)
    rig.pass(.seconds(660))
    noise(rig, 1)
    rig.pass(.seconds(120))
    rig.kill()
    try rig.startSynced()
    #expect(try #require(sums(rig)["heard"]) > kept + 15_000)
  }

  @Test func `the ledger agrees with the radio's own counter`() throws {
    let rig = try Rig(airtime: 1)
    rig.configure("[messaging]\nairtime_per_hour_s = 3600\nchannel_airtime_per_hour_s = 3600\nbusy_percent = 100\n")
    try rig.startSynced()
    func radio() throws -> Int64 {
      try #require(rig.json("/v1/radio")["stats"]?["airtime_s"]?.integer)
    }
    let before = try radio()
    let own = try sums(rig).filter { $0.key != "heard" }.values.reduce(0, +)
    for number in 0..<40 {
      _ = try rig.send("Public", "\(number) " + String(repeating: "y", count: number * 3), id: "m\(number)")
      try rig.until("m\(number)", is: "sent")
      rig.pass(.seconds(3))
    }
    let seconds = try radio() - before
    let ledger = try sums(rig).filter { $0.key != "heard" }.values.reduce(0, +) - own
    #expect(seconds > 20 && abs(Double(seconds) - Double(ledger) / 1000) <= 1, "\(seconds) \(ledger)")
  }
}
