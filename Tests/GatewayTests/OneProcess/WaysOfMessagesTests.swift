// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import Timing

@testable import Gateway
@testable import Store

/// The copies of messages in a mesh with repeaters, whose hashes are a0, a1 and a2.
@Suite struct WaysOfMessagesTests {
  private func rig() throws -> Rig {
    let rig = try Rig(repeaters: 3, airtime: 1)
    rig.configure(
      """
      [[upstream]]
      name = "web"
      kind = "webhook"
      url = "http://127.0.0.1:1"
      kinds = ["ways", "route"]
      [[upstream]]
      name = "other"
      kind = "webhook"
      url = "http://127.0.0.1:1"
      channels = ["#other"]

      """)
    try rig.startSynced()
    rig.pass(.seconds(60))
    return rig
  }

  private func row(_ text: String, _ rig: Rig, _ direction: String = "received") throws -> JSONValue? {
    try rig.rows("/v1/messages?direction=\(direction)&ways=1").last { $0["text"]?.string == text }
  }

  private func paths(_ row: JSONValue?, _ field: String = "ways") -> [[String]] {
    row?[field]?.array?.compactMap { $0["path"]?.array?.compactMap(\.string) } ?? []
  }

  /// Names two repeaters whose keys begin with a0, and one with a1.
  private func addRepeaters(_ rig: Rig) {
    rig.daemon?.store.post("repeaters") { store throws(SQLiteError) in
      for (beginning, name) in [([0xA0, 1], "Hill"), ([0xA0, 2], "Dale"), ([0xA1, 1], "Ridge")] as [([UInt8], Text)] {
        guard let key = PublicKey(bytes: beginning + Array(repeating: 7, count: 30)) else { continue }
        _ = try store.upsert(Contact(key: key, type: .repeater, name: name), onRadio: true, heard: false, at: 1)
      }
    }
  }

  @Test func `every copy of a channel message is kept, and told to those who get the message`() throws {
    let rig = try rig()
    addRepeaters(rig)
    rig.air("chan r1 0 hello")
    try rig.until("the message") { try row("hello", rig) != nil }
    #expect(paths(try row("hello", rig)) == [[]], "the first copy is kept with the message")
    rig.pass(.seconds(90))
    let found = try row("hello", rig)
    #expect(paths(found).count == 4 && Set(paths(found).compactMap(\.last)) == ["a0", "a1", "a2"])
    #expect(found?["ways"]?.array?.allSatisfy { $0["guess"] == nil && $0["route"] == nil } == true)
    let names = found?["way_nodes"]?.array?.reduce(into: [String: Set<String>]()) { all, node in
      all[node["hash"]?.string ?? ""] = Set(node["nodes"]?.array?.compactMap { $0["name"]?.string } ?? [])
    }
    #expect(names?["a0"] == ["Hill", "Dale"] && names?["a1"] == ["Ridge"] && names?["a2"] == [])
    for server in [rig.hub, rig.server("web", "webhook")] {
      let told = server.events.filter { $0.kind == "ways" }
      #expect(told.count == 1 && told.first?.body["id"]?.integer == found?["id"]?.integer, "\(server.kind)")
      #expect(paths(told.first?.body) == paths(found) && told.first?.body["way_nodes"] == found?["way_nodes"])
      #expect(told.first?.body["channel"] == found?["channel"])
    }
    #expect(rig.server("other", "webhook").events.allSatisfy { $0.kind == "gap" }, "the message is not for it")
    #expect(try rig.rows("/v1/messages").allSatisfy { $0["ways"] == nil }, "only on request")
  }

  @Test func `repeats of our messages and copies of direct ones are kept, and a new route is told`() throws {
    let rig = try rig()
    try rig.send("Public", "to all", id: "c")
    try rig.until("c", is: "sent")
    rig.pass(.seconds(30))
    try rig.send("r1", "to one", id: "d")
    try rig.until("d", is: "delivered")
    rig.pass(.seconds(60))
    rig.air("dm r1 r0 answer")
    rig.pass(.seconds(90))
    let sent = try rig.rows("/v1/outgoing?ways=1")
    let (channel, direct) = (sent.first { $0["id"]?.string == "c" }, sent.first { $0["id"]?.string == "d" })
    #expect(Set(paths(channel, "heard_by").compactMap(\.last)) == ["a0", "a1", "a2"])
    #expect(channel?["heard_by"]?.array?.allSatisfy { $0["guess"] == nil } == true)
    #expect(paths(direct, "heard_by").count >= 3, "flooded, as no path was known")
    #expect(direct?["heard_by"]?.array?.allSatisfy { $0["guess"]?.bool == true } == true)
    #expect(paths(try row("to all", rig, "sent"), "heard_by") == paths(channel, "heard_by"))
    let answer = try row("answer", rig)
    #expect(answer?["ways"]?.array?.allSatisfy { $0["guess"]?.bool == true } == true && !paths(answer).isEmpty)
    let web = rig.server("web", "webhook").events
    #expect(web.filter { $0.kind == "ways" }.count == 3)
    #expect(web.contains { $0.body["id"]?.string == "c" && $0.body["heard_by"] != nil })
    let route = web.first { $0.kind == "route" }
    #expect(route?.body["key"]?.string == rig.radios[1].key.hex && route?.body["hops"]?.integer != nil)
    #expect(route?.body["former_hops"] == nil)
  }

  @Test(arguments: [true, false]) func `copies before and after a restart are kept`(isKill: Bool) throws {
    let rig = try rig()
    rig.air("chan r1 0 hello")
    try rig.until("the message") { try row("hello", rig) != nil }
    if isKill {
      rig.kill()
      try rig.start()
    } else {
      try rig.restart()
    }
    try rig.untilSynced()
    rig.pass(.seconds(120))
    let found = try row("hello", rig)
    #expect(paths(found).first == [], "the first one was kept")
    #expect(Set(paths(found).compactMap(\.last)) == ["a0", "a1", "a2"] && paths(found).count == 4)
    let told = rig.hub.events.filter { $0.kind == "ways" }
    #expect(told.last.map { paths($0.body) } == paths(found))
  }

  @Test func `copies that could not be told are told after the restart`() throws {
    let rig = try Rig(repeaters: 1)
    try rig.startSynced()
    rig.pass(.seconds(10))
    rig.air("chan r1 0 hello")
    try rig.until("the message") { try row("hello", rig) != nil }
    rig.kill()
    rig.pass(.seconds(600))
    try rig.start()
    try rig.untilSynced()
    rig.pass(.seconds(90))
    #expect(rig.hub.events.filter { $0.kind == "ways" }.count == 1)
    #expect(!paths(try row("hello", rig)).isEmpty)
  }
}
