// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import Timing
import VirtualRadio

@testable import Gateway

/// A radio writes its contacts seconds after a change, and may lose its power before.
@Suite struct LostContactsTests {
  private let key = String(repeating: "5a", count: 32)

  private func isOnRadio(_ rig: Rig, _ other: String? = nil) throws -> Bool {
    try rig.rows("/v1/contacts").contains { $0["key"]?.string == other ?? key && $0["on_radio"]?.bool == true }
  }

  /// The radio loses its power.
  private func cut(_ rig: Rig) throws {
    rig.radio.reboot()
    rig.link.cut()
    try rig.until("the link to be lost") { rig.daemon?.synchronizer.state != .synced }
    try rig.untilSynced()
  }

  @Test(arguments: [false, true])
  func `a contact that the radio lost with its power is there again, and the log says so once`(
    _ isKilled: Bool
  ) throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.pass(.seconds(60))
    #expect(try rig.post("/v1/contacts/add", #"{"key":"\#(key)","name":"Birch"}"#).status == 200)
    rig.pass(.seconds(1))
    #expect(try isOnRadio(rig))
    if isKilled {
      rig.radio.reboot()
      rig.kill()
      try rig.startSynced()
    } else {
      try cut(rig)
    }
    #expect(try isOnRadio(rig))
    rig.pass(.seconds(30))
    try cut(rig)
    #expect(try isOnRadio(rig))
    #expect(rig.story.count { $0.contains("put back: Birch") } == 1, "\(rig.story)")
  }

  @Test func `contacts that the radio lacks after a restart are told, and come back for a message`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.pass(.seconds(60))
    let node = rig.radios[1].key
    // Nobody tells the gateway, as if the file were damaged.
    rig.radio.received(Command.removeContact(node).encode())
    rig.pass(.seconds(10))
    try cut(rig)
    #expect(try !isOnRadio(rig, node.hex))
    #expect(rig.hasSaid("no longer has contacts (1): r1"), "\(rig.story)")
    #expect(try rig.send("r1", "are you there?") == 202)
    try rig.until("it to be back") { try isOnRadio(rig, node.hex) }
  }

  @Test func `the radio itself is no contact`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let own = rig.radio.key.hex
    #expect(try rig.post("/v1/contacts/add", #"{"key":"\#(own)","name":"Me"}"#).status == 400)
    #expect(try rig.post("/v1/contacts/put", #"{"key":"\#(own)","name_hex":"4d65"}"#).status == 400)
    #expect(try !rig.rows("/v1/contacts").contains { $0["key"]?.string == own })
  }
}
