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
