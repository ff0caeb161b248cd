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
    #expect(try rig.outgoing("by the channel's")?["region"]?.string == "gatineau", "it would go out again there")
    #expect(try region("none", rig)["region"]?.string == "*" && region("#none", rig)["region"]?.string == "none")
    _ = try region(nil, rig)
    try say("the one before is not in force any more", rig)
    _ = try region("ottawa", rig)
    try say("the last", rig)
    #expect(reached == 3, "of five")
    #expect(try rig.outgoing().count { $0["heard"]?.integer == 1 } == 3)
  }

  @Test func `firmware that cannot send to a region sends nothing, and the message has the reason`() throws {
    let rig = try Rig(isKnown: false) { $0.firmware = .v1_9 }
    try rig.startSynced()
    _ = try region("ottawa", rig)
    try rig.send("Public", "for ottawa alone", id: "o")
    try rig.until("o", is: "failed")
    #expect(try rig.outgoing("o")?["reason"]?.string == "region_unknown")
    _ = try region(nil, rig)
    try say("for all", rig)
    #expect(rig.radios[1].queuedMessages == 1, "of two")
  }

  @Test func `a hashtag channel is joined by a name without blanks`() throws {
    let rig = try Rig()
    try rig.startSynced()
    for name in ["#", "# ", "#sp ace", "#test "] {
      let refused = try rig.post("/v1/channels/add", #"{"channel":"\#(name)"}"#)
      #expect(refused.status == 400, "\(refused)")
      let words = "expected a name without blanks after the #, found \"\(name)\""
      #expect(refused.json["error"]?.string == words, "\(refused)")
    }
    for name in [#"#\u200b"#, #"#\u3164"#, #"#\u0007"#, #"#a\u202eb"#] {
      let refused = try rig.post("/v1/channels/add", #"{"channel":"\#(name)"}"#)
      #expect(refused.status == 400, "\(refused)")
    }
    let secret = "000102030405060708090a0b0c0d0e0f"
    for name in [#"a\nb"#, #"\u001b[2J"#, "#"] {
      let refused = try rig.post("/v1/channels/add", #"{"channel":"\#(name)","secret":"\#(secret)"}"#)
      #expect(refused.status == 400, "\(refused)")
    }
    let restored = try rig.post("/v1/channels/put", #"{"slot":2,"name_hex":"611b62","secret":"\#(secret)"}"#)
    #expect(restored.status == 400, "\(restored)")
    let names = try rig.rows("/v1/channels").compactMap { $0["name"]?.string }
    #expect(names == ["Public"], "\(names)")
  }

  @Test func `a link's region is kept with the channel, and a backup restores regions`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let (secret, key) = ("000102030405060708090a0b0c0d0e0f", "0f0e0d0c0b0a09080706050403020100")
    let link = "meshcore://channel/add?name=Hill&secret=\(secret)&region_scope=ottawa"
    func add(_ channel: String, _ more: String = "") throws -> (status: Int, json: JSONValue) {
      try rig.post("/v1/channels/add", #"{"channel":"\#(channel)"\#(more)}"#)
    }
    func regionOf(_ channel: String) throws -> String? {
      try rig.rows("/v1/channels").first { $0["name"]?.string == channel }?["region"]?.string
    }
    func set(_ settings: String) throws -> Int { try rig.post("/v1/radio/set", "{\(settings)}").status }
    #expect(try add(link).json["region"]?.string == "ottawa" && regionOf("Hill") == "ottawa")
    #expect(try add(link + "%20x").status == 400, "that is no region's name")
    #expect(try add("Club", #","secret":"\#(key)","region":"*""#).json["region"]?.string == "*")
    #expect(try regionOf("Club") == "*")

    #expect(try set(#""flood-scope":"default""#) == 400, "that is what is set here")
    #expect(try set(#""flood-scope":"$ours""#) == 400, "its key does not follow from its name")
    #expect(try set(#""flood-scope-key":"\#(secret)""#) == 400, "of which region?")
    #expect(try set(#""flood-scope":"ottawa","flood-scope-key":"\#(secret)""#) == 400, "its key follows from its name")
    #expect(try set(#""flood-scope":"$ours","flood-scope-key":"\#(secret)""#) == 200)
    #expect(try !rig.json("/v1/radio").text.contains(secret))
    let backup = try rig.rows("/v1/radio/backup")
    #expect(backup.first?["settings"]?.text.contains(secret) == true)
    #expect(try set(#""flood-scope":"none""#) == 200)
    for channel in ["Hill", "Club"] { #expect(try rig.post("/v1/channels/remove?channel=\(channel)").status == 200) }
    #expect(try add("Hill", #","secret":"\#(secret)""#).status == 200)
    #expect(try regionOf("Hill") == nil, "who leaves a channel leaves its region, too")
    for row in backup {
      switch row["kind"]?.string {
      case "radio": #expect(try rig.post("/v1/radio/set", row["settings"]?.text ?? "").status == 200)
      case "channel": #expect(try rig.post("/v1/channels/put", row.text).status == 200)
      default: continue
      }
    }
    #expect(try regionOf("Hill") == "ottawa" && regionOf("Club") == "*")
    #expect(try rig.json("/v1/radio")["settings"]?["flood-scope"]?.string == "$ours")
  }
}
