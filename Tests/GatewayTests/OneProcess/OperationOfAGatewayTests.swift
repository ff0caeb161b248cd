// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing
import VirtualRadio

/// An operator's view of a gateway that works, and of one whose parts fail.
@Suite struct OperationOfAGatewayTests {
  @Test func `a low battery is logged, shown and forwarded once`() throws {
    let rig = try Rig()
    rig.air("battery r0 3300")
    rig.configure("[power]\nlow_battery_mv = 3400")
    try rig.startSynced()
    try rig.until("the first reading") { try rig.status()["power"]?["battery_mv"]?.integer == 3300 }
    #expect(try rig.status()["power"]?["battery_low"]?.bool == false, "one reading may be one under load")
    // The question is repeated when the radio is.
    #expect(try rig.ask("POST", "/v1/sync").status < 300)
    try rig.until("it to be low") { rig.hasSaid("the radio's battery is low: 3.300 V") }
    #expect(try rig.status()["power"]?["battery_low"]?.bool == true)
    try rig.until("it at the hub") { rig.hub.events.contains { $0.kind == "power" } }
    rig.pass(.seconds(7200))
    let events = rig.hub.events.filter { $0.kind == "power" }
    #expect(events.count == 1)
    let body = try #require(events.first?.body)
    #expect(body["source"]?.string == "battery" && body["state"]?.string == "low")
    #expect(body["battery_mv"]?.integer == 3300)
  }

  @Test func `a busy hour brings no more messages than are kept`() throws {
    let rig = try Rig()
    rig.configure("", store: "messages_max = 100")
    try rig.startSynced()
    for number in 1...400 {
      rig.air("chan r1 0 message \(number)")
      if number.isMultiple(of: 10) { rig.pass(.seconds(10)) }
    }
    try rig.until("the last one") { try rig.texts().contains("message 400") }
    // A commit for each message, and a look after each hundred of them.
    #expect(try rig.status()["store"]?["messages"]?.integer ?? .max <= 220)
    #expect(Set(rig.hub.events.filter { $0.kind == "message" }.compactMap { $0.body["text"]?.string }).count == 400)
  }

  @Test(arguments: [VirtualFirmware.v1_9, .newest])
  func `each hour a reading of the own radio is kept, with its noise if the firmware tells it`(
    _ firmware: VirtualFirmware
  ) throws {
    let rig = try Rig { $0.firmware = firmware }
    rig.air("battery r0 3900")
    try rig.startSynced()
    func readings() throws -> [JSONValue] { try rig.rows("/v1/readings?node=self&kind=node_status") }
    try rig.until("two readings", within: .seconds(3 * 3600)) { try readings().count == 2 }
    let noise: Int64? = firmware.protocolVersion < 8 ? nil : -112
    for reading in try readings() {
      #expect(reading["body"]?["battery_mv"]?.integer == 3900)
      #expect(reading["body"]?["noise_floor_dbm"]?.integer == noise)
    }
  }

  @Test(arguments: ["max_size = \"64 MiB\"\nmessages_max = 100000", "max_size = \"4 MiB\""])
  func `while the disk is full, messages stay in the radio, and the next start makes room`(_ next: String) throws {
    let rig = try Rig { $0.queueCapacity = 100_000 }
    rig.configure("", store: "max_size = \"4 MiB\"\nmessages_max = 100000")
    rig.hub.mood = .unreachable
    try rig.startSynced()
    let (count, time) = (16_000, rig.radio.clock)
    for number in 0..<count {
      rig.radio.injectChannelText(
        "r1: \(number) \(String(repeating: "much ", count: 25))", slot: 0, time: time &+ UInt32(number))
    }
    try rig.until("the store to be full", within: .seconds(86_400)) {
      try rig.status()["store"]?["error"]?.string?.contains("full") == true
    }
    let stored = Int(try rig.status()["store"]?["messages"]?.integer ?? 0)
    #expect(stored + rig.radio.queuedMessages + 1 == count, "one is in the gateway's hand")
    #expect(try rig.status()["sync"]?["state"]?.string == "failed")
    // At its end the gateway saves as much as it can; a bigger store, or one that keeps fewer, continues.
    rig.end()
    rig.configure("", store: next)
    try rig.start()
    try rig.until("the rest in the store", within: .seconds(86_400)) { rig.radio.queuedMessages == 0 }
    guard next.contains("64 MiB") else { return }
    try rig.until("all but the one in hand") { try rig.status()["store"]?["messages"]?.integer ?? 0 >= count - 1 }
  }

  @Test func `a token that is valid again resumes the upstream, and a mistake in the file changes nothing`() throws {
    let rig = try Rig()
    rig.hub.mood = .locked
    try rig.startSynced()
    rig.air("chan r1 0 waits")
    try rig.until("it to be stopped") { rig.hasSaid("stopped: HTTP 401") }
    rig.hub.mood = .well
    rig.reload("")
    try rig.until("everything at the hub") { rig.hub.texts == ["waits"] }
    rig.reload("[radio\n")
    try rig.until("it to be refused") { rig.hasSaid("running with the last configuration that worked") }
    rig.air("chan r1 0 goes on")
    try rig.until("the next message") { rig.hub.texts.count == 2 }
  }

  @Test func `a command that arrives by two upstreams is carried out once`() throws {
    let rig = try Rig()
    rig.configure(
      ["one", "other"].map {
        "[[upstream]]\nname = \"\($0)\"\nkind = \"mqtt\"\nurl = \"mqtt://127.0.0.1:1\"\nallow = [\"send\"]\n"
      }.joined())
    try rig.startSynced()
    let brokers = ["one", "other"].map { rig.server($0, "mqtt") }
    try rig.until("both to be there") { brokers.allSatisfy { $0.greetings == 1 } }
    var answers = 0
    for number in 1...3 {
      for broker in brokers {
        _ = rig.loop.begin {
          _ = await broker.ask(#"{"id":"c\#(number)","command":"send","to":"Public","text":"word \#(number)"}"#)
          answers += 1
        }
      }
    }
    try rig.until("all to be answered") { answers == 6 }
    let results = try rig.rows("/v1/journal?limit=1000").filter {
      $0["kind"]?.string == "command" && $0["body"]?["result"] != nil
    }
    for name in ["one", "other"] {
      #expect(results.count { $0["body"]?["upstream"]?.string == name } == 3, "\(results)")
    }
    let sent = try rig.rows("/v1/outgoing").compactMap { $0["text"]?.string }
    #expect(sent.sorted() == (1...3).map { "word \($0)" })
  }

  @Test func `the doctor finds problems and suggests remedies`() throws {
    let rig = try Rig()
    rig.hub.mood = .unreachable
    try rig.startSynced()
    func finding(_ subject: String) throws -> JSONValue? {
      try rig.json("/v1/doctor")["findings"]?.array?.first { $0["subject"]?.string == subject }
    }
    try rig.until("the hub to be missed") { try rig.upstream("hub")?["state"]?.string == "waiting" }
    #expect(try finding("radio")?["state"]?.string == "ok")
    let hub = try #require(try finding("upstream hub"))
    #expect(hub["state"]?.string == "warning" && hub.text.contains("waits"), "\(hub)")
    rig.link.isPresent = false
    try rig.until("the radio to be missed") { try rig.status()["radio"]?["state"]?.string == "down" }
    #expect(try finding("radio")?["state"]?.string == "failed" && finding("radio")?["remedy"] != nil)
    for subject in ["clock", "disk", "store"] { #expect(try finding(subject) != nil, "\(subject)") }
  }
}
