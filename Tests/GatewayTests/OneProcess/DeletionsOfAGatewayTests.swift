// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Messages that an operator deletes at a whole gateway.
@Suite struct DeletionsOfAGatewayTests {
  private func delete(_ body: String, _ rig: Rig) throws -> (status: Int, json: JSONValue) {
    try rig.post("/v1/messages/delete", body)
  }

  private func id(_ text: String, _ rig: Rig) throws -> Int64 {
    let row = try rig.rows("/v1/messages?direction=both").first { $0["text"]?.string == text }
    return try #require(row?["id"]?.integer)
  }

  @Test func `a hub is told of what it has, and gets what it lacks as deleted`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let epoch = try rig.status()["epoch"]?.string
    rig.air("chan r1 0 had")
    try rig.until("the hub to have it") { rig.hub.texts == ["had"] }
    let stored = try #require(rig.hub.events.last { $0.kind == "message" })
    rig.hub.mood = .unreachable
    rig.air("chan r1 0 never told")
    try rig.until("the second") { try rig.texts().count == 2 }
    let ids = (try id("had", rig), try id("never told", rig))
    #expect(try delete(#"{"messages":[\#(ids.0)],"count":true}"#, rig).json["received"]?.integer == 1)
    #expect(try rig.texts().count == 2)
    let answer = try delete(#"{"messages":[\#(ids.0),\#(ids.1)]}"#, rig)
    #expect(answer.status == 200 && answer.json["received"]?.integer == 2, "\(answer)")
    #expect(try rig.texts().isEmpty)
    #expect(try delete(#"{"messages":[\#(ids.0)]}"#, rig).status == 404)
    try rig.until("the rest to be done") { try rig.status()["store"]?["deleting"] == nil }
    try rig.restart()
    try rig.untilSynced()

    // The newest event that the hub has is one of those: its content is gone here, and that is no other history.
    rig.hub.mood = .well
    try rig.until("the hub to be told") { rig.hub.events.contains { $0.body["events"] != nil } }
    let told = rig.hub.events.filter { $0.kind == "deletion" }
    #expect(told.count == 2 && told[0].body["deleted"]?.bool == true)
    let named = told[1].body["events"]?.array ?? []
    #expect(named.map { $0["seq"]?.integer } == [stored.seq, told[0].seq])
    #expect(named.map { $0["id"]?.integer } == [ids.0, ids.1])
    #expect(try rig.status()["epoch"]?.string == epoch)
    #expect(rig.hub.texts == ["had"] && !rig.hub.events.contains { $0.kind == "gap" })
  }

  @Test func `a conversation is deleted in the background, and its list, search and queue are as without it`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("chan r1 0 one")
    rig.air("dm r1 r0 kept")
    try rig.send("Public", "ours", id: "ours")
    try rig.until("ours", is: "sent")
    try rig.until("all") { try rig.texts("direction=both").count == 3 }
    #expect(try delete(#"{"conversation":"nosuch"}"#, rig).status == 404)
    #expect(try delete("{}", rig).status == 400 && delete(#"{"messages":[1],"before":1}"#, rig).status == 400)
    let some = try delete(#"{"conversation":"Public","before":1}"#, rig).json
    #expect(some["received"]?.integer == 0 && some["sent"]?.integer == 0)
    #expect(try delete(#"{"conversation":"channel:0000000000000000"}"#, rig).status == 404)
    #expect(try delete(#"{"conversation":"Public","beffore":1}"#, rig).status == 400)
    #expect(try rig.post("/v1/documents", #"{"key":"x","valeu":1}"#).status == 400)
    // Neither the beginning of a name, nor the name in another case, which may be another channel's.
    for text in ["pub", "Pub", "public", "8b"] {
      let refused = try delete(#"{"conversation":"\#(text)"}"#, rig)
      #expect(refused.status == 400 || text == "8b" && refused.status == 404, "\(refused)")
      if text != "8b" {
        #expect(refused.json["error"]?.string?.contains("would be Public (channel 0 ") == true, "\(refused)")
      }
    }
    #expect(try rig.texts("direction=both").count == 3)
    let all = try delete(#"{"conversation":"Public"}"#, rig).json
    #expect(all["name"]?.string == "Public" && all["conversation"]?.string?.hasPrefix("channel:") == true)
    #expect(all["received"]?.integer == 1 && all["sent"]?.integer == 1 && all["waiting"]?.integer == 0)
    try rig.until("it to be gone") { try rig.status()["store"]?["deleting"] == nil }
    #expect(try rig.texts("direction=both") == ["kept"])
    #expect(try rig.rows("/v1/conversations").filter { $0["newest"] != nil }.count == 1)
    #expect(try rig.texts("direction=both&q=one").isEmpty && rig.texts("direction=both&q=ours").isEmpty)
    #expect(try rig.rows("/v1/outgoing").isEmpty)
    #expect(try rig.post("/v1/outgoing/retry?id=ours").status == 404)
    #expect(try rig.status()["store"]?["messages"]?.integer == 1)
    // The same request again sends nothing.
    #expect(try rig.post("/v1/send", #"{"to":"Public","text":"ours","id":"ours"}"#).status < 500)
    rig.pass(.seconds(60))
    #expect(try rig.texts("direction=both") == ["kept"])
  }

  @Test func `a number that is a sent message's id, too, is deleted only with its direction`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("chan r1 0 received one")
    try rig.until("it") { try rig.texts() == ["received one"] }
    let number = try id("received one", rig)
    for key in ["\(number)", "987654"] {
      try rig.send("Public", "sent \(key)", id: key)
      try rig.until(key, is: "sent")
    }
    let both = try delete(#"{"ids":["\#(number)"]}"#, rig)
    #expect(both.status == 400)
    for form in ["received:\(number)", "sent:\(number)"] {
      #expect(both.json["error"]?.string?.contains(form) == true, "\(both)")
    }
    #expect(try rig.texts("direction=both").count == 3)
    #expect(try delete(#"{"ids":["received:987654"]}"#, rig).status == 404)
    #expect(try delete(#"{"ids":["sent:\#(number)","987654"]}"#, rig).json["sent"]?.integer == 2)
    #expect(try rig.texts("direction=both") == ["received one"])
    #expect(try delete(#"{"ids":["\#(number)"]}"#, rig).json["received"]?.integer == 1)
    #expect(try rig.texts("direction=both").isEmpty)
  }
}
