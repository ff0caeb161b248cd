// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// What commands print for people, and their exit codes. GatewayTests try what a gateway does for them.
  @Suite struct CommandWords {
    private let rig: Rig

    init() throws { rig = try Rig() }

    /// Runs the command. One of its lines contains the words.
    private func expect(_ command: String, _ words: String, code: Int32? = 0) throws {
      let program = try Program.own(
        "meshpost", command.split(separator: " ").map(String.init) + ["--socket", rig.socket])
      program.endInput()
      let ended = try program.ended()
      #expect(code == nil || ended == code, "\(command): \(ended) \(program.lines)")
      #expect(program.lines.contains { $0.contains(words) }, "\(command): \(program.lines)")
    }

    private func lines(_ command: String) throws -> [String] {
      let program = try Program.own(
        "meshpost", command.split(separator: " ").map(String.init) + ["--socket", rig.socket])
      _ = try program.ended()
      return program.lines
    }

    @Test func `a radio and its messages are described in words, and each refusal has an exit code`() throws {
      try expect("doctor", "no control socket", code: 1)
      try expect("doctor", "systemctl status meshpost", code: 1)
      try rig.startRadio(["--nodes", "3"], isKnown: false)
      rig.writeGatewayConfiguration(extra: "[messaging]\nattempts = 1")
      try rig.startGateway()
      try rig.waitForSync()
      for command in ["messages", "search nothing", "messages --since 1h"] { try expect(command, "nothing to list") }
      #expect(try lines("messages --json") == [])
      try expect("documents", "there is no document")
      try expect("upstream dead", "there is no dead letter")
      try expect("status", "meshpost radio advert")
      try expect("doctor", "WARN  advert", code: nil)
      try expect("doctor", "ok    radio: ", code: nil)
      try expect("doctor --json", #""subject":"version""#, code: nil)
      try untilTrue("the hub to be missed") {
        try lines("doctor").contains { $0.hasPrefix("WARN  upstream hub: waits") }
      }
      try expect("radio advert", "sent an advert to direct neighbours")
      #expect(try !lines("status").contains { $0.contains("meshpost radio advert") })
      for name in ["r1", "r2"] { rig.radio?.write("advert \(name)") }
      try untilTrue("both to be heard") { try lines("contacts").count >= 2 }
      try expect("radio set name=Hilltop", "meshpost radio advert")
      try expect("radio set name=Other sf=13", "sf", code: 64)
      try expect("radio set", "preset ")
      try expect("radio presets", "EU/UK (Narrow)")

      let follower = try Program.own("meshpost", ["messages", "--follow", "--socket", rig.socket])
      rig.radio?.write("dm r1 r0 one")
      try follower.line(with: "r1: one")
      try expect("send r1 hello there --wait --id two", "delivered")
      try follower.line(with: "me → r1: hello there  … (pending)")
      try follower.line(with: "me → r1: hello there  ✓ (delivered)")
      try expect("send Public to all --wait", "sent")
      try expect("sent", " two to r1: delivered")
      try expect("sent", " to channel Public: sent")
      try expect("messages", "me → r1: hello there  ✓ (delivered)")
      try expect("messages", "[Public] me: to all  ✓ (sent)")
      try expect("react two 👍 --wait", "delivered")
      try expect("messages", "👍")
      try expect("search hello --json", #""outgoing":"two""#)
      try expect("export messages --format csv", "hello there")
      try expect("upstream pending", " messages  ")

      try expect("search a*", "at least 3 letters", code: 64)
      try expect("messages --since nonsense", "since", code: 64)
      try expect("capture - --format hex --count 0", "--count: the number", code: 64)
      try expect("send nobody x", "nobody", code: 67)
      try expect("room post r1 x", "r1 is no room", code: 64)
      try expect("room post Public x", "Public is no room", code: 64)
      try expect("send #none x", "none", code: 67)
      try expect("send r x", "r1 (chat", code: 64)
      let long = String(repeating: "x", count: 200)
      try expect("send r1 \(long)", "44 bytes too long", code: 65)
      #expect(try lines("send r1 --split --wait \(long)").count { $0.contains("delivered") } == 2)
      try expect("send r1 x --priority urgent", "priority", code: 64)
      rig.radio?.write("loss 1")
      try expect("send r2 lost --id lost --wait", "held_for_recipient", code: 75)
      try expect("sent", "held_for_recipient: ")
      try expect("sent", "meshpost radio advert --flood")
      try expect("contact path r2 --discover", "allows telemetry requests", code: 69)
      // It would be tried again by itself at some time.
      try expect("cancel lost", "failed (cancelled)")
      rig.radio?.write("loss 0")
      try expect("retry lost --wait", "delivered")
      try expect("cancel lost", "lost", code: 64)
      try expect("retry unknown", "unknown", code: 67)

      try expect("node alias r1 Birch", "set")
      try expect("contacts", "Birch (r1)")
      try expect("messages", " Birch: one")
    }

    @Test func `errors in a configuration are in status and doctor, and in a hub's log`() throws {
      try rig.startRadio()
      try rig.startHub()
      let token = rig.scratch.write("open.token", "secret\n")
      rig.writeGatewayConfiguration(
        extra: """
          [messaging]
          airtime_per_hour_s = 40
          [relay]
          messages_from_hub = true
          channels = ["#hll"]
          [[upstream]]
          name = "other"
          url = "http://127.0.0.1:1"
          token_file = "\(token)"
          allow = ["settings"]
          """)
      let file = rig.scratch.location("gw.toml")
      let right = try String(contentsOfFile: file, encoding: .utf8)
      for open in [token, file] { chmod(open, 0o666) }
      try rig.startGateway()
      try rig.waitForSync()
      let shapes = try JSONShapes()
      func stands(_ status: String, _ doctor: String, code: Int32? = nil) throws {
        try expect("status", status)
        try expect("doctor", doctor, code: code)
        #expect(try shapes.problems("status", lines("status --json")) == [])
      }
      let words = "relay.channels names \"#hll\", which the radio does not have; it has "
      try stands("config    without effect: \(words)", "WARN  configuration: \(words)")
      try expect("documents set settings/airtime_per_hour_s 99", "stored")
      try stands("airtime_per_hour_s is 99 by", "in place of 40")
      let check = try Program.own("meshpostd", ["--check", "--config", file])
      #expect(try check.ended() == 0, "it is told, and not refused")
      for remedy in ["chmod o-w \(file)", "chmod o= \(token)"] {
        try expect("doctor", remedy, code: nil)
        #expect(check.lines.contains { $0.contains(remedy) }, "\(check.lines)")
      }
      let later = right.replacing("[store]", with: "[store]\nprofile = \"wear\"\nmax_size = \"64 MiB\"")
      try later.write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded, except store.max_size, store.profile: ")
      try stands(
        "config    waits for a restart: store.max_size, store.profile", "WARN  configuration: store.max_size")
      rig.gateway?.kill9()
      try ("[gateway]\nid = \"Hill top\"\n" + right).write(toFile: file, atomically: true, encoding: .utf8)
      try rig.startGateway()
      try rig.waitForSync()
      try stands("refused; running with the last", "FAIL  configuration: \(file): line", code: 1)

      let hub = rig.scratch.location("hub.toml")
      let atHub = try String(contentsOfFile: hub, encoding: .utf8)
      try ("max_connections = 99\nlog_level = \"debug\"\n" + atHub + "\n[retention]\nnodes = \"90d\"\n").write(
        toFile: hub, atomically: true, encoding: .utf8)
      rig.hub?.send(SIGHUP)
      try rig.hub?.line(with: "tokens reloaded")
      try rig.hub?.line(with: "not reloaded: max_connections, retention.nodes: ")
    }
  }
}
