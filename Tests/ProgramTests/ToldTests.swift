// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// What is told of each message, and of what waits.
  @Suite struct Told {
    private static let user = geteuid() == 0 ? "user = \"nobody\"" : ""

    /// What each upstream has of the message with this text, as `--json` tells.
    private func standings(_ rig: Rig, _ command: String, _ text: String) throws -> [String: JSONValue] {
      let rows = try rig.meshpost(command, "--json").lines.compactMap { try JSONValue(parsing: Array($0.utf8)) }
      guard let row = rows.first(where: { $0["text"]?.string == text }) else { return [:] }
      return Dictionary(uniqueKeysWithValues: (row["upstreams"]?.array ?? []).map { ($0["name"]?.string ?? "", $0) })
    }

    @Test func `each message says who has it, what waits says how much, and one dead letter is retried`() throws {
      let rig = try Rig()
      chmod(rig.scratch.folder.path(), 0o777)
      try rig.startRadio(["--nodes", "2"])
      try rig.startHub()
      let script = rig.scratch.write("hook.sh", "#!/bin/sh\nif grep -q bad; then echo no >&2; exit 1; fi\n")
      chmod(script, 0o755)
      func hook(_ name: String, _ more: String) -> String {
        "[[hook]]\nname = \"\(name)\"\nkinds = [\"message\"]\nrun = [\"\(script)\"]\nmax_age_s = 0\n\(Self.user)\n\(more)\n"
      }
      rig.writeGatewayConfiguration(extra: hook("h", "") + hook("trees", "channels = [\"#trees\"]"))
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 good")
      rig.radio?.write("chan r1 0 bad")
      // That the program takes another one shows whose fault it is.
      rig.radio?.write("chan r1 0 good again")
      try untilTrue("all to know: \(try standings(rig, "messages", "bad"))") {
        let (good, bad) = (try standings(rig, "messages", "good"), try standings(rig, "messages", "bad"))
        return good["hub"]?["state"]?.string == "acknowledged" && bad["hub"]?["state"]?.string == "acknowledged"
          && good["hook/h"]?["state"]?.string != "waiting" && bad["hook/h"]?["state"]?.string == "dead_letter"
      }
      #expect(["acknowledged", "passed"].contains(try standings(rig, "messages", "good")["hook/h"]?["state"]?.string))
      #expect(try standings(rig, "messages", "bad")["hook/trees"]?["state"]?.string == "filtered")
      let seq = try #require(try standings(rig, "messages", "bad")["hook/h"]?["seq"]?.integer)

      // One, by its number; and the same words for what is none.
      let retried = try rig.meshpost("upstream", "retry", "hook/h", "\(seq)")
      #expect(retried.code == 0 && retried.lines == ["1 dead letter queued again"], "\(retried)")
      #expect(try rig.meshpost("upstream", "retry", "hook/h", "\(seq)", "--json").lines == ["{\"retried\":1}"])
      for (words, part, code) in [
        (["hook/h", "\(seq + 1000)"], "hook/h has no dead letter", 67),
        (["hub", "\(seq)"], "hub has no dead letter", 67),
        (["nobody", "\(seq)"], "unknown upstream \"nobody\"", 67), (["hook/h", "x"], "'x' is invalid", 64),
        (["hook/h", "0"], "1 or more", 64), (["hook/h", "99999999999999999999"], "is invalid", 64),
      ] as [([String], String, Int32)] {
        let program = try Program.own("meshpost", ["upstream", "retry"] + words + ["--socket", rig.socket])
        #expect(try program.ended() == code, "\(words)")
        #expect(program.lines.contains { $0.contains(part) }, "\(words): \(program.lines)")
      }
      #expect(rig.control("POST", "/v1/outbox/retry?seq=3")?.status == 400)
      #expect(rig.control("POST", "/v1/outbox/retry?upstream=hook/h&seq=-3")?.status == 400)

      // Without the hub.
      rig.hub?.kill9()
      rig.radio?.write("chan r1 0 late")
      _ = try rig.meshpost("send", "Public", "ours")
      try untilTrue("ours to wait: \(try standings(rig, "sent", "ours"))") {
        try standings(rig, "sent", "ours")["hub"]?["state"]?.string == "waiting"
          && standings(rig, "messages", "late")["hub"]?["state"]?.string == "waiting"
      }
      #expect(try rig.meshpost("sent").lines.contains { $0.contains("ours  [hub waiting") })
      #expect(try rig.meshpost("search", "late", "--json").lines.contains { $0.contains("\"state\":\"waiting\"") })
      let shown = try rig.meshpost("upstream", "pending").lines
      #expect(shown.contains { $0.contains(/^ +messages +\d+ events, .*(bytes|KiB), (about \d+|-)/) }, "\(shown)")
      let hub = try rig.status()?["upstreams"]?.array?.first { $0["name"]?.string == "hub" }
      #expect((hub?["lanes"]?["messages"]?["pending_bytes"]?.integer ?? 0) > 0)
      #expect((hub?["bytes_per_second"]?.integer ?? 0) > 0)
      #expect((hub?["lanes"]?["messages"]?["seconds"]?.integer ?? 0) > 0)

      try rig.startHub()
      try untilTrue("ours to be there: \(try standings(rig, "sent", "ours"))") {
        _ = rig.control("POST", "/v1/outbox/resume")
        let ours = try standings(rig, "sent", "ours")["hub"]
        return ours?["state"]?.string == "acknowledged" && ours?["up_to_date"]?.bool == true
      }
    }

    @Test func `former names of commands do the same, and nothing shows them`() throws {
      let rig = try EveryCommand.rig()
      let sent = try rig.meshpost("send", "r1", "hi", "--wait")
      #expect(sent.code == 0, "\(sent.lines)")
      for (former, present) in [
        (["outgoing"], ["sent"]),
        (["--json", "outgoing", "list", "--limit", "1"], ["sent", "list", "--limit", "1", "--json"]),
        (["outbox"], ["upstream", "pending"]), (["outbox", "--json", "list"], ["upstream", "pending", "--json"]),
        (["outbox", "dead"], ["upstream", "dead"]), (["outbox", "retry", "nosuch"], ["upstream", "retry", "nosuch"]),
        (["outbox", "drop", "hub"], ["upstream", "drop", "hub"]), (["outbox", "resume"], ["upstream", "resume"]),
        (["outgoing", "cancel", "--all"], ["sent", "cancel", "--all"]),
      ] {
        // What waits changes by the second.
        try untilTrue("\(former) to do the same") { try run(former, rig) == run(present, rig) }
      }
      let resumed = try run(["upstream", "resume", "--json"], rig)
      #expect(resumed.code == 0 && resumed.lines == ["{\"ok\":true}"], "\(resumed)")
      for shown in [["--help"], ["--generate-completion-script", "bash"], ["generate", "man", "meshpost"]] {
        let program = try Program.own("meshpost", shown)
        #expect(try program.ended() == 0)
        #expect(!program.lines.contains { $0.contains("outbox") || $0.contains("outgoing") }, "\(shown)")
      }
    }

    private struct Run: Equatable {
      let code: Int32
      let lines: [String]
    }

    private func run(_ words: [String], _ rig: Rig) throws -> Run {
      let program = try Program.own("meshpost", words + ["--socket", rig.socket])
      return Run(code: try program.ended(), lines: program.lines)
    }
  }
}
