// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import Testing
import Timing

@testable import Gateway
@testable import Store

/// Received and sent messages, as people and programs read them.
@Suite struct ConversationsTests {
  private func begun() throws -> Rig {
    let rig = try Rig(nodes: 3)
    try rig.startSynced()
    return rig
  }

  private func hear(_ line: String, _ rig: Rig) throws {
    let before = try rig.status()["store"]?["messages"]?.integer ?? 0
    rig.air(line)
    try rig.until("\(line) to be heard") { try rig.status()["store"]?["messages"]?.integer == before + 1 }
  }

  private func key(of name: String, _ rig: Rig) throws -> String {
    let row = try rig.rows("/v1/contacts").first { $0["name"]?.string == name }
    return try #require(row?["key"]?.string)
  }

  @Test func `messages of both directions are one list, in order and page by page`() throws {
    let rig = try begun()
    try hear("dm r1 r0 one", rig)
    try rig.send("r1", "two", id: "two")
    try rig.until("two", is: "delivered")
    try hear("dm r2 r0 three", rig)
    try rig.send("Public", "four", id: "four")
    try rig.until("four", is: "sent")
    try hear("chan r1 0 five", rig)
    let all = try rig.rows("/v1/messages?direction=both")
    #expect(all.map { $0["text"]?.string } == ["one", "two", "three", "four", "five"])
    #expect(all.map { $0["direction"]?.string } == ["received", "sent", "received", "sent", "received"])
    #expect(all[1]["state"]?.string == "delivered" && all[1]["recipient_name"]?.string == "r1")
    #expect(try rig.texts("direction=sent") == ["two", "four"])
    #expect(try rig.texts("direction=received") == ["one", "three", "five"])
    #expect(try rig.texts("direction=both&with=r1") == ["one", "two"])
    #expect(try rig.texts("direction=both&from=r1") == ["one", "five"])
    #expect(try rig.texts("direction=both&channel=Public") == ["four", "five"])
    #expect(try rig.rows("/v1/messages?direction=both&q=two").map { $0["outgoing"]?.string } == ["two"])
    // Page by page, with the cursors.
    var (texts, after): ([String], String) = ([], "0")
    while let row = try rig.rows("/v1/messages?direction=both&limit=1&after=\(after)").first {
      texts.append(row["text"]?.string ?? "")
      after = row["cursor"]?.string ?? ""
    }
    #expect(texts == ["one", "two", "three", "four", "five"])
    // A reaction to our message is shown with it.
    #expect(try rig.post("/v1/react", #"{"outgoing":"two","emoji":"👍"}"#).status == 202)
    try rig.until("the reaction") {
      try rig.rows("/v1/messages?direction=both").contains {
        $0["text"]?.string == "two" && $0["reactions"]?.text.contains("👍") == true
      }
    }
    // Like a message, a reaction belongs to whoever sent it.
    let cheer = #"{"outgoing":"two","emoji":"🎉","id":"cheer","origin":"hook/h"}"#
    #expect(try rig.post("/v1/react", cheer).status == 202)
    #expect(try rig.outgoing("cheer")?["origin"]?.string == "hook/h")
    // The socket's default is received messages only: bots must not receive their own.
    #expect(try rig.rows("/v1/messages").count == 3)
    #expect(try rig.ask("GET", "/v1/messages?direction=up").status == 400)
    #expect(try rig.ask("GET", "/v1/messages?after=1.x").status == 400)
  }

  @Test func `a channel that the radio has left keeps its name`() throws {
    let rig = try begun()
    try hear("chan r1 0 before it was left", rig)
    #expect(try rig.post("/v1/channels/remove?channel=Public").status == 200)
    let there = try #require(try rig.rows("/v1/conversations").first { $0["kind"]?.string == "channel" })
    #expect(there["name"]?.string == "Public" && there["on_radio"]?.bool == false, "\(there)")
    #expect(try rig.rows("/v1/messages").map { $0["channel_name"]?.string } == ["Public"])
  }

  @Test func `only conversations with unread messages are listed if that is asked for`() throws {
    let rig = try begun()
    // What is unread is counted from the first list on.
    _ = try rig.rows("/v1/conversations")
    try hear("dm r1 r0 one", rig)
    try hear("dm r2 r0 two", rig)
    let all = try rig.rows("/v1/conversations")
    let first = try #require(all.first { $0["name"]?.string == "r1" })
    let read = [first["conversation"]?.string, first["newest"]?["cursor"]?.string].compactMap { $0 }
    try #require(read.count == 2)
    let body = #"{"conversation":"\#(read[0])","cursor":"\#(read[1])"}"#
    #expect(try rig.post("/v1/conversations/read", body).status == 200)
    #expect(try rig.rows("/v1/conversations?unread=1").map { $0["name"]?.string } == ["r2"])
    #expect(try rig.rows("/v1/conversations").count == all.count)
    #expect(try rig.ask("GET", "/v1/conversations?unread=yes").status == 400)
  }

  @Test func `a node's alias is shown and accepted, and no node on the air can take it`() throws {
    let rig = try begun()
    #expect(try rig.post("/v1/node/alias", #"{"node":"r1","value":"Birch"}"#).status == 200)
    #expect(try rig.rows("/v1/contacts").contains { $0["alias"]?.string == "Birch" && $0["name"]?.string == "r1" })
    try hear("dm r1 r0 hello", rig)
    let row = try #require(try rig.rows("/v1/messages").first)
    #expect(row["sender_alias"]?.string == "Birch" && row["sender_name"]?.string == "r1")
    let key = try key(of: "r1", rig)
    // Another node with that name, as from the air.
    let other = #"{"key":"\#(String(repeating: "ab", count: 32))","name":"Birch","type":"chat"}"#
    #expect(try rig.post("/v1/contacts/add", other).status == 200)
    let sent = try rig.post("/v1/send", #"{"to":"Birch","text":"hi"}"#)
    #expect(sent.status == 202 && sent.json["messages"]?.array?.first?["recipient"]?.string == key, "\(sent)")
  }

  @Test func `conversations count unread messages, and a message that is sent twice is one`() throws {
    let rig = try begun()
    func conversations() throws -> [JSONValue] { try rig.rows("/v1/conversations") }
    #expect(try conversations().allSatisfy { $0["unread"]?.integer == 0 })
    rig.air("dm r1 r0 hello @[r0]")
    rig.air("chan r2 0 to all")
    try rig.until("both to be unread") {
      try conversations().compactMap { $0["unread"]?.integer }.reduce(0, +) == 2
    }
    let direct = try #require(try conversations().first { $0["kind"]?.string == "direct" })
    #expect(direct["mentioned"]?.bool == true)
    let name = try #require(direct["conversation"]?.string)
    let cursor = try #require(direct["newest"]?["cursor"]?.string)
    func row() throws -> JSONValue? { try conversations().first { $0["conversation"]?.string == name } }
    let read = #"{"conversation":"\#(name)","cursor":"\#(cursor)"}"#
    #expect(try rig.post("/v1/conversations/read", read).status == 200)
    #expect(try row()?["unread"]?.integer == 0)
    let id = "0123456789abcdef0123456789abcdef"
    for _ in 0..<2 { #expect(try rig.send(try key(of: "r1", rig), "once", id: id) == 202) }
    #expect(try rig.texts("conversation=\(name)&direction=both") == ["hello @[r0]", "once"])
    #expect(try rig.ask("GET", "/v1/messages?conversation=nonsense").status == 400)
    // The journal has the attempts of the message.
    #expect(try rig.ask("GET", "/v1/outgoing/attempts?id=\(id)").status == 200)
    #expect(try rig.ask("GET", "/v1/outgoing/attempts?id=unknown").status == 404)
    // A conversation that is not in the list cannot have a level.
    #expect(try row()?["muted"]?.bool == false)
    let mute = #"{"conversation":"\#(name)","level":"none"}"#
    #expect(try rig.post("/v1/conversations/level", mute).status == 200)
    #expect(try row()?["muted"]?.bool == true)
    #expect(try rig.post("/v1/conversations/level", #"{"conversation":"r1","level":"mentions"}"#).status == 200)
    #expect(try row()?["level"]?.string == "mentions")
    let unknown = #"{"conversation":"channel:0000000000000000","level":"none"}"#
    #expect(try rig.post("/v1/conversations/level", unknown).status == 404)
    #expect(try rig.post("/v1/conversations/level", #"{"conversation":"\#(name)"}"#).status == 400)
    #expect(try rig.post("/v1/conversations/level", #"{"conversation":"\#(name)","level":"some"}"#).status == 400)
  }

  @Test func `a blocked sender is listed, its messages say so, and each block has one way back`() throws {
    let rig = try begun()
    _ = try rig.rows("/v1/conversations")
    let key = try key(of: "r1", rig)
    func block(_ word: String, _ body: String) throws -> Int { try rig.post("/v1/blocks/\(word)", body).status }
    #expect(try block("add", #"{"whom":"r1"}"#) == 200)
    #expect(try block("add", #"{"whom":"r2","channel":"Public"}"#) == 200)
    #expect(try block("add", #"{"whom":"nobody"}"#) == 404)
    let status = try rig.status()
    let own = try #require(status["radio"]?["identity"]?["key"]?.string)
    #expect(try block("add", #"{"whom":"\#(own)"}"#) == 400)
    let long = String(repeating: "x", count: 161)
    let tooLong = try rig.post("/v1/blocks/add", #"{"whom":"\#(long)","channel":"Public"}"#)
    #expect(tooLong.status == 400 && "\(tooLong.json)".contains("at most 160 bytes"), "\(tooLong.json)")
    #expect(try block("add", #"{"whom":"r2","channel":"nowhere"}"#) == 404)
    #expect(try rig.rows("/v1/blocks").map { $0["key"]?.string } == [key, nil])
    rig.air("dm r1 r0 hello @[r0]")
    rig.air("chan r2 0 to all")
    rig.air("chan r1 0 me, too")
    try rig.until("three messages") { try rig.texts().count == 3 }
    let rows = try rig.rows("/v1/messages")
    let hidden = rows.filter { $0["filtered"]?.string == "blocked" }.compactMap { $0["text"]?.string }
    #expect(hidden == ["hello @[r0]", "to all"])
    let unread = try rig.rows("/v1/conversations").compactMap { $0["unread"]?.integer }.reduce(0, +)
    #expect(unread == 1)
    // By as many digits as a room tells of an author.
    #expect(try block("remove", #"{"whom":"\#(key.prefix(8))"}"#) == 200)
    #expect(try block("remove", #"{"whom":"r1"}"#) == 404)
    #expect(try block("remove", #"{"whom":"r2","channel":"Public"}"#) == 200)
    #expect(try rig.rows("/v1/blocks").isEmpty)
    #expect(try rig.rows("/v1/messages").allSatisfy { $0["filtered"] == nil })
    #expect(try rig.rows("/v1/conversations").compactMap { $0["unread"]?.integer }.reduce(0, +) == 3)
    for number in 0..<256 { #expect(try block("add", #"{"whom":"Bob \#(number)","channel":"Public"}"#) == 200) }
    #expect(try block("add", #"{"whom":"one more","channel":"Public"}"#) == 429)
    #expect(try block("add", #"{"whom":"Bob 7","channel":"Public"}"#) == 200, "it is blocked already")
  }

  @Test func `a level and a block are taken while the search index is being built, and count once it is there`() throws
  {
    let rig = try begun()
    func unread() throws -> Int64 {
      try rig.rows("/v1/conversations").compactMap { $0["unread"]?.integer }.reduce(0, +)
    }
    #expect(try unread() == 0)
    try hear("dm r1 r0 hello", rig)
    #expect(try unread() == 1)
    let store = try #require(rig.daemon?.store)
    store.write { store throws(SQLiteError) in
      for time in 1...2100 as ClosedRange<UInt32> {
        let text = ChannelMessage(
          snr: nil, slot: 0, path: ReceivedPath(raw: 0), senderTime: time, text: Text("Bob: \(time)"))
        _ = try store.insert(.channel(text), at: Moment(milliseconds: 1, trusted: false))
      }
    }
    try store.commitNow()
    #expect(try unread() == 2101)
    #expect(try rig.post("/v1/blocks/add", #"{"whom":"r1"}"#).status == 200)
    #expect(try rig.post("/v1/conversations/level", #"{"conversation":"Public","level":"none"}"#).status == 200)
    #expect(try rig.rows("/v1/blocks").count == 1 && unread() == 2101)
    // The index is completed once an hour.
    rig.pass(.seconds(3700))
    #expect(try unread() == 0)
  }

  @Test func `a webhook does not get what concerns nobody, which is filtered, and hubs and brokers do`() throws {
    let rig = try Rig(nodes: 3)
    rig.configure(
      """
      [[upstream]]
      name = "hook"
      kind = "webhook"
      url = "http://127.0.0.1:1"
      kinds = ["message"]
      [[upstream]]
      name = "broker"
      kind = "mqtt"
      url = "mqtt://127.0.0.1:1"
      kinds = ["message"]
      """)
    let (hook, broker) = (rig.server("hook", "webhook"), rig.server("broker", "mqtt"))
    try rig.startSynced()
    #expect(try rig.post("/v1/blocks/add", #"{"whom":"r1"}"#).status == 200)
    let level = #"{"conversation":"Public","level":"mentions"}"#
    #expect(try rig.post("/v1/conversations/level", level).status == 200)
    for line in ["dm r1 r0 noise @[r0]", "chan r2 0 to all", "dm r2 r0 hello", "chan r2 0 ask @[r0]"] {
      try hear(line, rig)
    }
    func texts(_ server: ScriptedServer) -> [String] { server.events.compactMap { $0.body["text"]?.string } }
    let all = ["noise @[r0]", "to all", "hello", "ask @[r0]"]
    try rig.until("all of them at the hub and the broker") { texts(rig.hub) == all && texts(broker) == all }
    try rig.until("what is for us at the webhook") { texts(hook).count == 2 }
    #expect(texts(hook) == ["hello", "ask @[r0]"])
    try rig.until("its answers") {
      let states = try rig.rows("/v1/messages?upstreams=1").map { row in
        row["upstreams"]?.array?.first { $0["name"]?.string == "hook" }?["state"]?.string
      }
      return states == ["filtered", "filtered", "acknowledged", "acknowledged"]
    }
    let reasons = try rig.rows("/v1/messages").map { $0["filtered"]?.string }
    #expect(reasons == ["blocked", "level", nil, nil])
    #expect(try rig.rows("/v1/messages?q=noise").count == 1)
    #expect(try rig.post("/v1/radio/set", #"{"name":"Pine"}"#).status == 200)
    for line in ["chan r2 0 ask @[r0] again", "chan r2 0 ask @[Pine]"] { try hear(line, rig) }
    try rig.until("what is for the new name") { texts(hook).contains("ask @[Pine]") }
    #expect(!texts(hook).contains("ask @[r0] again"), "nobody has that name now")
  }

  @Test func `messages are found by words, sender, channel and time, and errors have a remedy`() throws {
    let rig = try Rig { ($0.contacts, $0.queueCapacity) = (20, 1000) }
    try rig.startSynced()
    rig.air("inject r0 50 40")
    try rig.until("40 messages") { try rig.status()["store"]?["messages"]?.integer == 40 }
    func find(_ words: String, _ more: String = "&limit=20") throws -> [JSONValue] {
      try rig.rows("/v1/messages?direction=both&q=\(words)\(more)")
    }
    #expect(try find("message%207").map { $0["text"]?.string } == ["message 7"])
    #expect(try find("mess*", "&limit=5").last?["text"]?.string == "message 39", "newest last")
    #expect(try find("direct", "&channel=Public").isEmpty)
    let hourAgo = rig.machine.wallMilliseconds - 3_600_000
    #expect(try find("message", "&limit=20&since=\(hourAgo)").count == 20)
    #expect(try find("message", "&until=\(hourAgo)").isEmpty)
    let name = try #require(try find("direct").first?["sender_name"]?.string)
    let said = try find("direct", "&from=" + name.replacing(" ", with: "%20"))
    #expect(!said.isEmpty && said.allSatisfy { $0["sender_name"]?.string == name })
    let refused = try rig.ask("GET", "/v1/messages?q=a*")
    #expect(refused.status == 400 && String(decoding: refused.body, as: UTF8.self).contains("at least 3 letters"))
  }
}
