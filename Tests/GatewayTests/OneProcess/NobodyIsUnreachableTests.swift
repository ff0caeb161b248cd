// SPDX-License-Identifier: MIT

import Companion
import Foundation
import JSON
import Testing
import Timing

@testable import Gateway
@testable import Messaging
@testable import VirtualRadio

/// Recipients that are away for a while, and nodes that the radio does not have.
@Suite struct NobodyIsUnreachableTests {
  private func isOnRadio(_ name: String, _ rig: Rig) throws -> Bool {
    try rig.rows("/v1/contacts?on_radio=1").contains { $0["name"]?.string == name }
  }

  private func remove(_ name: String, _ rig: Rig) throws {
    #expect(try rig.post("/v1/contacts/remove?contact=\(name)").status == 200)
    try rig.until("\(name) to be gone") { try !isOnRadio(name, rig) }
  }

  @Test func `a message to a node that is away is held, told to all, and delivered when the node is heard`() throws {
    let rig = try Rig(repeaters: 0)
    rig.configure("")
    try rig.startSynced()
    rig.air("part r0 r1")
    for id in ["one", "two", "three"] { try rig.send("r1", "text \(id)", id: id) }
    for id in ["one", "two", "three"] { try rig.until(id, is: "held_for_recipient") }
    rig.pass(.seconds(5 * 3600))
    let row = try #require(try rig.outgoing("two"))
    let next = try #require(row["next_attempt_at"]?.integer)
    #expect(row["state"]?.string == "held_for_recipient" && row["ended"]?.bool == false)
    #expect(next > rig.loop.wallClock.milliseconds && next < rig.loop.wallClock.milliseconds + 4_400_000)
    #expect(try rig.status()["messaging"]?["held_for_recipients"]?.integer == 3)
    rig.air("join r0 r1")
    rig.air("dm r1 r0 I am back")
    let back = rig.loop.now
    for id in ["one", "two", "three"] { try rig.until(id, is: "delivered") }
    #expect(rig.loop.now - back < .seconds(30), "\(rig.loop.now - back)")
    #expect(try rig.status()["messaging"]?["held_for_recipients"]?.integer == 0)
    let ends = try ["one", "two", "three"].map { try rig.outgoing($0)?["ended_at"]?.integer ?? 0 }
    #expect(ends == ends.sorted() && Set(ends).count == 3, "in their order: \(ends)")
  }

  @Test func `a message that is never acknowledged fails when its lifetime ends, and says that nobody knows`() throws {
    let rig = try Rig()
    rig.configure("[messaging]\nlifetime_h = 2")
    try rig.startSynced()
    rig.air("part r0 r1")
    try rig.send("r1", "lost", id: "lost")
    try rig.until("lost", is: "held_for_recipient")
    rig.pass(.seconds(7000))
    #expect(try rig.outgoing("lost")?["state"]?.string == "held_for_recipient")
    rig.pass(.seconds(300))
    let row = try #require(try rig.outgoing("lost"))
    #expect(row["state"]?.string == "failed" && row["reason"]?.string == "no_acknowledgement")
    // Pauses grow, but are no longer than half of the lifetime's rest, and two minutes at least.
    #expect((18...30).contains(row["attempts"]?.integer ?? 0), "\(row)")
  }

  @Test func `a node that the radio does not have is let in when it writes, and read when it writes again`() throws {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    rig.air("dm r1 r0 first")
    try rig.until("r1 to be let in") { try isOnRadio("r1", rig) }
    #expect(try !rig.texts().contains("first"))
    rig.air("dm r1 r0 second")
    try rig.until("the text") { try rig.texts().contains("second") }
    rig.pass(.seconds(600))
    #expect(try isOnRadio("r1", rig), "it has written")
  }

  @Test func `a node that does not write again is taken out, and at most four are let in within an hour`() throws {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    var added = 0
    rig.link.onCommand = { if case .addUpdateContact = $0 { added += 1 } }
    for number in 1...10 {
      rig.air("dm r1 r0 text \(number)")
      rig.pass(.seconds(10))
      #expect(try isOnRadio("r1", rig) == (number <= 4), "\(number)")
      rig.pass(.seconds(290))
      #expect(try !isOnRadio("r1", rig), "\(number)")
    }
    #expect(added == 4)
  }

  @Test func `many texts of invented senders hide no text that could not be read`() throws {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    func hash(_ name: String) throws -> UInt8 {
      let row = try rig.rows("/v1/contacts").first { $0["name"]?.string == name }
      return try #require(row?["key"]?.string.flatMap { Hex.bytes($0)?.first })
    }
    let (own, sender) = (rig.radio.stored.identity.publicKey.bytes[0], try hash("r1"))
    // Known here, and not to the radio.
    let others = (1...250).map { UInt8($0) }.filter { $0 != own && $0 != sender }.prefix(24)
    for other in others {
      _ = try strangers(1, other, rig)
      let cipher = [UInt8](repeating: 7, count: 16)
      let envelope = Envelope(destination: own, source: other, mac: [other, 1], cipher: cipher)
      let packet = Packet(
        route: .flood, type: .text, pathLength: PathLength(raw: 0), path: [], payload: envelope.encode())
      rig.radio.push(.logRxData(snr: SNR(quarters: 4), rssi: -90, packet: packet.encode()))
      rig.pass(.milliseconds(100))
    }
    rig.air("dm r1 r0 an honest text")
    try rig.until("it to be told", within: .seconds(1800)) {
      let told = try rig.status()["messaging"]?["unread_senders"]?.array?.compactMap(\.string) ?? []
      return told.contains(Hex.string([sender]))
    }
  }

  /// Adds nodes to the store, and not to the radio, whose keys begin with this byte.
  private func strangers(_ count: Int, _ hash: UInt8, _ rig: Rig) throws -> [String] {
    try (1...count).map { number in
      let name = "stranger-\(number)-\(hash)"
      let key = String(format: "%02x", hash) + String(repeating: String(format: "%02x", number), count: 31)
      #expect(try rig.post("/v1/contacts/add", #"{"key":"\#(key)","name":"\#(name)"}"#).status == 200)
      try remove(name, rig)
      return name
    }
  }

  @Test func `nobody is let in for a text that the radio has read, also if its sender repeats it`() throws {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    let hash = rig.radios[1].key.nodeHash
    _ = try strangers(3, hash, rig)
    var added = 0
    rig.link.onCommand = { if case .addUpdateContact = $0 { added += 1 } }
    for attempt in 0...3 as ClosedRange<UInt8> {
      let text = OutgoingText(attempt: attempt, time: 1_795_000_500, recipient: rig.radio.key.prefix, text: "the same")
      rig.radios[1].received(Command.sendText(text).encode())
      rig.pass(.seconds(20))
    }
    #expect(try rig.texts().filter { $0 == "the same" }.count == 1 && added == 0)
  }

  @Test func `of many nodes with the sender's byte each has its turn, and those beside the writer are not in vain`()
    throws
  {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    let names = try strangers(7, rig.radios[1].key.nodeHash, rig)
    try remove("r1", rig)
    var seen: Set<String> = []
    for number in 1...3 {
      rig.air("dm r1 r0 text \(number)")
      rig.pass(.seconds(10))
      rig.air("dm r1 r0 text \(number) again")
      rig.pass(.seconds(10))
      for name in names where try isOnRadio(name, rig) { seen.insert(name) }
      rig.pass(.seconds(3800))
    }
    #expect(try isOnRadio("r1", rig) && rig.texts().contains("text 3"), "\(seen)")
    #expect(try names.allSatisfy { try !isOnRadio($0, rig) })
  }

  @Test func `a node that was let in is taken out after a restart, too`() throws {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    rig.air("dm r1 r0 first")
    try rig.until("r1 to be let in") { try isOnRadio("r1", rig) }
    rig.kill()
    try rig.startSynced()
    try rig.until("r1 to be taken out") { try !isOnRadio("r1", rig) }
  }

  @Test func `nodes that were let in in vain count after a restart, too`() throws {
    let rig = try Rig()
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    for number in 1...4 {
      rig.air("dm r1 r0 text \(number)")
      rig.pass(.seconds(10))
      #expect(try isOnRadio("r1", rig), "\(number)")
      rig.pass(.seconds(290))
    }
    rig.kill()
    try rig.startSynced()
    rig.air("dm r1 r0 too many")
    rig.pass(.seconds(10))
    #expect(try !isOnRadio("r1", rig))
    rig.pass(.seconds(3600))
    rig.air("dm r1 r0 after an hour")
    rig.pass(.seconds(10))
    #expect(try isOnRadio("r1", rig))
  }

  @Test func `each radio has its own hour for nodes that are let in in vain`() throws {
    let rig = try Rig(nodes: 3)
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    /// Whether r1 is let in when it writes to the radio of this number, which is plugged.
    func isLetIn(_ number: Int, _ text: String) throws -> Bool {
      rig.air("dm r1 r\(number) \(text)")
      rig.pass(.seconds(10))
      let isThere = try isOnRadio("r1", rig)
      rig.pass(.seconds(290))
      return isThere
    }
    func plug(_ number: Int) throws {
      rig.plug(number)
      try rig.until("r\(number) to be synced") {
        let status = try rig.status()
        return status["radio"]?["identity"]?["name"]?.string == "r\(number)"
          && status["sync"]?["state"]?.string == "synced" && status["radio"]?["state"]?.string == "up"
      }
    }
    for number in 1...5 { #expect(try isLetIn(0, "text \(number)") == (number < 5)) }
    try plug(2)
    try remove("r1", rig)
    #expect(try isLetIn(2, "to another radio"))
    try plug(0)
    #expect(try !isLetIn(0, "too many"))
  }

  @Test func `a full table is told when a node knocks that has no place`() throws {
    let rig = try Rig { ($0.maxContacts, $0.contacts) = (20, 10) }
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try remove("r1", rig)
    for number in 0..<20 {
      let key = String(repeating: String(format: "%02x", 0x90 + number), count: 32)
      _ = try rig.post("/v1/contacts/add", #"{"key":"\#(key)","name":"filler \#(number)"}"#)
    }
    rig.air("dm r1 r0 first")
    rig.pass(.seconds(120))
    let alerts = try rig.json("/v1/alerts")["alerts"]?.array ?? []
    #expect(alerts.contains { $0["rule"]?.string == "contacts_full" }, "\(alerts)")
    #expect(try !isOnRadio("r1", rig))
  }

  @Test func `a favourite is one for the radio, too`() throws {
    let rig = try Rig()
    rig.configure("")
    try rig.startSynced()
    func isFavourite() throws -> Bool? {
      try rig.rows("/v1/contacts").first { $0["name"]?.string == "r1" }?["favourite"]?.bool
    }
    #expect(try isFavourite() == false)
    for on in [true, false] {
      #expect(try rig.post("/v1/contacts/favourite", #"{"contact":"r1","favourite":\#(on)}"#).status == 200)
      try rig.until("the mark") { try isFavourite() == on }
    }
    #expect(try rig.post("/v1/contacts/favourite", #"{"contact":"nobody","favourite":true}"#).status == 404)
  }
}
