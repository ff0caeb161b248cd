// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Meshes whose repeaters forward only packets of a region.
@Suite struct RegionsOfAMeshTests {
  private func say(_ text: String, _ rig: Rig) throws {
    try rig.send("Public", text, id: text)
    try rig.until(text, is: "sent")
    rig.pass(.seconds(30))
  }

  private func region(_ name: String?, _ rig: Rig) throws -> JSONValue {
    let region = name.map { #","region":"\#($0)""# } ?? ""
    let answer = try rig.post("/v1/channels/region", #"{"channel":"Public"\#(region)}"#)
    #expect(answer.status == 200, "\(answer)")
    return answer.json
  }

  @Test func `messages to a region pass repeaters that refuse messages without a region`() throws {
    let rig = try Rig(isKnown: false, repeaters: 1, regions: ["ottawa", "gatineau"], isFar: true)
    try rig.startSynced()
    /// The number of messages that have reached r1, which hears us only by the repeater.
    var reached: Int { rig.radios[1].queuedMessages }
    try say("nobody hears this", rig)
    let set = try rig.post("/v1/radio/set", ##"{"flood-scope":"#ottawa"}"##)
    #expect(set.json["settings"]?["flood-scope"]?.string == "ottawa", "\(set)")
    try say("by the radio's default", rig)
    #expect(reached == 1)
    #expect(try rig.post("/v1/radio/set", #"{"flood-scope":"none"}"#).status == 200)
    #expect(try region("gatineau", rig)["region"]?.string == "gatineau")
    try say("by the channel's", rig)
    #expect(reached == 2)
    _ = try region(nil, rig)
    try say("the one before is not in force any more", rig)
    _ = try region("ottawa", rig)
    try say("the last", rig)
    #expect(reached == 3, "of five")
    #expect(try rig.outgoing().count { $0["heard"]?.integer == 1 } == 3)
  }

  @Test func `firmware that cannot send to a region sends nothing, and the message has the reason`() throws {
    let rig = try Rig(isKnown: false) { $0.knowsRegions = false }
    try rig.startSynced()
    _ = try region("ottawa", rig)
    try rig.send("Public", "for ottawa alone", id: "o")
    try rig.until("o", is: "failed")
    #expect(try rig.outgoing("o")?["reason"]?.string == "region_unknown")
    _ = try region(nil, rig)
    try say("for all", rig)
    #expect(rig.radios[1].queuedMessages == 1, "of two")
  }
}
