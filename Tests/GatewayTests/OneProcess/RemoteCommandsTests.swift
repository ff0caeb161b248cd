// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing

@testable import VirtualRadio

/// Who may run commands on the radio, and commands that come over the mesh.
@Suite struct RemoteCommandsTests {
  private func row(_ rig: Rig) throws -> JSONValue {
    try #require(rig.rows("/v1/contacts").first { $0["name"]?.string == "r1" })
  }

  private func contact(_ rig: Rig) -> Contact? { rig.radios[0].stored.contacts.first { $0.name.string == "r1" } }

  /// Another program changes the contact.
  private func change(_ rig: Rig, _ flags: UInt8) throws {
    let key = try row(rig)["key"]?.string ?? ""
    #expect(
      try rig.post("/v1/contacts/put", #"{"key":"\#(key)","name_hex":"7231","type":1,"flags":\#(flags)}"#).status == 200
    )
  }

  @Test func `a right that is granted here is shown, and not told as another program's doing`() throws {
    let rig = try Rig()
    try rig.startSynced()
    #expect(try row(rig)["may_command"] == nil)
    #expect(try rig.post("/v1/contacts/commands", #"{"contact":"r1","may_command":true}"#).status == 200)
    try rig.until("the right") { try row(rig)["may_command"]?.bool == true }
    #expect(contact(rig)?.flags == Contact.commandFlag)
    #expect(try rig.doctor().contains { $0.contains("may run any command on the radio: r1") })
    rig.pass(.seconds(5))
    #expect(try rig.openAlerts() == [])
    #expect(try rig.post("/v1/contacts/commands", #"{"contact":"r1","may_command":false}"#).status == 200)
    try rig.until("no right") { try row(rig)["may_command"] == nil }
    #expect(contact(rig)?.flags == 0)
  }

  @Test func `a right that is granted and taken away at once is nobody else's doing`() throws {
    let rig = try Rig()
    try rig.startSynced()
    for _ in 0..<5 {
      for word in ["true", "false"] {
        #expect(try rig.post("/v1/contacts/commands", #"{"contact":"r1","may_command":\#(word)}"#).status == 200)
      }
    }
    rig.pass(.seconds(30))
    #expect(try row(rig)["may_command"] == nil && contact(rig)?.flags == 0)
    let alerts = try rig.json("/v1/alerts")["alerts"]?.array ?? []
    #expect(!alerts.contains { $0["rule"]?.string == "remote_commands" }, "\(alerts)")
  }

  @Test func `a right that another program grants is told, until it is confirmed or taken away`() throws {
    let rig = try Rig()
    try rig.startSynced()
    try change(rig, Contact.commandFlag)
    try rig.until("the alert") { try rig.openAlerts() == ["remote_commands"] }
    #expect(try rig.doctor().contains { $0.contains("was not set here: r1") })
    try rig.restart()
    try rig.untilSynced()
    try rig.until("the alert after a restart") { try rig.openAlerts() == ["remote_commands"] }
    #expect(try rig.post("/v1/contacts/commands", #"{"contact":"r1","may_command":true}"#).status == 200)
    try rig.until("its end") { try rig.openAlerts() == [] }
    #expect(try rig.post("/v1/contacts/commands", #"{"contact":"r1"}"#).status == 200)
    try rig.until("no right") { try row(rig)["may_command"] == nil }
    try change(rig, Contact.commandFlag)
    try rig.until("a new alert") { try rig.openAlerts() == ["remote_commands"] }
    try change(rig, 0)
    try rig.until("its end") { try rig.openAlerts() == [] }
  }

  @Test func `a right does not come back with a contact that was removed`() throws {
    let rig = try Rig()
    try rig.startSynced()
    #expect(try rig.post("/v1/contacts/commands", #"{"contact":"r1","may_command":true}"#).status == 200)
    try rig.until("the right") { try row(rig)["may_command"]?.bool == true }
    #expect(try rig.post("/v1/contacts/remove?contact=r1").status == 200)
    try rig.until("it is gone") { try row(rig)["on_radio"]?.bool == false }
    #expect(try row(rig)["may_command"] == nil, "the radio has no such contact")
    #expect(try rig.post("/v1/contacts/add", #"{"contact":"r1"}"#).status == 200)
    try rig.until("it is back") { try row(rig)["on_radio"]?.bool == true }
    #expect(contact(rig)?.flags == 0)
    #expect(try row(rig)["may_command"] == nil)
  }

  @Test func `a remote command is no message of anybody`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("dm r1 r0 good morning")
    try rig.until("a message") { try rig.texts("direction=received").count == 1 }
    let sender = try #require(contact(rig)?.key.prefix)
    rig.radios[0].queue(
      .contact(
        ContactMessage(
          snr: nil, sender: sender, path: ReceivedPath(raw: 0xFF), textType: .cliCommand, senderTime: 1_795_000_500,
          text: "password hunter2")))
    try rig.until("the command") { try rig.texts("direction=received").count == 2 }
    let rows = try rig.rows("/v1/messages?direction=received")
    #expect(rows.map { $0["command"]?.bool } == [nil, true] && rows.map { $0["kind"]?.string } == ["direct", "cli"])
    #expect(rows[1]["conversation"] == nil)
    #expect(
      try rig.rows("/v1/conversations").filter { $0["conversation"]?.string?.hasPrefix("node:") ?? false }.count == 1)
    let events = try rig.rows("/v1/journal?limit=1000").filter { $0["kind"]?.string == "message" }
    #expect(events.last?["body"]?["command"]?.bool == true && events.last?["body"]?["text"] == nil)
  }

  @Test func `the log masks a remote command`() {
    let command = OutgoingText(
      type: .cliCommand, attempt: 0, time: 1, recipient: KeyPrefix(bytes: [1, 2, 3, 4, 5, 6])!, text: "password x")
    #expect(SecretMask.hex(Command.sendText(command).encode(), .toRadio).hasSuffix("··"))
    for snr in [nil, SNR(quarters: 4)] {
      let message = ContactMessage(
        snr: snr, sender: command.recipient, path: ReceivedPath(raw: 0), textType: .cliCommand, senderTime: 1,
        text: "password x")
      let shown = SecretMask.hex(Reply.message(.contact(message)).encode(), .fromRadio)
      #expect(shown.hasSuffix(String(repeating: "··", count: 10)))
    }
  }
}
