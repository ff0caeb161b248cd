// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Requests to send: how they end, and which survive a restart.
@Suite struct SendingTests {
  /// A gateway with a message to r1 that was tried once, in vain: the air loses everything.
  private func rigWithHeldMessage() throws -> Rig {
    let rig = try Rig()
    rig.configure("[messaging]\nattempts = 1")
    try rig.startSynced()
    rig.air("loss 1")
    try rig.send("r1", "for you", id: "held")
    try rig.until("held", is: "held_for_recipient")
    return rig
  }

  @Test func `a message's end is reported, and a refused message has a reason`() throws {
    let rig = try Rig(nodes: 3)
    try rig.startSynced()
    #expect(try rig.send("r1", "hello there", id: "a") == 202)
    try rig.until("a", is: "delivered")
    #expect(try rig.send("Public", "to all", id: "b") == 202)
    try rig.until("b", is: "sent")
    for (recipient, text, more, status, code) in [
      ("nobody", "x", "", 404, "not_found"), ("#none", "x", "", 404, "not_found"), ("r", "x", "", 409, "ambiguous"),
      ("r1", String(repeating: "x", count: 200), "", 400, "too_long"),
      ("r1", "x", #","priority":"urgent""#, 400, "invalid"),
    ] {
      let answer = try rig.post("/v1/send", #"{"to":"\#(recipient)","text":"\#(text)"\#(more)}"#)
      #expect(answer.status == status && answer.json["code"]?.string == code, "\(recipient): \(answer)")
      if code == "ambiguous" { #expect(answer.json["candidates"]?.array?.first?.string?.contains("r1 (chat") == true) }
      if code == "too_long" { #expect(answer.json["over"]?.integer == 44) }
    }
    #expect(try rig.send("r1", String(repeating: "x", count: 200), id: "long", #","split":true"#) == 202)
    try rig.until("both parts to be delivered") {
      try rig.outgoing().count { $0["state"]?.string == "delivered" } == 3
    }
    rig.air("loss 1")
    try rig.send("r2", "lost", id: "lost")
    try rig.until("lost", is: "held_for_recipient")
    #expect(try rig.outgoing("lost")?["next_attempt_at"]?.integer != nil)
    rig.air("loss 0")
    #expect(try rig.post("/v1/outgoing/retry?id=lost").status == 200)
    try rig.until("lost", is: "delivered")
    #expect(try rig.post("/v1/outgoing/cancel?id=lost").status == 400)
    #expect(try rig.post("/v1/outgoing/retry?id=unknown").status == 404)
    for order in ["cancel", "adopt"] { #expect(try rig.post("/v1/outgoing/\(order)").status == 400) }
    let rows = try rig.outgoing()
    #expect(rows.count == 5 && rows.allSatisfy { $0["ended"]?.bool == true })
    let status = try rig.status()["messaging"]
    #expect(status?["waiting"]?.integer == 0 && status?["airtime_used_ms"]?.integer ?? 0 > 1000)
  }

  @Test func `repeaters that repeat a channel message are counted`() throws {
    let rig = try Rig(repeaters: 3)
    try rig.startSynced()
    try rig.send("Public", "anybody there?", id: "p")
    try rig.until("p", is: "sent")
    try rig.until("three repeats") { try rig.outgoing("p")?["heard"]?.integer == 3 }
    let trace = try rig.post("/v1/node/trace", #"{"node":"r1","path":"a0a1a0"}"#)
    let hops = trace.json["hops"]?.array ?? []
    #expect(hops.map { $0["node"]?.string } == ["a0", "a1", "a0"], "\(trace)")
    #expect((hops.map { $0["snr"] } + [trace.json["snr_here"]]).allSatisfy { $0?.number == 9.75 }, "\(trace)")
    // Repeaters do not repeat a direct message on a path without hops, and it is acknowledged nevertheless.
    try rig.send("r1", "and you?", id: "d")
    try rig.until("d", is: "delivered")
  }

  @Test func `a waiting message survives a kill, and is sent when the radio is back`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.link.isPresent = false
    try rig.until("the loss of the radio") { try rig.status()["radio"]?["state"]?.string == "down" }
    #expect(try rig.send("r1", "later", id: "later") == 202)
    try rig.send("r1", "expires", id: "expires", #","expires_s":1"#)
    try rig.until("expires", is: "failed")
    #expect(try rig.outgoing("expires")?["reason"]?.string == "expired")
    rig.kill()
    try rig.start()
    #expect(try rig.send("r1", "later", id: "later") == 202, "the same again")
    #expect(try rig.send("r1", "another text", id: "later") == 409, "its id is taken")
    #expect(try rig.send("Public", "later", id: "later") == 409, "its id is taken, for another recipient")
    #expect(try rig.outgoing("later")?["text"]?.string == "later")
    #expect(try rig.outgoing("later")?["state"]?.string == "pending")
    rig.link.isPresent = true
    try rig.until("later", is: "delivered")
    try rig.until("the hub to know") {
      rig.hub.events.contains {
        $0.kind == "outgoing" && $0.body["id"]?.string == "later" && $0.body["state"]?.string == "delivered"
      }
    }
  }

  @Test func `contacts and channels are changed, exported and imported`() throws {
    let rig = try Rig(nodes: 3) { $0.channelSlots = 3 }
    try rig.startSynced()
    let card = try #require(try rig.json("/v1/contacts/export?contact=r2")["link"]?.string)
    #expect(try rig.post("/v1/contacts/remove?contact=r2").status == 200)
    #expect(try rig.rows("/v1/contacts?on_radio=1").count == 1)
    let refused = try rig.post("/v1/send", #"{"to":"r2","text":"hello"}"#)
    #expect(refused.status == 409 && refused.json["code"]?.string == "not_on_radio", "the radio does not have it")
    func importing(_ link: String) throws -> Int { try rig.post("/v1/contacts/import", #"{"link":"\#(link)"}"#).status }
    #expect(try importing(card) == 200)
    try rig.send("r2", "hello", id: "hello")
    try rig.until("hello", is: "delivered")
    #expect(try importing(card + "00") == 400)
    func path(_ more: String = "") throws -> JSONValue {
      let answer = try rig.post("/v1/contacts/path", #"{"contact":"r2"\#(more)}"#)
      #expect(answer.status == 200, "\(answer)")
      return answer.json
    }
    #expect(try path()["hops"]?.integer == 0, "a direct neighbour")
    _ = try path(#","reset":true"#)
    try rig.until("the path to be gone") { try path()["hops"] == nil }
    _ = try path(#","path":"aabb""#)
    try rig.until("the path") { try path()["path"]?.string == "aabb" && path()["hops"]?.integer == 2 }
    let two = try rig.post("/v1/contacts/path", #"{"contact":"r2","reset":true,"advert":true}"#)
    #expect(two.status == 400, "one at a time")
    #expect(try path()["path"]?.string == "aabb", "nothing is reset")
    let key = String(repeating: "5a", count: 32)
    #expect(try rig.post("/v1/contacts/add", #"{"key":"\#(key)","name":"by hand","type":"room"}"#).status == 200)
    #expect(try rig.post("/v1/contacts/share?contact=r1").status == 200)

    func add(_ channel: String, _ more: String = "") throws -> (status: Int, json: JSONValue) {
      try rig.post("/v1/channels/add", #"{"channel":"\#(channel)"\#(more)}"#)
    }
    #expect(try add("#test").json["slot"]?.integer == 1)
    #expect(try add("#test").json["slot"]?.integer == 1, "it is there already")
    let secret = "00112233445566778899aabbccddeeff"
    let link = "meshcore://channel/add?name=Club&secret=\(secret)"
    #expect(try add("Club", #","secret":"\#(secret)""#).status == 200)
    #expect(try add("#fourth").status == 429, "all slots are taken")
    #expect(try rig.post("/v1/channels/remove?channel=Club").status == 200)
    #expect(try add(link).status == 200)
    #expect(try rig.rows("/v1/channels").count == 3)
    #expect(try add("Private").status == 400, "without a secret")
    let doubled = try add("Private", #","secret":"\#(secret)","channel":"Other""#)
    #expect(doubled.status == 400 && doubled.json["error"]?.string?.contains("twice") == true, "\(doubled)")
    #expect(!rig.hasSaid(secret), "a secret reached the log")
  }

  @Test func `the recipient of a waiting message that an app has removed from the radio is put back`() throws {
    let rig = try rigWithHeldMessage()
    #expect(try rig.post("/v1/contacts/remove?contact=r1").status == 200)
    rig.air("loss 0")
    try rig.until("held", is: "delivered")
    #expect(try rig.rows("/v1/contacts?on_radio=1").contains { $0["name"]?.string == "r1" })
    #expect(try rig.post("/v1/contacts/remove?contact=r1").status == 200)
    #expect(try rig.send("r1", "for you") != 202, "a new one puts nobody back who was removed")
  }

  @Test func `without a hub a message that waited over a restart is sent at once`() throws {
    let rig = try Rig()
    rig.edit = { $0.replacing(/\[\[upstream\]\](.|\n)*/, with: "") }
    try rig.startSynced()
    rig.link.isPresent = false
    try rig.send("r1", "hello", id: "waits")
    rig.kill()
    rig.link.isPresent = true
    try rig.startSynced()
    let begun = rig.loop.now
    try rig.until("waits", is: "delivered")
    #expect(rig.loop.now - begun < .seconds(10))
  }

  @Test func `a path that is not found is reported with the reason`() throws {
    let rig = try rigWithHeldMessage()
    let found = try rig.post("/v1/contacts/path", #"{"contact":"r1","discover":true}"#)
    #expect(found.status == 504, "\(found)")
    #expect(found.json["error"]?.string?.contains("allows telemetry requests") == true, "\(found)")
  }
}
