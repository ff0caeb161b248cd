// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Testing
import Timing

/// Upstreams come, go and are mended while the others run.
@Suite struct UpstreamChangesTests {
  private func isStopped(_ rig: Rig, _ name: String, because message: String) throws -> Bool {
    let found = try rig.upstream(name)
    return found?["state"]?.string == "stopped" && found?["reason"]?.string?.contains(message) == true
  }

  @Test func `a reload with a bad file stops one upstream, and the others keep their connection`() throws {
    let rig = try Rig()
    try rig.startSynced()
    try rig.until("the hub to be there") { rig.hub.greetings == 1 }
    let (pem, lost) = (rig.write("ca.pem", "this is no PEM\n"), rig.location("lost"))
    let others = """
      [[upstream]]
      name = "vault"
      url = "https://127.0.0.1:1"
      ca_file = "\(pem)"
      [[upstream]]
      name = "mute"
      url = "http://127.0.0.1:1/"
      link = "http"
      token_file = "\(lost)"
      [[hook]]
      name = "bot"
      run = ["\(rig.location("bot"))"]
      user = "nobody"
      kinds = ["message"]
      """
    rig.reload(others)
    try rig.until("the bad ones to be stopped") {
      try isStopped(rig, "vault", because: "ca_file: \(pem) has no certificates in PEM")
        && isStopped(rig, "mute", because: "token_file: \(lost) cannot be read: No such file")
        && isStopped(rig, "hook/bot", because: "does not exist")
    }
    rig.air("chan r1 0 after the reload")
    try rig.until("the message to arrive") { rig.hub.texts == ["after the reload"] }
    #expect(try rig.upstream("hub")?["last_success"] != nil)

    // It is mended where it lies, and another reload finds that.
    _ = rig.write("lost", "a-token-for-the-tests\n")
    rig.reload(others)
    try rig.until("the mended one to go on") { rig.server("mute", "hub").greetings == 1 }
    #expect(rig.hub.carriers == 1, "the hub was not connected anew")
  }

  @Test func `one that is removed goes on where it stood when it is back`() throws {
    let rig = try Rig()
    let broker = "[[upstream]]\nname = \"broker\"\nkind = \"mqtt\"\nurl = \"mqtt://127.0.0.1:1\"\n"
    rig.configure(broker)
    try rig.startSynced()
    rig.server("broker", "mqtt").mood = .unreachable
    rig.air("chan r1 0 before")
    try rig.until("it to wait") { try rig.upstream("broker")?["pending"]?.integer ?? 0 > 0 }
    rig.reload("")
    try rig.until("it to be removed") { rig.hasSaid("broker: removed, with ") }
    #expect(try rig.upstream("broker") == nil)
    rig.air("chan r1 0 meanwhile")
    try rig.until("the hub to have both") { rig.hub.texts == ["before", "meanwhile"] }
    rig.kill()
    try rig.startSynced()
    rig.server("broker", "mqtt").mood = .well
    rig.reload(broker)
    try rig.until("both at the broker") { rig.server("broker", "mqtt").texts == ["before", "meanwhile"] }
    #expect(try rig.status()["removed_upstreams"]?.array?.isEmpty == true)
  }
}
