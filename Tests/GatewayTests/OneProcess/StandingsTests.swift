// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// The reported state of each message at each upstream, and of pending events.
@Suite struct StandingsTests {
  /// The state of the message with this text at each upstream.
  private func standings(_ rig: Rig, _ target: String, _ text: String) throws -> [String: JSONValue] {
    guard let row = try rig.rows(target).first(where: { $0["text"]?.string == text }) else { return [:] }
    return Dictionary(uniqueKeysWithValues: (row["upstreams"]?.array ?? []).map { ($0["name"]?.string ?? "", $0) })
  }

  @Test func `each message shows its receivers, waiting events are counted, and one dead letter is retried`() throws {
    let rig = try Rig()
    func hook(_ name: String, _ more: String) -> String {
      "[[upstream]]\nname = \"\(name)\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:1\"\nkinds = [\"message\"]\n\(more)\n"
    }
    rig.configure(hook("h", "") + hook("trees", "channels = [\"#trees\"]"))
    try rig.startSynced()
    rig.server("h", "webhook").refuses = { $0.body["text"]?.string == "bad" }
    for text in ["good", "bad", "good again"] { rig.air("chan r1 0 \(text)") }
    let received = "/v1/messages?upstreams=1"
    func state(_ upstream: String, _ text: String) throws -> String? {
      try standings(rig, received, text)[upstream]?["state"]?.string
    }
    try rig.until("all to know") {
      try state("hub", "good") == "acknowledged" && state("hub", "bad") == "acknowledged"
        && state("h", "good") != "waiting" && state("h", "bad") == "dead_letter"
    }
    #expect(try ["acknowledged", "passed"].contains(state("h", "good")))
    #expect(try state("trees", "bad") == "filtered")
    let seq = try #require(try standings(rig, received, "bad")["h"]?["seq"]?.integer)

    // One dead letter, by its number; and an error for a number of none.
    #expect(try rig.post("/v1/outbox/retry?upstream=h&seq=\(seq)").json["retried"]?.integer == 1)
    try rig.until("it to be refused again") { try state("h", "bad") == "dead_letter" }
    for (query, status, words) in [
      ("upstream=h&seq=\(seq + 1000)", 404, "h has no dead letter"),
      ("upstream=hub&seq=\(seq)", 404, "hub has no dead letter"),
      ("upstream=nobody&seq=\(seq)", 404, "unknown upstream \"nobody\""),
      ("upstream=h&seq=x", 400, "\"seq\" must be a whole number"),
      ("upstream=h&seq=0", 400, "seq: "), ("upstream=h&seq=-3", 400, "seq: "),
      ("upstream=h&seq=99999999999999999999", 400, "seq: "), ("seq=3", 400, "seq requires upstream"),
    ] {
      let answer = try rig.post("/v1/outbox/retry?\(query)")
      #expect(answer.status == status && answer.json["error"]?.string?.contains(words) == true, "\(query): \(answer)")
    }
    rig.server("h", "webhook").refuses = { _ in false }
    #expect(try rig.post("/v1/outbox/retry?upstream=h&seq=\(seq)").json["retried"]?.integer == 1)
    try rig.until("it to be taken") { rig.server("h", "webhook").texts.contains("bad") }

    // The hub is unreachable.
    rig.hub.mood = .unreachable
    rig.air("chan r1 0 late")
    try rig.send("Public", "ours", id: "ours")
    let sent = "/v1/outgoing?upstreams=1"
    try rig.until("ours to wait") {
      try standings(rig, sent, "ours")["hub"]?["state"]?.string == "waiting" && state("hub", "late") == "waiting"
    }
    #expect(try standings(rig, received + "&q=late", "late")["hub"]?["state"]?.string == "waiting")
    let hub = try rig.upstream("hub")
    #expect((hub?["lanes"]?["messages"]?["pending"]?.integer ?? 0) > 0)
    #expect((hub?["lanes"]?["messages"]?["pending_bytes"]?.integer ?? 0) > 0)
    #expect((hub?["bytes_per_second"]?.integer ?? 0) > 0)
    #expect((hub?["lanes"]?["messages"]?["seconds"]?.integer ?? 0) > 0)

    rig.hub.mood = .well
    _ = try rig.ask("POST", "/v1/outbox/resume")
    try rig.until("ours to be there") {
      let ours = try standings(rig, sent, "ours")["hub"]
      return ours?["state"]?.string == "acknowledged" && ours?["up_to_date"]?.bool == true
    }
  }
}
