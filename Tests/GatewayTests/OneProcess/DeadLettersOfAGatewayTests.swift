// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Testing
import Timing

@testable import Gateway
@testable import Relay

/// Dead letters of a webhook, which an operator sends again and deletes.
@Suite struct DeadLettersOfAGatewayTests {
  /// A gateway whose webhook has refused these messages, and has taken all others.
  private func rig(dead: [String]) throws -> Rig {
    let rig = try Rig()
    rig.configure(Webhook.configuration)
    try rig.startSynced()
    let server = rig.webhook
    server.refuses = { dead.contains($0.body["text"]?.string ?? "") }
    for text in dead { for line in [text, "after \(text)"] { rig.air("chan r1 0 \(line)") } }
    try rig.until("the dead letters") { try rig.letters() == Int64(dead.count) && server.texts.count == dead.count }
    server.refuses = { _ in false }
    return rig
  }

  @Test func `retried letters go in their order, and one over which the server fails goes behind the others`() throws {
    let rig = try rig(dead: ["a", "b", "c", "d"])
    let server = rig.webhook
    server.failsOver = { ["b", "c"].contains($0.body["text"]?.string) }
    let before = server.tried.count
    #expect(try rig.post("/v1/outbox/retry?upstream=h").json["retried"]?.integer == 4)
    try rig.until("the good ones", within: .seconds(10)) { server.texts.suffix(2) == ["a", "d"] }
    #expect(Array(server.tried.dropFirst(before)) == ["a", "b", "c", "d"])
    let status = try rig.upstream("h")
    #expect(status?["state"]?.string != "waiting", "\(status ?? .null)")
    #expect(status?["reason"]?.string?.hasSuffix(" is tried again and again: HTTP 500") == true, "\(status ?? .null)")

    // They are tried again, less and less often, and events do not wait for them.
    for number in 1...5 {
      rig.pass(.seconds(600))
      rig.air("chan r1 0 new \(number)")
      try rig.until("the message", within: .seconds(10)) { server.texts.last == "new \(number)" }
    }
    #expect((10...40).contains(server.tried.dropFirst(before).count { ["b", "c"].contains($0) }), "\(server.tried)")
    #expect(try rig.letters() == 2)
    let said = rig.story.filter { $0.contains("fails again over dead letter") }
    #expect(said.count == 1, "\(said)")
    server.failsOver = { _ in false }
    try rig.until("the others", within: .seconds(310)) { try rig.letters() == 0 }
    #expect(Set(server.texts.suffix(2)) == ["b", "c"])
    #expect(try rig.upstream("h")?["reason"] == nil)
  }

  @Test func `a retried letter arrives once, even if the upstream is resumed at its answer`() throws {
    let rig = try rig(dead: ["a"])
    let (server, before) = (rig.webhook, rig.webhook.tried.count)
    server.failsOver = { [unowned rig] _ in
      if rig.webhook.tried.count < before + 5 { rig.daemon?.relay.resume() }
      return false
    }
    _ = try rig.post("/v1/outbox/retry?upstream=h")
    try rig.until("the letter to be taken") { try rig.letters() == 0 }
    #expect(Array(server.tried.dropFirst(before)) == ["a"], "\(server.tried)")
  }

  @Test func `a letter that the disk keeps is not sent twice`() throws {
    let rig = try rig(dead: ["a"])
    let (server, before) = (rig.webhook, rig.webhook.tried.count)
    server.failsOver = { [unowned rig] _ in
      rig.isDiskFull = true
      return false
    }
    _ = try rig.post("/v1/outbox/retry?upstream=h")
    rig.pass(.seconds(300))
    #expect(try rig.letters() == 1)
    server.failsOver = { _ in false }
    rig.isDiskFull = false
    try rig.until("its end", within: .seconds(310)) { try rig.letters() == 0 }
    #expect(Array(server.tried.dropFirst(before)) == ["a"])
  }

  @Test func `letters that a narrower filter leaves out stay dead letters, asked for before it or after`() throws {
    let rig = try rig(dead: ["a", "b"])
    let (server, before) = (rig.webhook, rig.webhook.tried.count)
    server.mood = .unreachable
    #expect(try rig.post("/v1/outbox/retry?upstream=h").json["retried"]?.integer == 2)
    rig.reload(Webhook.configuration.replacing("channels = []", with: "channels = [\"#trees\"]"))
    rig.pass(.seconds(5))
    server.mood = .well
    rig.pass(.seconds(600))
    #expect(try server.tried.count == before && rig.letters() == 2)

    let all = try rig.post("/v1/outbox/retry?upstream=h").json
    #expect(all["retried"]?.integer == 0 && all["kept_back"]?.integer == 2, "\(all)")
    #expect(try rig.post("/v1/outbox/retry").json["kept_back"]?.integer == 2)
    let seq = try #require(try rig.json("/v1/outbox")["dead_letters"]?.array?.first?["seq"]?.integer)
    let one = try rig.post("/v1/outbox/retry?upstream=h&seq=\(seq)")
    #expect(one.status == 400 && one.json["error"]?.string?.contains("filter leaves it out") == true, "\(one)")
    rig.pass(.seconds(600))
    #expect(try server.tried.count == before && rig.letters() == 2)

    rig.reload(Webhook.configuration)
    rig.pass(.seconds(5))
    _ = try rig.post("/v1/outbox/retry?upstream=h")
    try rig.until("both") { try rig.letters() == 0 }
    #expect(server.texts.suffix(2) == ["a", "b"])
  }

  @Test func `one letter is dropped by its number, and a number of none is refused`() throws {
    let rig = try rig(dead: ["a", "b"])
    let seqs = try rig.json("/v1/outbox")["dead_letters"]?.array?.compactMap { $0["seq"]?.integer } ?? []
    #expect(try rig.post("/v1/outbox/drop?upstream=h&seq=\(seqs[0] + 1000)").status == 404)
    #expect(try rig.post("/v1/outbox/drop?upstream=h&seq=0").status == 400)
    #expect(try rig.post("/v1/outbox/drop?upstream=h&seq=\(seqs[0])").json["dropped"]?.integer == 1)
    let rest = try rig.json("/v1/outbox")["dead_letters"]?.array?.compactMap { $0["seq"]?.integer }
    #expect(rest == [seqs[1]])
  }
}

/// Events that a webhook neither takes nor refuses, which an operator skips.
@Suite struct SkippedEventsTests {
  private static let bad: Set<String> = ["bad", "worse"]

  /// A gateway whose webhook fails over the bad ones of these messages.
  private func rig(_ texts: [String], _ more: String = "") throws -> Rig {
    let rig = try Rig()
    rig.configure(Webhook.configuration + more)
    try rig.startSynced()
    rig.webhook.failsOver = { Self.bad.contains($0.body["text"]?.string ?? "") }
    for text in texts { rig.air("chan r1 0 \(text)") }
    try rig.until("a failure") {
      try rig.texts().count == texts.count && rig.upstream("h")?["state"]?.string == "waiting"
    }
    return rig
  }

  private func seq(of text: String, _ rig: Rig) throws -> Int64 {
    try #require(
      try rig.rows("/v1/journal").first { $0["kind"]?.string == "message" && $0["body"]?["text"]?.string == text }?[
        "seq"]?.integer)
  }

  @Test func `if only bad events wait, an operator skips one by its number`() throws {
    let rig = try rig(["good", "bad", "worse"])
    let (bad, worse) = (try seq(of: "bad", rig), try seq(of: "worse", rig))
    let refused = try rig.post("/v1/upstreams/skip?upstream=h")
    #expect(
      refused.json["error"]?.string
        == "h: nothing is skipped: the server does not take another event either: HTTP 500. To skip event \(bad) all the same: meshpost upstream skip h \(bad)"
    )
    let mistakes = [
      ("\(worse)", "the last try failed over event \(bad)"), ("0", "seq: "), ("x", "\"seq\" must be"),
    ]
    for (seq, words) in mistakes {
      let answer = try rig.post("/v1/upstreams/skip?upstream=h&seq=\(seq)")
      #expect(answer.status == 400 && answer.json["error"]?.string?.contains(words) == true, "\(answer)")
    }
    // A server that is away judges no event, even if an operator names it.
    rig.webhook.mood = .unreachable
    #expect(try rig.post("/v1/upstreams/skip?upstream=h&seq=\(bad)").status == 400)
    rig.webhook.mood = .well
    #expect(try rig.letters() == 0)
    try rig.until("its own answer") { try rig.upstream("h")?["reason"]?.string == "HTTP 500" }
    let before = rig.webhook.tried.count
    #expect(try rig.post("/v1/upstreams/skip?upstream=h&seq=\(bad)").json["skipped"]?.integer == bad)
    #expect(rig.webhook.tried[before] == "bad", "no other event is sent for it")
    // It is the only one now.
    try rig.until("the next one to be skipped") {
      try rig.post("/v1/upstreams/skip?upstream=h").json["skipped"]?.integer == worse
    }
    rig.air("chan r1 0 new")
    try rig.until("the next message", within: .seconds(10)) { rig.webhook.texts == ["good", "new"] }
    #expect(try rig.letters() == 2)
  }

  @Test func `what was skipped is not called refused`() throws {
    let rig = try rig(["bad", "good"])
    #expect(try rig.post("/v1/upstreams/skip?upstream=h").status == 200)
    try rig.until("the alert") { try rig.openAlerts().contains("dead_letters") }
    let alert = try rig.alert("dead_letters")
    #expect(alert?["text"]?.string == "an operator has skipped 1 event for h: see meshpost upstream dead")
    #expect(try rig.doctor().contains { $0.contains("1 events were skipped by an operator") })
    #expect(try !rig.doctor().contains { $0.contains("refused") } && !rig.hasSaid("refused"), "\(rig.story)")
    rig.webhook.refuses = { $0.body["text"]?.string == "no" }
    for text in ["no", "yes"] { rig.air("chan r1 0 \(text)") }
    try rig.until("the other one") { try rig.letters() == 2 }
    let both = try rig.alert("dead_letters")
    #expect(
      both?["text"]?.string == "an operator has skipped 1 event for h, which has refused 1: see meshpost upstream dead")
    #expect(both?["value"]?.number == 2)
  }

  @Test func `a pause or a removal meanwhile is the answer to a skip, at once`() throws {
    for isRemoved in [false, true] {
      let rig = try rig(["bad", "good"])
      rig.webhook.mood = .standsStill
      let upstream = try #require(rig.daemon?.relay.upstreams.first { $0.name == "h" })
      var said: Upstream.Skipped?
      _ = rig.loop.begin { said = await upstream.skip() }
      rig.pass(.seconds(2))
      #expect(said == nil)
      let begun = rig.loop.now
      if isRemoved { rig.reload("") } else { upstream.setPaused(true) }
      try rig.until("the answer") { said != nil }
      let words = "the upstream was \(isRemoved ? "changed or removed" : "paused") meanwhile"
      #expect(said == .unproven(reason: words) && rig.loop.now - begun < .seconds(5))
    }
  }

  /// Milliseconds after the beginning of a skip. The answer to each request takes 50.
  @Test(arguments: Array(stride(from: 0, through: 200, by: 10)))
  func `a gateway that is killed during a skip loses nothing, and skips the event the next time`(
    _ milliseconds: Int
  ) throws {
    let rig = try rig(["one", "bad", "two", "three"])
    let upstream = try #require(rig.daemon?.relay.upstreams.first { $0.name == "h" })
    var said: Upstream.Skipped?
    _ = rig.loop.begin { said = await upstream.skip() }
    rig.pass(.milliseconds(milliseconds))
    let wasSkipped = said.map { if case .setAside = $0 { true } else { false } } ?? false
    rig.kill()
    try rig.startSynced()
    if try rig.letters() == 0 {
      #expect(!wasSkipped, "an answer is given when it is on disk")
      try rig.until("the failure") { try rig.upstream("h")?["state"]?.string == "waiting" }
      #expect(try rig.post("/v1/upstreams/skip?upstream=h").status == 200)
    }
    try rig.until("the others") { Set(rig.webhook.texts) == ["one", "two", "three"] }
    try rig.until("nothing to wait") { try rig.upstream("h")?["pending"]?.integer == 0 }
    #expect(try rig.letters() == 1)
    rig.webhook.failsOver = { _ in false }
    _ = try rig.post("/v1/outbox/retry?upstream=h")
    try rig.until("it, too") { rig.webhook.texts.contains("bad") }
  }

  @Test func `a disk that refuses the dead letter of a skip is the answer, and the event waits`() throws {
    let rig = try rig(["bad", "good"])
    rig.webhook.failsOver = { [unowned rig] event in
      guard event.body["text"]?.string == "bad" else { return false }
      rig.isDiskFull = rig.webhook.texts == ["good"]
      return true
    }
    let upstream = try #require(rig.daemon?.relay.upstreams.first { $0.name == "h" })
    var said: Upstream.Skipped?
    _ = rig.loop.begin { said = await upstream.skip() }
    try rig.until("an answer", within: .seconds(5)) { said != nil }
    guard case .unproven(let reason) = said else {
      Issue.record("\(String(describing: said))")
      return
    }
    #expect(reason.contains("full"), "\(reason)")
    #expect(try rig.letters() == 0 && rig.upstream("h")?["pending"]?.integer ?? 0 > 0)
    rig.webhook.failsOver = { $0.body["text"]?.string == "bad" }
    rig.isDiskFull = false
    rig.air("chan r1 0 more")
    try rig.until("it to be skipped") {
      guard try rig.upstream("h")?["state"]?.string == "waiting" else { return false }
      return try rig.post("/v1/upstreams/skip?upstream=h").status == 200
    }
    try rig.until("the rest") { rig.webhook.texts == ["good", "more"] }
    #expect(try rig.letters() == 1)
  }

  @Test func `a hook is named with or without hook/, and an upstream of that name comes first`() throws {
    let hook = """
      [[hook]]
      name = "NAME"
      kinds = ["message"]
      run = ["/bin/true"]
      \(geteuid() == 0 ? "user = \"nobody\"" : "")

      """
    let rig = try rig(["bad"], hook.replacing("NAME", with: "bot") + hook.replacing("NAME", with: "h"))
    for (name, shown) in [("bot", "hook/bot"), ("hook/bot", "hook/bot"), ("h", "h"), ("hook/h", "hook/h")] {
      #expect(try rig.post("/v1/upstreams/pause?upstream=\(name)").json["name"]?.string == shown)
      #expect(try rig.post("/v1/upstreams/resume?upstream=\(name)").json["name"]?.string == shown)
    }
    for request in ["upstreams/skip", "outbox/drop", "outbox/retry"] {
      #expect(try rig.post("/v1/\(request)?upstream=bot").status != 404, "\(request)")
      #expect(try rig.post("/v1/\(request)?upstream=other").status == 404, "\(request)")
    }
    rig.reload(Webhook.configuration)
    try rig.until("the hooks to be gone") { try rig.status()["upstreams"]?.array?.count == 2 }
    #expect(try rig.post("/v1/upstreams/forget?upstream=bot").status == 200)
  }
}

private enum Webhook {
  static let configuration = """
    [[upstream]]
    name = "h"
    kind = "webhook"
    url = "http://127.0.0.1:1"
    kinds = ["message"]
    channels = []
    contacts = []

    """
}

extension Rig {
  fileprivate var webhook: ScriptedServer { server("h", "webhook") }
  fileprivate func letters() throws -> Int64? { try upstream("h")?["dead_letters"]?.integer }
}
