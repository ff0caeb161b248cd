// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import Timing

/// The radio's settings, and its table of contacts.
@Suite struct CareOfARadioTests {
  @Test func `the radio's settings change together or not at all, and the answer has the new ones`() throws {
    let rig = try Rig()
    try rig.startSynced()
    func settings() throws -> JSONValue? { try rig.json("/v1/radio")["settings"] }
    let set = try rig.post(
      "/v1/radio/set",
      #"{"name":"Hilltop","position":"47.3769,8.5417","preset":"hungary","power":14,"airtime-factor":2,"auto-add":"repeater,room","overwrite":"on","telemetry":"contacts","multi-acks":1,"auto-add-hops":3}"#
    )
    #expect(set.status == 200, "\(set)")
    let now = try settings()
    #expect(now?["name"]?.string == "Hilltop" && now?["position"]?.string == "47.3769,8.5417")
    #expect(now?["frequency"]?.number == 869.618 && now?["sf"]?.integer == 7 && now?["cr"]?.integer == 5)
    #expect(now?["path-hash-bytes"]?.integer == 2, "the preset's")
    #expect(now?["power"]?.integer == 14 && now?["airtime-factor"]?.number == 2)
    #expect(now?["auto-add"]?.string == "repeater,room" && now?["overwrite"]?.string == "on")
    #expect(now?["telemetry"]?.string == "contacts" && now?["multi-acks"]?.integer == 1, "one command sets both")
    #expect(try rig.json("/v1/radio")["stats"]?["presets"]?.array?.contains(.string("Hungary")) == true)
    #expect(try rig.status()["radio"]?["identity"]?["name"]?.string == "Hilltop", "the gateway knows, too")
    try rig.until("the hub to know") {
      rig.hub.events.contains { $0.kind == "radio" && $0.body["name"]?.string == "Hilltop" }
    }
    for wrong in [
      #""sf":13"#, #""power":50"#, #""name":"""#, #""colour":"blue""#, #""preset":"eu""#, #""position":"91,0""#,
      #""pin":12345"#, #""repeat":"yes""#, #""name":" \u200b""#, #""name":"a\nb""#, #""name":"a\u001b[2J""#,
      #""name":"a\u202eb""#, #""name":"⇄x""#, #""name":"a: b""#,
    ] {
      let name = wrong.contains("name") ? "" : #""name":"Other","#
      let answer = try rig.post("/v1/radio/set", "{\(name)\(wrong)}")
      #expect(answer.status != 200 && answer.json["error"]?.string?.isEmpty == false, "\(wrong)")
    }
    #expect(try settings()?["name"]?.string == "Hilltop", "nothing was sent")
    for body in [
      #"{"node":"r1","value":" "}"#, #"{"node":"r1","value":"\u200b\u2800"}"#, #"{"node":"r1","value":""}"#,
      #"{"node":"r1","value":"a\u202eb"}"#, #"{"node":"r1","value":"a\nb"}"#,
    ] {
      #expect(try rig.post("/v1/node/alias", body).status == 400, "it would hide or disturb the name: \(body)")
    }
    for name in [#"\u200b"#, #"a\u001b[2J"#] {
      let hostile = #"{"key":"\#(String(repeating: "5a", count: 32))","name":"\#(name)"}"#
      #expect(try rig.post("/v1/contacts/add", hostile).status == 400, "\(name)")
    }
    let presets = try rig.json("/v1/radio/presets")
    #expect(presets["settings"]?.array?.contains { $0["name"]?.string == "preset" } == true)
    #expect(presets["presets"]?.array?.contains { $0["name"]?.string == "EU/UK (Narrow)" } == true)
  }

  @Test func `a lost answer of the radio resets no setting, and makes no backup that lacks one`() throws {
    let rig = try Rig()
    try rig.startSynced()
    #expect(try rig.post("/v1/radio/set", #"{"auto-add":"repeater,room"}"#).status == 200)
    rig.link.swallows = { $0 == .getAutoAdd }
    let set = try rig.post("/v1/radio/set", #"{"overwrite":"on"}"#)
    #expect(set.status == 502 && set.json["error"]?.string?.contains("nothing was done") == true, "\(set)")
    #expect(try rig.ask("GET", "/v1/radio/backup").status != 200)
    rig.link.swallows = { _ in false }
    try rig.until("the settings, which are as before") {
      let now = try rig.json("/v1/radio")["settings"]
      return now?["auto-add"]?.string == "repeater,room" && now?["overwrite"]?.string == "off"
    }
  }

  @Test func `a text is measured for the longest name while the radio has not told its new one`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let text = String(repeating: "x", count: 130)
    func send() throws -> Int { try rig.post("/v1/send", ##"{"to":"#test","text":"\##(text)"}"##).status }
    #expect(try rig.post("/v1/channels/add", ##"{"channel":"#test"}"##).status == 200)
    try rig.until("a text") { try send() < 300 }
    var isSet = false
    rig.link.swallows = { command in
      if case .setAdvertName = command { isSet = true }
      if isSet, case .appStart = command { return true }
      return false
    }
    let set = try rig.post("/v1/radio/set", #"{"name":"Hilltop-Station-With-Long-Name"}"#)
    #expect(set.status == 502 && set.json["error"]?.string?.contains("it was set") == true, "\(set)")
    #expect(try send() >= 400, "the radio would cut it")
    rig.link.swallows = { _ in false }
    try rig.until("its name") {
      try rig.json("/v1/status")["radio"]?["identity"]?["name"]?.string == "Hilltop-Station-With-Long-Name"
    }
  }

  private func onRadio(_ rig: Rig) throws -> [String] {
    try rig.rows("/v1/contacts?on_radio=1").compactMap { $0["name"]?.string }
  }

  @Test
  func `in a nearly full contact table the oldest are evicted, stay stored, and return when written to`() throws {
    let rig = try Rig { ($0.maxContacts, $0.contacts) = (40, 35) }
    rig.configure("[contacts]\nevict = true\nmin_age_days = 0\nkeep_free = 15\ntypes = [\"repeater\", \"chat\"]")
    try rig.startSynced()
    let all = try rig.status()["store"]?["contacts"]?.integer ?? 0
    try rig.until("room to be made") { try onRadio(rig).count == 25 }
    #expect(try rig.status()["store"]?["contacts"]?.integer == all, "all are known still")
    #expect(rig.hasSaid("to make room"))
    let left = try #require(
      try rig.rows("/v1/contacts").first { $0["on_radio"]?.bool == false && $0["type"]?.string == "chat" })
    let (key, name) = (try #require(left["key"]?.string), try #require(left["name"]?.string))
    #expect(try rig.send(key, "are you there?") == 202)
    try rig.until("it to be back") { try onRadio(rig).contains(name) }
    try rig.until("room again") { try onRadio(rig).count == 25 }
    #expect(try onRadio(rig).contains(name), "the recipient of a message stays")
  }

  @Test func `contacts that the gateway needs stay, and an evicted node returns when it is queried`() throws {
    let rig = try Rig(nodes: 4) { ($0.maxContacts, $0.contacts) = (40, 30) }
    rig.configure("[contacts]\nevict = false")
    try rig.startSynced()
    try rig.until("all to be known") { try onRadio(rig).count == 33 }
    #expect(try rig.post("/v1/node/tags", #"{"node":"r1","value":["watch"]}"#).status == 200)
    rig.end()
    rig.configure("[contacts]\nmin_age_days = 0\nkeep_free = 38\n[[poll]]\nnode = \"r2\"\nevery_min = 10000")
    try rig.start()
    try rig.until("all others to leave") { try onRadio(rig).count == 3 }
    let left = try onRadio(rig)
    #expect(left.contains("r1") && left.contains("r2") && !left.contains("r3"), "\(left)")
    #expect(left.contains { $0.hasPrefix("Node 0") }, "a favourite; \(left)")
    let asked = try rig.post("/v1/node/telemetry", #"{"node":"r3"}"#)
    #expect(
      asked.status == 504 && asked.json["error"]?.string?.contains("r3 does not answer") == true,
      "it was asked, and denies what it is asked: \(asked)")
  }
}
