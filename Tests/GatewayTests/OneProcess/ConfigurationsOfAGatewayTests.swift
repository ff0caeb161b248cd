// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Testing
import Timing

/// Mistakes in the configuration show at a start that no operator attends.
@Suite struct ConfigurationsOfAGatewayTests {
  @Test(arguments: ["[gateway]\nid = \"Hill top\"\n", "[radio\n"])
  func `a gateway with a refused configuration starts with the last valid one, and reports it`(_ wrong: String)
    throws
  {
    let rig = try Rig()
    try rig.startSynced()
    rig.kill()
    rig.edit = { wrong + $0 }
    try rig.startSynced()
    #expect(rig.hasSaid("running with the last configuration that worked"))
    rig.air("chan r1 0 after the power cut")
    try rig.until("the message") { rig.hub.texts == ["after the power cut"] }
    #expect(try rig.status()["configuration_error"]?.string?.contains("gw.toml: line") == true)
    #expect(try rig.doctor().contains { $0.contains("\"configuration\"") && $0.contains("gw.toml: line") })
    func isTold() throws -> Bool { try rig.openAlerts().contains("configuration_wrong") }
    try rig.until("the alert") { try isTold() }

    // The gateway accepts the corrected configuration, and falls back on it at the next start.
    rig.edit = { $0 + "# mended\n" }
    rig.reload("")
    try rig.until("it to be taken") { rig.hasSaid("configuration reloaded") }
    try rig.until("the alert's end") { try !isTold() }
    #expect(try rig.status()["configuration_error"] == nil)
    let kept = rig.location(rig.storeFile("gw.db.configuration"))
    #expect(try String(contentsOfFile: kept, encoding: .utf8).hasSuffix("# mended\n"))
    // A reload of a wrong configuration changes nothing, and is reported in the same way.
    rig.edit = { _ in wrong }
    rig.reload("")
    try rig.until("the alert again") { try isTold() }
    #expect(try rig.status()["configuration_error"] != nil)
    #expect(try String(contentsOfFile: kept, encoding: .utf8).hasSuffix("# mended\n"))
  }

  @Test func `a reload reports the settings that wait for a restart`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.reload(
      "[power]\nlow_battery_mv = 3300\n[contacts]\nkeep_free = 3\n", store: "profile = \"wear\"\nmax_size = \"64 MiB\"")
    try rig.until("it to be said") { rig.hasSaid("configuration reloaded, except store.max_size, store.profile: ") }
    #expect(try rig.status()["after_restart"]?.array?.compactMap(\.string) == ["store.max_size", "store.profile"])
    #expect(try rig.doctor().contains { $0.contains("store.max_size, store.profile") })
    let line = rig.story.count
    rig.reload("")
    try rig.until("it to be taken") { rig.hasSaid("configuration reloaded", from: line) }
    #expect(!rig.hasSaid("except", from: line))
    #expect(try rig.status()["after_restart"] == nil, "nothing waits any more")
  }

  @Test func `settings from documents are reported with both values, and so are world-readable secrets`() throws {
    let rig = try Rig()
    let token = rig.write("open.token", "secret\n")
    rig.configure(
      """
      [messaging]
      airtime_per_hour_s = 40
      [[upstream]]
      name = "other"
      url = "http://127.0.0.2:1"
      token_file = "\(token)"
      allow = ["settings"]
      """)
    let file = rig.location("gw.toml")
    func set(_ mode: Int, of file: String) throws {
      try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: file)
    }
    try set(0o666, of: token)
    try rig.startSynced()
    try set(0o666, of: file)
    #expect(try rig.status()["overrides"] == nil)
    for (value, isOther) in [("99", true), ("40", false)] {
      let edited = try rig.post("/v1/documents", #"{"key":"settings/airtime_per_hour_s","value":\#(value)}"#)
      #expect(edited.status == 200, "\(edited)")
      let one = try rig.status()["overrides"]?.array?.first
      #expect((one != nil) == isOther, "\(value)")
      guard isOther else { continue }
      #expect(one?["setting"]?.string == "messaging.airtime_per_hour_s" && one?["value"]?.string == "99")
      #expect(one?["configured"]?.string == "40" && one?["document"]?.string == "settings/airtime_per_hour_s")
      #expect(
        try rig.doctor().contains { $0.contains("airtime_per_hour_s is 99 by") && $0.contains("in place of 40") })
      #expect(try rig.status()["messaging"]?["airtime_limit_ms"]?.integer == 99_000, "it has effect")
    }
    // A reload checks the files again.
    rig.pass(.seconds(1))
    try set(0o666, of: file)
    let doctor = try rig.doctor()
    for words in ["chmod o-w \(file)", "chmod o= \(token)"] {
      #expect(doctor.contains { $0.contains(words) }, "\(words): \(doctor)")
    }
    try set(0o640, of: token)
    try set(0o644, of: file)
    #expect(try !rig.doctor().contains { $0.contains("chmod o") && $0.contains(token) })
  }

  @Test func `a configured channel that the radio does not have is reported until the radio has it`() throws {
    let rig = try Rig()
    rig.configure("[relay]\nmessages_from_hub = true\nchannels = [\"#hll\"]")
    try rig.startSynced()
    let words = "relay.channels names \"#hll\", which the radio does not have; it has "
    try rig.until("it to be said") { rig.hasSaid(words) }
    #expect(try rig.status()["without_effect"]?.array?.first?.string?.hasPrefix(words) == true)
    #expect(try rig.doctor().contains { $0.contains("which the radio does not have") })
    // A sync reports nothing again.
    #expect(try rig.post("/v1/sync").status < 300)
    rig.pass(.seconds(60))
    #expect(rig.story.count { $0.contains(words) } == 1)
    #expect(try rig.post("/v1/channels/add", ##"{"channel":"#hll"}"##).status == 200)
    try rig.until("it has effect") { try rig.status()["without_effect"] == nil }
    #expect(try !rig.doctor().contains { $0.contains("#hll") })
  }
}
