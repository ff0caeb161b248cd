// SPDX-License-Identifier: MIT

import Testing

/// Restored older copies of databases, of a gateway and of its hub.
@Suite struct PutBackTests {
  /// A gateway and a hub that both have these messages.
  private func begun(_ count: Int) throws -> Rig {
    let rig = try Rig { $0.queueCapacity = 1000 }
    try rig.startSynced()
    try hear(count, stored: count, rig)
    try rig.until("all at the hub") { rig.hub.texts.count == count }
    return rig
  }

  private func hear(_ count: Int, stored: Int, _ rig: Rig) throws {
    // All texts differ, because equal texts at the same time are one message.
    for number in (stored - count)..<stored { rig.air("chan r1 0 message \(number) of \(stored)") }
    try rig.until("\(stored) in the store") { try rig.status()["store"]?["messages"]?.integer == Int64(stored) }
  }

  @Test func `a gateway's restored SD card loses no message that is heard from then on`() throws {
    let rig = try begun(10)
    let card = rig.generation
    rig.end()
    try rig.startSynced()
    try hear(5, stored: 15, rig)
    try rig.until("all at the hub") { rig.hub.texts.count == 15 }
    rig.end()
    try rig.putBack(card)
    rig.hub.mood = .unreachable
    try rig.startSynced()
    try hear(20, stored: 30, rig)
    rig.hub.mood = .well
    try rig.until("all at the hub") { rig.hub.texts.count >= 35 }
    rig.pass(.seconds(600))
    #expect(rig.hub.texts.count == 35 && Set(rig.hub.texts).count == 35, "each once: \(rig.hub.texts)")
    #expect(rig.hasSaid("is an older copy"))
    #expect(try rig.openAlerts().contains("journal_conflict"))
  }

  @Test func `a message of ours that waits in a copied card does not go out twice, unless somebody retries it`() throws
  {
    let rig = try begun(1)
    var heard: [String] = []
    rig.radios[1].onMessage = { message in
      switch message {
      case .contact(let message): heard.append(message.text.string)
      case .channel(let message): heard.append(message.text.string)
      case .datagram: break
      }
    }
    rig.link.isPresent = false
    try rig.send("r1", "to one", id: "one")
    try rig.send("Public", "to all", id: "all")
    let card = rig.generation
    rig.kill()
    rig.link.isPresent = true
    try rig.startSynced()
    try rig.until("one", is: "delivered")
    try rig.until("all", is: "sent")
    rig.pass(.seconds(30))
    rig.end()
    try rig.putBack(card)
    try rig.startSynced()
    for id in ["one", "all"] {
      try rig.until(id, is: "failed")
      #expect(try rig.outgoing(id)?["reason"]?.string == "before_restore")
    }
    try rig.send("r1", "of today", id: "new")
    try rig.until("new", is: "delivered")
    #expect(heard.sorted() == ["of today", "r0: to all", "to one"], "\(heard)")
    #expect(try rig.post("/v1/outgoing/retry?id=one", "").status == 200)
    try rig.until("one", is: "delivered")
    #expect(heard.count { $0 == "to one" } == 2, "it is wanted")
  }

  @Test func `a hub that was restored while a gateway was idle gets all events again`() throws {
    let rig = try begun(10)
    let kept = rig.hub.database
    try hear(50, stored: 60, rig)
    try rig.until("all at the hub") { rig.hub.texts.count == 60 }
    rig.hub.database = kept
    try hear(3, stored: 63, rig)
    try rig.until("all at the hub") { rig.hub.texts.count >= 63 }
    rig.pass(.seconds(600))
    #expect(rig.hub.texts.count == 63 && Set(rig.hub.texts).count == 63, "each once")
  }
}
