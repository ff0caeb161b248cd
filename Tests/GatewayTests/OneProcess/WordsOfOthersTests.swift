// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import Timing

/// The hub's updates for the gateway: messages of other places, and commands that waited.
@Suite struct WordsOfOthersTests {
  private static let publicChannel = "1155f1870f917786"
  private static let tables = "[relay]\nmessages_from_hub = true\nchannels = [\"Public\"]"

  private func begun() throws -> Rig {
    let rig = try Rig()
    rig.configure(Self.tables)
    try rig.startSynced()
    try rig.until("it to follow the channel") { rig.hub.asked.contains("channel/\(Self.publicChannel)") }
    return rig
  }

  /// A message that another gateway has heard, as the hub reports it.
  private func heard(
    _ text: String, by gateway: String, from sender: String = "x", sentAt time: Int64? = nil, at: Int64? = nil,
    _ rig: Rig
  ) {
    let now = at ?? rig.machine.wallMilliseconds
    rig.hub.put(
      #"{"gateway":"\#(gateway)","channel":"\#(Self.publicChannel)","channel_name":"Public","sender_name":"\#(sender)","sender_time":\#(time ?? now / 1000),"at":\#(now),"trusted":true,"text":"\#(text)"}"#,
      in: "channel/\(Self.publicChannel)", id: "\(gateway) \(text) \(sender)", at: now)
  }

  private func sent(_ rig: Rig) throws -> [String] { try rig.outgoing().compactMap { $0["text"]?.string } }

  @Test func `the gateway's own messages are not sent again when another gateway on its mesh has heard them`() throws {
    let rig = try begun()
    try rig.send("Public", "an own word", id: "own")
    try rig.until("own", is: "sent")
    let time = try rig.outgoing("own")?["sender_time"]?.integer
    // The same under the radio's former name.
    for (sender, word) in [("r0", "an own word"), ("old name", "an own word"), ("r0", "another word")] {
      heard(word, by: "neighbour", from: sender, sentAt: time, rig)
    }
    try rig.until("the message that is not its own") { try sent(rig).contains("⇄r0@neighbour: another word") }
    rig.pass(.seconds(600))
    #expect(try sent(rig).count == 2)
  }

  @Test func `the messages that a gateway can make another one send are limited, and others keep their share`() throws {
    let rig = try begun()
    for number in 1...48 { heard("forged \(number)", by: "forger", rig) }
    heard("heard by both", by: "forger", rig)
    heard("an honest word", by: "honest", rig)
    heard("heard by both too", by: "honest", rig)
    try rig.until("the honest words") { try sent(rig).count { $0.hasPrefix("⇄x@honest: ") } == 2 }
    let forged = try sent(rig).count { $0.hasPrefix("⇄x@forger: ") }
    #expect(forged == 12, "two minutes' worth")
    #expect(rig.hasSaid("of gateway forger's messages not sent"))
  }

  @Test func `messages from other gateways are sent once, also over a kill and with an old card`() throws {
    let rig = try begun()
    heard("before", by: "hilltop", from: "r1", rig)
    try rig.until("the first") { try sent(rig) == ["⇄r1@hilltop: before"] }
    try rig.until("it to be on the air") { try rig.outgoing().allSatisfy { $0["state"]?.string == "sent" } }
    for number in 1...3 { heard("word \(number)", by: "hilltop", from: "r1", rig) }
    // A node there repeats a forwarded message.
    rig.air("chan r1 0 ⇄r1@hilltop: word 1")
    try rig.until("all of them") { try sent(rig).count == 4 }
    rig.kill()
    try rig.startSynced()
    rig.pass(.seconds(600))
    #expect(try sent(rig).count == 4, "nothing is sent again")
    heard("the last one", by: "hilltop", from: "r1", rig)
    try rig.until("the last one") { try sent(rig).contains("⇄r1@hilltop: the last one") }
    #expect(try sent(rig).count == 5)
  }

  @Test func `without a clock a gateway judges the age of messages by the hub's, also with a new card`() throws {
    let rig = try Rig()
    let year: Int64 = 31_536_000_000
    rig.machine.wallOffset -= year
    rig.machine.isWallSynchronised = false
    rig.configure(Self.tables)
    rig.hub.now = { rig.machine.wallMilliseconds + year }
    let began = rig.machine.wallMilliseconds + year
    heard("an hour old", by: "hilltop", at: began - 3_600_000, rig)
    heard("sent by the former card, perhaps", by: "hilltop", at: began - 600_000, rig)
    try rig.startSynced()
    rig.pass(.seconds(60))
    heard("new", by: "hilltop", at: began + 60_000, rig)
    try rig.until("the new one") { try !sent(rig).isEmpty }
    rig.pass(.seconds(600))
    let texts = try sent(rig)
    #expect(texts == ["⇄x@hilltop: new"])
  }

  @Test func `a radio's name that would split texts is told, and another name is enough to exchange messages`() throws {
    let rig = try Rig()
    rig.configure(Self.tables)
    rig.radio.received(Command.setAdvertName(Text("a: b")).encode())
    try rig.startSynced()
    let idle = try rig.json("/v1/status")["without_effect"]?.array?.compactMap(\.string) ?? []
    #expect(idle.contains { $0.hasPrefix("relay.messages_from_hub: the radio's name contains") }, "\(idle)")
    heard("word", by: "hilltop", rig)
    rig.pass(.seconds(60))
    #expect(try sent(rig).isEmpty)
    #expect(try rig.post("/v1/radio/set", #"{"name":"ab"}"#).status == 200)
    try rig.until("the word", within: .seconds(60)) { try !sent(rig).isEmpty }
  }

  private func isRefused(_ event: ScriptedServer.Event, _ code: String) -> Bool {
    event.kind == "command" && event.body["code"]?.string == code
  }

  @Test func `a queued command is refused by a gateway that does not allow it, as soon as that is linked`() throws {
    let rig = try Rig()
    rig.configure("allow = []")
    let command = #"{"id":"c1","command":"send","to":"Public","text":"x"}"#
    rig.hub.put(command, in: "commands", id: "c1", at: rig.machine.wallMilliseconds)
    try rig.startSynced()
    try rig.until("the command's end") { rig.hub.events.contains { isRefused($0, "not_allowed") } }
    #expect(try sent(rig).isEmpty)
    #expect(rig.hasSaid("the command send is refused, because its `allow` does not name it"))
    let shown = try rig.upstream("hub")
    #expect(shown?["unpermitted"]?.array?.compactMap(\.string) == ["send"], "\(shown ?? .null)")
    #expect(shown?["permits"]?.string == #"allow = ["send"]"#)
    #expect(try rig.doctor().contains { $0.contains("it asked for send") })
  }

  @Test func `a hub that no line permits anything makes the gateway transmit nothing, and the line is told`() throws {
    let rig = try Rig()
    rig.edit = { $0.replacing("allow = [\"send\"]\n", with: "") }
    try rig.startSynced()
    try rig.until("the hub to be there") { rig.hub.greetings == 1 }
    var answers: [String] = []
    for command in ["send", "sync", "status"] {
      _ = rig.loop.begin {
        let answer = await rig.hub.ask(#"{"id":"\#(command)","command":"\#(command)","to":"Public","text":"x"}"#)
        answers.append(answer ?? "none")
      }
    }
    try rig.until("the answers") { answers.count == 3 }
    #expect(answers.allSatisfy { $0.contains("not_allowed") }, "\(answers)")
    rig.pass(.seconds(60))
    #expect(try sent(rig).isEmpty)
    #expect(try rig.upstream("hub")?["permits"]?.string == #"allow = ["send", "sync", "status"]"#)
  }

  @Test(arguments: [[], ["documents"]] as [[String]])
  func `edits at the hub that no line permits are told after each start, and applied once a line permits them`(
    _ rights: [String]
  ) throws {
    let rig = try Rig()
    let named = rights.map { "\"\($0)\"" }.joined(separator: ", ")
    let line = #"allow = ["documents", "settings"]"#
    func edit(_ key: String, _ value: String) {
      let now = rig.machine.wallMilliseconds
      rig.hub.put(
        #"{"key":"\#(key)","value":\#(value),"updated_at":\#(now),"by_hub":true}"#, in: "documents", id: key, at: now)
    }
    rig.configure("allow = [\(named)]")
    try rig.startSynced()
    try rig.until("it to ask for documents") { rig.hub.asked.contains("documents") }
    edit("node/" + String(repeating: "ab", count: 32) + "/note", "\"by the hub\"")
    edit("settings/airtime_per_hour_s", "99")
    for start in ["first", "second"] {
      try rig.until("the \(start) refusal") { try rig.upstream("hub")?["permits"]?.string == line }
      let missing = try rig.upstream("hub")?["unpermitted"]?.array?.compactMap(\.string)
      #expect(missing == ["documents", "settings"].filter { !rights.contains($0) })
      #expect(try rig.doctor().contains { $0.contains("asked for \(missing?.joined(separator: ", ") ?? "?")") })
      #expect(try rig.status()["overrides"] == nil)
      guard start == "first" else { continue }
      #expect(rig.hasSaid("edit of settings/airtime_per_hour_s is refused, because its `allow` does not name settings"))
      rig.kill()
      try rig.startSynced()
    }
    rig.kill()
    rig.configure(line)
    try rig.startSynced()
    try rig.until("the setting") { try rig.status()["overrides"]?.array?.first?["value"]?.string == "99" }
    #expect(try rig.upstream("hub")?["permits"] == nil)
    #expect(rig.hub.events.allSatisfy { $0.kind != "document" }, "the hub does not get its own edits back")
  }

  @Test func `a queued command at the hub is carried out once, in order, over a kill`() throws {
    let rig = try Rig()
    func queue(_ number: Int) {
      let command = #"{"id":"c\#(number)","command":"send","to":"Public","text":"word \#(number)"}"#
      rig.hub.put(command, in: "commands", id: "c\(number)", at: rig.machine.wallMilliseconds)
    }
    for number in 1...3 { queue(number) }
    try rig.startSynced()
    try rig.until("three to be sent") { try sent(rig).count == 3 }
    rig.kill()
    queue(4)
    try rig.startSynced()
    try rig.until("the fourth") { try sent(rig).count == 4 }
    rig.pass(.seconds(600))
    #expect(try sent(rig) == (1...4).map { "word \($0)" })
    try rig.until("the hub to know of all") {
      Set(
        rig.hub.events.filter { $0.kind == "command" && $0.body["result"] != nil }.compactMap { $0.body["id"]?.string })
        == ["c1", "c2", "c3", "c4"]
    }
    #expect(rig.hub.events.filter { $0.kind == "command" }.allSatisfy { $0.body["upstream"]?.string == "hub" })
  }

  /// The hub's events of sent messages, and the bytes for each message, after some were delivered.
  private func cost(_ keys: String) throws -> (events: [ScriptedServer.Event], bytes: Int64) {
    let rig = try Rig()
    rig.configure(keys)
    try rig.startSynced()
    func bytes() throws -> Int64 { try rig.upstream("hub")?["bytes_sent"]?.integer ?? 0 }
    func send(_ number: Int) throws {
      try rig.send("r1", "what message \(number) says", id: "m\(number)")
      try rig.until("m\(number)", is: "delivered")
      try rig.until("the hub to have all") { try rig.upstream("hub")?["pending"]?.integer == 0 }
    }
    try send(0)
    let (before, count) = (try bytes(), 10)
    for number in 1...count { try send(number) }
    return (rig.hub.events.filter { $0.kind == "outgoing" }, (try bytes() - before) / Int64(count))
  }

  @Test func `a hub gets one event of a sent message, with its text and its end, and more if configured`()
    throws
  {
    let (ended, all) = (try cost(""), try cost(#"outgoing = "all""#))
    let bodies = ended.events.map(\.body)
    #expect(bodies.compactMap { $0["id"]?.string } == (0...10).map { "m\($0)" }, "\(bodies)")
    #expect(bodies.allSatisfy { $0["state"]?.string == "delivered" && $0["text"] != nil && $0["recipient"] != nil })
    #expect(all.events.count >= 40, "pending, sending, sent and delivered: \(all.events.count)")
    #expect(ended.bytes < all.bytes * 2 / 3, "\(ended.bytes) of \(all.bytes)")
  }

  @Test func `a gateway with a restored SD card does not send others' messages again`() throws {
    let rig = try begun()
    heard("before", by: "hilltop", from: "r1", rig)
    try rig.until("the first") { try sent(rig) == ["⇄r1@hilltop: before"] }
    let card = rig.generation
    rig.end()
    try rig.startSynced()
    for number in 1...3 { heard("word \(number)", by: "hilltop", from: "r1", rig) }
    try rig.until("all of them") { try sent(rig).count == 4 }
    rig.pass(.seconds(60))
    rig.end()
    try rig.putBack(card)
    try rig.startSynced()
    heard("the last one", by: "hilltop", from: "r1", rig)
    try rig.until("the last one") { try sent(rig).contains("⇄r1@hilltop: the last one") }
    rig.pass(.seconds(600))
    let texts = try sent(rig)
    #expect(texts.sorted() == ["before", "the last one"].map { "⇄r1@hilltop: \($0)" }, "\(texts)")
  }

  @Test func `a command beyond the rate waits in the queue`() throws {
    let rig = try Rig()
    rig.configure("commands_per_minute = 1")
    try rig.startSynced()
    try rig.until("the hub to be there") { rig.hub.greetings == 1 }
    func ask(_ command: String) throws -> JSONValue {
      var answer: String??
      _ = rig.loop.begin { answer = .some(await rig.hub.ask(command)) }
      try rig.until("the answer") { answer != nil }
      return try JSONValue(parsing: answer.flatMap { $0 } ?? "null")
    }
    let second = #"{"id":"c2","command":"send","to":"Public","text":"two"}"#
    #expect(try ask(#"{"id":"c1","command":"send","to":"Public","text":"one"}"#)["ok"]?.bool == true)
    #expect(try ask(second)["code"]?.string == "full")
    #expect(try ask(#"{"id":"c3","command":"status"}"#)["code"]?.string == "full")
    rig.hub.put(second, in: "commands", id: "c2", at: rig.machine.wallMilliseconds)
    rig.pass(.seconds(20))
    #expect(try sent(rig) == ["one"])
    try rig.until("the queued one") { try sent(rig) == ["one", "two"] }
  }

  @Test func `a node's alias is edited at both ends, and the last writer wins`() throws {
    let rig = try Rig()
    rig.configure(#"allow = ["send", "documents", "settings"]"#)
    try rig.startSynced()
    let key = try #require(try rig.rows("/v1/contacts").first { $0["name"]?.string == "r1" }?["key"]?.string)
    func alias() throws -> String? { try rig.rows("/v1/contacts").first { $0["key"]?.string == key }?["alias"]?.string }
    func atHub() -> String? {
      rig.hub.events.last { $0.kind == "document" && $0.body["key"]?.string == "node/\(key)/alias" }?.body["value"]?
        .string
    }
    func edit(_ value: String) throws {
      #expect(try rig.post("/v1/node/alias", #"{"node":"r1","value":"\#(value)"}"#).status == 200)
    }
    /// An edit at the hub, some seconds before.
    func put(_ name: String, _ value: String, ago: Int64 = 0) {
      rig.pass(.seconds(2))
      let now = rig.machine.wallMilliseconds - ago * 1000
      rig.hub.put(
        #"{"key":"\#(name)","value":\#(value),"updated_at":\#(now),"by_hub":true}"#, in: "documents", id: name, at: now)
    }
    try edit("Upper hut")
    try rig.until("the alias at the hub") { atHub() == "Upper hut" }
    put("node/\(key)/alias", #""Hut 1""#)
    try rig.until("the hub's at the gateway") { try alias() == "Hut 1" }
    // The hub has not acknowledged the gateway's edit yet: the later one counts.
    rig.hub.mood = .late(.seconds(60))
    try edit("Hut one")
    put("node/\(key)/alias", #""Hut 2""#, ago: 10)
    rig.pass(.seconds(10))
    #expect(try alias() == "Hut one")
    put("node/\(key)/alias", #""Hut 3""#)
    try rig.until("the later one") { try alias() == "Hut 3" }
    rig.hub.mood = .unreachable
    try edit("Hut four")
    rig.hub.mood = .well
    try rig.until("the gateway's at the hub") { atHub() == "Hut four" }
    put("node/\(key)/alias", "7")
    put("root/password", #""x""#)
    put("settings/log_level", #""debug""#)
    try rig.until("a setting from afar to count") {
      try rig.status()["overrides"]?.array?.contains { $0["document"]?.string == "settings/log_level" } == true
    }
    #expect(try alias() == "Hut four", "7 is no alias")
    #expect(try !rig.rows("/v1/documents").contains { $0["key"]?.string == "root/password" })
    put("node/\(key)/alias", "null")
    try rig.until("the alias to be gone") { try alias() == nil }
  }
}
