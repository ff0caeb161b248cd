// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import Timing

@testable import Gateway
@testable import Messaging
@testable import VirtualRadio

/// A contact table that has no place for everybody, although everybody is active.
@Suite struct FullTablesTests {
  private let rig: Rig
  private let others = (1...8).map { "r\($0)" }

  init() throws {
    rig = try Rig(nodes: 9) { $0.maxContacts = 4 }
    rig.configure("[contacts]\nkeep_free = 1")
    try rig.startSynced()
    // The gateway hears those for whom the radio has no place.
    // `try?`: this task is never cancelled.
    _ = rig.loop.begin { [mesh = rig.mesh] in try? await mesh.advertiseAll() }
    rig.pass(.seconds(60))
  }

  private func there() throws -> [String] { try rig.rows("/v1/contacts?on_radio=1").compactMap { $0["name"]?.string } }

  @Test func `everybody is written to, and everybody is read, in turns`() throws {
    #expect(try there().count == 4)
    for name in others { try rig.send(name, "to \(name)", id: name) }
    for name in others { try rig.until(name, is: "delivered") }
    #expect(rig.radio.stored.contacts.count <= 4)
    for name in others {
      rig.pass(.seconds(150))
      // The second attempt.
      for attempt in 1...2 {
        rig.air("dm \(name) r0 \(attempt) from \(name)")
        rig.pass(.seconds(10))
      }
      #expect(try rig.texts().contains("2 from \(name)"), "\(name)")
    }
    #expect(try rig.status()["messaging"]?["unread"]?.integer == 0)
    #expect(rig.radio.stored.contacts.count <= 4)
  }

  @Test func `nobody leaves who has not acknowledged yet, and the others wait for their turn`() throws {
    let first = try there()
    for name in first { rig.air("part r0 \(name)") }
    for name in first { try rig.send(name, "to \(name)", id: name) }
    rig.pass(.seconds(2))
    let second = others.filter { !first.contains($0) }
    for name in second { try rig.send(name, "to \(name)", id: name) }
    var (removed, early) = (0, 0)
    rig.link.onCommand = { [unowned rig] in
      guard case .removeContact(let key) = $0 else { return }
      removed += 1
      if rig.daemon?.messaging.messenger.recipients.underWay.contains(key) ?? true { early += 1 }
    }
    try rig.until("one to wait") { try second.contains { try rig.outgoing($0)?["waits_for"]?.string == "place" } }
    for name in second { try rig.until(name, is: "delivered") }
    for name in first { rig.air("join r0 \(name)") }
    for name in first { try rig.until(name, is: "delivered") }
    #expect(removed > 0 && early == 0)
    #expect(rig.radio.stored.contacts.count <= 4)
  }

  @Test func `if all are favourites, a message is refused, with words that say what to do`() throws {
    for name in try there() {
      #expect(try rig.post("/v1/contacts/favourite", #"{"contact":"\#(name)","favourite":true}"#).status == 200)
    }
    try rig.until("the marks") { try rig.rows("/v1/contacts?on_radio=1").allSatisfy { $0["favourite"]?.bool == true } }
    let there = try there()
    let other = try #require(others.first { !there.contains($0) })
    let answer = try rig.post("/v1/send", #"{"to":"\#(other)","text":"hello"}"#)
    #expect(answer.status == 409 && answer.json["code"]?.string == "not_on_radio")
    #expect(answer.json["error"]?.string?.contains("meshpost contact favourite NAME off") == true, "\(answer.json)")
  }

  @Test func `a text of a node that gets no place is told in the status, by the alert and as an event`() throws {
    let there = try there()
    let other = try #require(others.first { !there.contains($0) })
    rig.reload("[contacts]\nevict = false")
    rig.air("dm \(other) r0 first")
    rig.pass(.seconds(300))
    let hash = Hex.string([rig.radios[Int(other.dropFirst()) ?? 0].key.nodeHash])
    let messaging = try rig.status()["messaging"]
    #expect(messaging?["unread"]?.integer == 1 && messaging?["unread_senders"]?.array?.map(\.string) == [hash])
    let alert = try rig.json("/v1/alerts")["alerts"]?.array?.first { $0["rule"]?.string == "contacts_full" }
    #expect(alert?["text"]?.string?.contains("keys begin with \(hash)") == true, "\(String(describing: alert))")
    try rig.until("the event") {
      rig.hub.events.contains {
        $0.kind == "radio_gap" && $0.body["unread"]?.integer == 1 && $0.body["senders"]?.array?.first?.string == hash
      }
    }
  }

  @Test func `a recipient that an app has removed is put back for the message that waits`() throws {
    let name = try #require(try there().first)
    let place = Int(name.dropFirst()) ?? 0
    rig.air("part r0 \(name)")
    try rig.send(name, "it waits", id: "held")
    try rig.until("held", is: "held_for_recipient")
    rig.radio.received(Command.removeContact(rig.radios[place].key).encode())
    rig.air("join r0 \(name)")
    try rig.until("held", is: "delivered")
    #expect(try there().contains(name))
  }
}
