// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Two radios on one port in turns, and a radio that is absent or confused.
@Suite struct RadiosInTurnsTests {
  private func pull(_ rig: Rig) throws {
    rig.link.isPresent = false
    try rig.until("the radio to be gone") { try rig.status()["radio"]?["state"]?.string == "down" }
  }

  private func plug(_ number: Int, _ rig: Rig) throws {
    rig.plug(number)
    try rig.until("r\(number) to be synced") {
      let status = try rig.status()
      return status["radio"]?["identity"]?["name"]?.string == "r\(number)"
        && status["sync"]?["state"]?.string == "synced" && status["radio"]?["state"]?.string == "up"
    }
  }

  @Test func `a replacement radio neither sends nor shows the messages of the radio before it`() throws {
    let rig = try Rig(nodes: 3)
    try rig.startSynced()
    rig.air("dm r2 r0 secret for r0")
    rig.air("chan r2 0 heard by both")
    try rig.until("two messages") { try rig.status()["store"]?["messages"]?.integer == 2 }
    // When the radio is removed, one message is transmitted but not acknowledged, and two wait.
    rig.air("loss 1")
    try rig.send("r2", "in the middle", id: "middle")
    try rig.until("middle", is: "sent")
    try pull(rig)
    try rig.send("r2", "waits for r0", id: "waits")
    try rig.send("Public", "to all by r0", id: "all")
    rig.air("loss 0")
    try plug(1, rig)

    // It sends its own message, but not the others'.
    try rig.send("r2", "said by r1", id: "own")
    try rig.until("own", is: "delivered")
    for key in ["middle", "waits", "all"] {
      let message = try rig.outgoing(key)
      #expect(message?["held_for"]?.string == "r0" && message?["ended"]?.bool == false, "\(key): \(message ?? .null)")
    }
    #expect(try rig.status()["messaging"]?["held"]?.integer == 3)
    #expect(try rig.doctor().contains { $0.contains("3 messages are held for a radio") })
    #expect(try rig.post("/v1/outgoing/retry?id=waits").status == 400)

    // r1 does not have r0's private message, but a message that both heard.
    rig.air("dm r2 r1 for r1")
    try rig.until("its own message") { try rig.texts().contains("for r1") }
    let own = try rig.texts()
    #expect(own.filter { $0 == "heard by both" }.count == 1 && own.contains("said by r1"), "\(own)")
    #expect(!own.contains("secret for r0") && !own.contains("waits for r0"), "\(own)")
    let others = try rig.ask("GET", "/v1/messages").headers["Meshpost-Other-Radios"]
    #expect(others?.contains("r0") == true, "whose messages are left out")
    #expect(try rig.texts("direction=both&radio=r0").contains("secret for r0"))
    #expect(try rig.texts("direction=both&radio=all").contains("secret for r0"))
    #expect(try rig.ask("GET", "/v1/messages?radio=r7").status == 404)
    #expect(try rig.texts("direction=both&q=secret").isEmpty)
    #expect(try rig.texts("direction=both&q=secret&radio=all").count == 1)
    let radios = try rig.rows("/v1/radios")
    #expect(radios.map { $0["name"]?.string } == ["r0", "r1"] && radios.map { $0["held"]?.integer } == [3, 0])
    #expect(radios.map { $0["present"]?.bool } == [false, true])

    // The operator decides: r1 sends one message after all, one is cancelled, one continues to wait.
    #expect(try rig.post("/v1/outgoing/adopt?id=waits").status == 200)
    try rig.until("waits", is: "delivered")
    let mark = try #require(radios[1]["radio"]?.string)
    #expect(try rig.outgoing("waits")?["radio"]?.string == mark)
    #expect(try rig.post("/v1/outgoing/cancel?id=all").status == 200)
    #expect(try rig.outgoing("all")?["reason"]?.string == "cancelled")
    for text in ["for r1", "waits for r0"] {
      try rig.until("the hub to know whose \(text) is") {
        rig.hub.events.contains { $0.body["text"]?.string == text && $0.body["radio"]?.string == mark }
      }
    }

    // The first radio is back and continues with its messages.
    try pull(rig)
    rig.kill()
    try rig.start()
    try plug(0, rig)
    try rig.until("middle", is: "delivered")
    let back = try rig.texts()
    #expect(back.contains("secret for r0") && back.contains("in the middle") && !back.contains("for r1"), "\(back)")
    #expect(try rig.status()["messaging"]?["held"]?.integer == 0)
  }

  @Test func `a radio that gets another's private key counts as that radio, and sends its messages`() throws {
    let rig = try Rig(nodes: 3)
    try rig.startSynced()
    let key = try #require(try rig.post("/v1/radio/private-key", #"{"export":true}"#).json["private_key"]?.string)
    try pull(rig)
    try rig.send("r2", "by that key alone", id: "k")
    try plug(1, rig)
    #expect(try rig.outgoing("k")?["held_for"]?.string == "r0")
    #expect(try rig.post("/v1/radio/private-key", #"{"import":"\#(key)"}"#).status == 200)
    try rig.until("k", is: "delivered")
    #expect(try rig.rows("/v1/radios").count == 2)
    #expect(try rig.status()["messaging"]?["held"]?.integer == 0)
    #expect(!rig.hasSaid(key))
  }

  enum Fault: String, CaseIterable { case garbage, half, wrong, silence, unplug, reboot }

  private func play(_ fault: Fault, _ rig: Rig) throws {
    switch fault {
    case .garbage:
      var random = SeededRandom(seed: 7)
      let bytes: [UInt8] = (0..<500).map { _ in
        [0x3E, 0x3C, 0, UInt8.random(in: 0...255, using: &random)].randomElement(using: &random) ?? 0
      }
      rig.link.say(bytes)
    case .half: rig.link.halvesNext = true
    case .wrong:
      // This affects the sync's first question: a damaged message would be lost for good.
      rig.link.falsifiesNext = true
      let status = try rig.post("/v1/sync").status
      #expect(status < 300)
    case .silence:
      rig.link.isSilent = true
      rig.pass(.seconds(30))
      rig.link.isSilent = false
    case .unplug:
      rig.link.isPresent = false
      rig.pass(.seconds(10))
      rig.link.isPresent = true
    case .reboot: rig.radio.reboot()
    }
  }

  @Test func `a radio that misbehaves recovers without a restart of the gateway`() throws {
    let rig = try Rig { $0.contacts = 5 }
    try rig.startSynced()
    for fault in Fault.allCases {
      try play(fault, rig)
      rig.pass(.seconds(4))
      rig.air("dm r1 r0 after \(fault)")
      try rig.until("the message after \(fault)") { try rig.texts().contains("after \(fault)") }
    }
    try rig.untilSynced()
    // Random bytes may look like a message.
    func after() -> [String] { rig.hub.texts.filter { $0.hasPrefix("after ") } }
    try rig.until("all at the hub") { after().count == Fault.allCases.count }
    #expect(after() == Fault.allCases.map { "after \($0)" })
  }

  @Test func `a radio that another program takes again and again is left to it, and the log names the cause`() throws {
    let rig = try Rig { $0.age = .seconds(3600) }
    try rig.startSynced()
    // A radio on TCP closes its older connection. A phone's app, too, connects again whenever it was disconnected.
    func take() { rig.link.cut(.closedByPeer("memory")) }
    func connections() throws -> Int64 { try rig.status()["sync"]?["counters"]?["connections"]?.integer ?? 0 }
    take()
    try rig.until("the gateway to be back") { try connections() == 2 }
    take()
    // Whether the radio has told by then that it ran on is a matter of milliseconds.
    try rig.until("the gateway to be back again") { try connections() == 3 }
    take()
    try rig.until("the cause to be named") {
      try rig.status()["radio"]?["error"]?.string?.contains("another program connects") == true
    }
    #expect(try rig.status()["radio"]?["remedy"]?.string?.contains("[[proxy]]") == true)
    #expect(try rig.doctor().contains { $0.contains("[[proxy]]") })
    rig.pass(.seconds(5))
    #expect(try connections() == 3, "it waits, and does not fight")
    try rig.until("the gateway to have its radio again") { try rig.status()["radio"]?["state"]?.string == "up" }
    // Its queue was the other program's to read.
    try rig.until("the possible loss to be told") {
      rig.hub.events.contains { $0.kind == "radio_gap" && $0.body["taken"]?.bool == true }
    }
    #expect(rig.hasSaid("if another program was connected to it"))
    #expect(rig.hasSaid("if a bridge or the network dropped the link"), "nobody knows which")
  }
}
