// SPDX-License-Identifier: MIT

import Glibc
import JSON
import TestSupport
import Testing

/// Runs every command that needs neither a repeater nor Bluetooth, at least once with `--json`, and compares the output with its documented shape.
final class EveryCommand {
  private let rig: Rig
  private let shapes: JSONShapes
  private let start: ([String]) throws -> Program
  private var tried: Set<String> = []

  /// `start`: runs a command. The rig is `rig()`.
  init(_ rig: Rig, _ shapes: JSONShapes, start: @escaping ([String]) throws -> Program) {
    self.rig = rig
    self.shapes = shapes
    self.start = start
  }

  /// A gateway with two messages, a hub, a webhook without a server, and a hook that accepts nothing.
  static func rig() throws -> Rig {
    let rig = try Rig()
    try rig.startRadio(["--contacts", "3"])
    rig.writeGatewayConfiguration(
      extra: """
        [[upstream]]
        name = "hook"
        kind = "webhook"
        url = "http://127.0.0.1:1/x"
        [[hook]]
        name = "no"
        kinds = ["message"]
        run = ["/bin/grep", "-qv", "hello"]
        \(geteuid() == 0 ? "user = \"nobody\"" : "")
        """)
    try rig.startHub()
    try rig.startGateway()
    try rig.waitForSync()
    rig.radio?.write("dm r1 r0 hello @[r0]")
    rig.radio?.write("chan r1 0 to all")
    try untilTrue("two messages") { try rig.status()?["store"]?["messages"]?.integer == 2 }
    try untilTrue("a dead letter") { try deadLetter(rig) != nil }
    return rig
  }

  private static func deadLetter(_ rig: Rig) throws -> Int64? {
    try JSONValue(parsing: rig.control("GET", "/v1/outbox")?.body ?? [])["dead_letters"]?.array?.first?["seq"]?.integer
  }

  private func check(_ words: [String], _ arguments: [String] = [], mayBeEmpty: Bool = false) throws {
    let program = try start(words + arguments + ["--json"])
    _ = try program.ended()
    let command = words.joined(separator: " ")
    let problems = shapes.problems(command, program.lines, mayBeEmpty: mayBeEmpty)
    #expect(problems.isEmpty, "\(problems.prefix(5))")
    tried.insert(command)
  }

  /// Runs them all; returns the words of the tried commands.
  func run() throws -> Set<String> {
    let backup = rig.scratch.location("radio.backup")
    try check(["send"], ["r1", "hi"])
    try check(["send"], ["r1", "and wait", "--wait"])
    try check(["react"], ["1", "👍"])
    try check(["sent", "list"])
    try check(["sent", "adopt"], ["--all"])
    try check(["sent", "cancel"], ["--all"])
    try check(["radio", "list"])
    // That node does not answer, so a message can be cancelled.
    let far = try rig.meshpost("send", "Node 1", "far away", "--json").lines.first ?? ""
    let id = try JSONValue(parsing: far)["messages"]?.array?.first?["id"]?.string ?? ""
    try check(["cancel"], [id])
    try check(["messages"])
    try check(["conversations"])
    try check(["level"], ["r1", "mentions"])
    try check(["block", "add"], ["r1"])
    try check(["block", "list"])
    try check(["block", "remove"], ["r1"])
    try check(["search"], ["hello"])
    try check(["delete", "message"], [id, "--yes"])
    try check(["delete", "conversation"], ["r1", "--before", "2000-01-01", "--yes"])
    try check(["contacts"])
    try check(["contact", "add"], [String(repeating: "ab", count: 32), "--name", "New"])
    try check(["contact", "remove"], ["New"])
    for words in [
      ["contact", "export"], ["channels"], ["documents", "list"], ["upstream", "pending"], ["upstream", "dead"],
    ] {
      try check(words)
    }
    try check(["contact", "import"], [try rig.meshpost("contact", "export", "r1").lines[0]])
    try check(["contact", "share"], ["r1"])
    try check(["radio", "survey"], ["--seconds", "1"])
    try check(["radio", "variables"])
    try check(["radio", "variables"], ["gps=1"])
    try check(["contact", "commands"], ["r1", "off"])
    try check(["contact", "favourite"], ["r1"])
    try check(["contact", "path"], ["r1"])
    try check(["contact", "path"], ["r1", "--reset"])
    try check(["channel", "add"], ["#test"])
    try check(["channel", "region"], ["#test", "ottawa"])
    try check(["node", "region"], ["r1", "ottawa"])
    try check(["radio", "regions"])
    try check(["channel", "relay"], ["#test", "on"])
    try check(["channel", "data"], ["#test", "0xff00", "00", "ff 10"])
    try check(["channel", "remove"], ["#test"])
    try check(["node", "alias"], ["r1", "Birch"])
    try check(["node", "note"], ["r1", "by the pond"])
    try check(["node", "tag"], ["r1", "a", "b"])
    try check(["contacts"])
    try check(["node", "telemetry"], ["self"])
    try check(["node", "readings"], mayBeEmpty: true)
    try check(["journal"], ["--limit", "50"])
    let seq = try #require(try Self.deadLetter(rig))
    try check(["upstream", "retry"], ["hook/no", "\(seq)"])
    for words in [
      ["upstream", "retry"], ["upstream", "list"], ["radio", "info"], ["radio", "presets"],
    ] {
      try check(words)
    }
    try check(["upstream", "drop"], ["hub"])
    try check(["airtime"])
    try check(["airtime"], ["--days", "2"])
    try check(["alerts", "list"])
    try check(["alerts", "acknowledge"], ["1", "--note", "seen"])
    try check(["alerts", "rules"])
    try check(["upstream", "add"], ["other", "http://127.0.0.1:1"])
    try check(["upstream", "pause"], ["other"])
    try check(["upstream", "resume"], ["other"])
    try check(["upstream", "remove"], ["other"])
    try check(["upstream", "forget"], ["other"])
    try check(["upstream", "test"], ["hub"])
    try check(["documents", "set"], ["settings/log_level", "info"])
    try check(["documents", "delete"], ["settings/log_level"])
    try check(["sync"], ["--now"])
    try rig.waitForSync()
    try check(["radio", "set"], ["name=r0"])
    try check(["radio", "advert"])
    try check(["radio", "backup"], [backup])
    try check(["radio", "restore"], [backup, "--yes", "--only", "settings"])
    for words in [["doctor", "all"], ["report"], ["status"], ["overview"], ["map"]] { try check(words) }
    try check(["backup"], [rig.scratch.location("store.backup")])
    for chart in ["signal", "battery", "clock", "neighbours", "noise", "traffic"] { try check(["chart", chart]) }
    try check(["capture"], [rig.scratch.location("air.pcap"), "--seconds", "1"])
    return tried
  }
}
