// SPDX-License-Identifier: MIT

import Testing
import Timing

/// Servers that close the connection at one message each time, or at everything for a while.
@Suite struct HangUpsTests {
  private static let kinds = ["hub", "webhook", "mqtt"]

  private func begun(_ kind: String) throws -> (Rig, ScriptedServer) {
    let rig = try Rig()
    // This test does not need the rig's hub.
    rig.edit = { text in
      let head = text.components(separatedBy: "[[upstream]]")[0]
      let scheme = kind == "mqtt" ? "mqtt" : "http"
      return head + """
        [[upstream]]
        name = "server"
        kind = "\(kind)"
        url = "\(scheme)://127.0.0.1:1"
        kinds = ["message"]

        """
    }
    try rig.startSynced()
    return (rig, rig.server("server", kind))
  }

  private func number(_ rig: Rig, _ name: String) throws -> Int64 {
    try rig.upstream("server")?[name]?.integer ?? -1
  }

  private func untilAllIsThere(_ rig: Rig, of stored: Int64) throws {
    try rig.until("all of \(stored)", within: .seconds(4 * 3600)) {
      try rig.status()["store"]?["messages"]?.integer == stored && self.number(rig, "pending") == 0
    }
  }

  @Test(arguments: kinds)
  func `a message over which the server hangs up becomes a dead letter, and the others are delivered`(
    _ kind: String
  ) throws {
    let (rig, server) = try begun(kind)
    server.hangsUpOver = { $0.body["text"]?.string?.hasPrefix("poison") == true }
    for number in 1...3 { rig.air("chan r1 0 before \(number)") }
    try untilAllIsThere(rig, of: 3)
    for text in ["poison 1", "poison 2", "after 1", "after 2"] { rig.air("chan r1 0 \(text)") }
    try untilAllIsThere(rig, of: 7)
    #expect(try number(rig, "dead_letters") == 2)
    let letters = try rig.json("/v1/outbox")["dead_letters"]?.array ?? []
    #expect(letters.allSatisfy { $0["reason"]?.string?.contains("closes the connection") == true }, "\(letters)")
    #expect(letters.compactMap { $0["body"]?["text"]?.string }.sorted() == ["poison 1", "poison 2"])
    #expect(Set(server.texts) == ["before 1", "before 2", "before 3", "after 1", "after 2"])
  }

  @Test(arguments: kinds) func `a server that hangs up on everything gets everything when it is well again`(
    _ kind: String
  ) throws {
    let (rig, server) = try begun(kind)
    rig.air("chan r1 0 before")
    try untilAllIsThere(rig, of: 1)
    // From now on everything sent after a greeting is lost.
    server.mood = .hangsUp
    rig.air("chan r1 0 one")
    rig.air("chan r1 0 two")
    try rig.until("it to hang up often", within: .seconds(86_400)) { server.hangUps > 30 }
    #expect(try number(rig, "dead_letters") == 0)
    server.mood = .well
    try untilAllIsThere(rig, of: 3)
    #expect(try number(rig, "dead_letters") == 0)
    #expect(server.texts == ["before", "one", "two"])
  }
}
