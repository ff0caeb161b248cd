// SPDX-License-Identifier: MIT

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
    _ text: String, by gateway: String, from sender: String = "x", sentAt time: Int64? = nil, _ rig: Rig
  ) {
    let now = rig.machine.wallMilliseconds
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
}
