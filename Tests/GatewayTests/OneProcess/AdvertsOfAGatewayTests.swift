// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Radios that know each other only by adverts, as with real firmware.
@Suite struct AdvertsOfAGatewayTests {
  private func advert(_ rig: Rig) throws -> JSONValue? { try rig.status()["radio"]?["advert"] }

  private func hears(_ name: String, _ rig: Rig) throws {
    rig.air("advert \(name)")
    try rig.until("\(name) to be heard") { try rig.rows("/v1/contacts").contains { $0["name"]?.string == name } }
  }

  @Test func `a radio that was never advertised is reported, and one advert makes it known`() throws {
    let rig = try Rig(isKnown: false)
    rig.configure("[messaging]\nattempts = 1")
    try rig.startSynced()
    #expect(try advert(rig)?["at"] == nil)
    #expect(try rig.doctor().contains { $0.contains("meshpost radio advert") })
    try hears("r1", rig)
    try rig.send("r1", "who am I?", id: "lost")
    try rig.until("lost", is: "held_for_recipient")
    #expect(try rig.post("/v1/radio/advert", "{}").json["flood"]?.bool == false)
    #expect(try rig.post("/v1/outgoing/retry?id=lost").status == 200)
    try rig.until("lost", is: "delivered")
    rig.air("dm r1 r0 now I know you")
    try rig.until("the answer") { try rig.texts().contains("now I know you") }
    let sent = try advert(rig)
    #expect(sent?["at"]?.integer != nil && sent?["flood"]?.bool == false && sent?["current"]?.bool == true)
    #expect(try !rig.doctor().contains { $0.contains("meshpost radio advert") })

    #expect(try rig.post("/v1/radio/set", #"{"name":"Hilltop"}"#).status == 200)
    #expect(try advert(rig)?["current"]?.bool == false, "others know it under its old name")
    #expect(try rig.post("/v1/radio/advert", #"{"flood":true}"#).status == 200)
    #expect(try advert(rig)?["current"]?.bool == true)
    #expect(try advert(rig)?["flood"]?.bool == true)
  }

  @Test func `if configured, a new radio is advertised once, and not again at a restart`() throws {
    let rig = try Rig(isKnown: false)
    rig.edit = { $0.replacing("[radio]\n", with: "[radio]\nadvert_when_new = true\nadvert_every_h = 24\n") }
    try rig.start()
    try rig.until("the advert") { rig.hasSaid("advertised to its direct neighbours") }
    try hears("r1", rig)
    try rig.send("r1", "you know me", id: "k")
    try rig.until("k", is: "delivered")
    let first = try #require(try advert(rig)?["at"]?.integer)
    rig.kill()
    let line = rig.story.count
    try rig.startSynced()
    rig.pass(.seconds(1800))
    #expect(try advert(rig)?["at"]?.integer == first && !rig.hasSaid("advertised", from: line))
    #expect(try rig.doctor().contains { $0.contains("\"advert\"") && $0.contains("within a day") })
    rig.pass(.seconds(30 * 3600))
    #expect(try advert(rig)?["at"]?.integer ?? 0 > first, "a day later it is time again")
  }
}
