// SPDX-License-Identifier: MIT

import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Requests for things that do not exist.
  @Suite struct MissingThings {
    private static let node = "no known node is named \"nosuch\""
    private static let channel = "the radio has no channel \"nosuch\""
    private static let either = "no known node and no channel is named \"nosuch\""
    private static let outgoing = "there is no outgoing message \"nosuch\""
    private static let upstream = "unknown upstream \"nosuch\"; configured: hub"
    private static let radio = "no radio \"nosuch\" was ever attached"

    private static let commands: [(command: String, words: String)] = [
      ("send nosuch hi", either), ("chat nosuch", either), ("send #nosuch hi", "no channel #nosuch: join it"),
      ("messages --channel nosuch", channel), ("messages --from nosuch", node), ("messages --radio nosuch", radio),
      ("search hello --channel nosuch", channel), ("search hello --from nosuch", node),
      ("react 999 👍", "there is no message 999"), ("react nosuch 👍", outgoing),
      ("sent adopt nosuch", outgoing), ("sent cancel nosuch", outgoing), ("retry nosuch", outgoing),
      ("cancel nosuch", outgoing), ("delete message nosuch --yes", outgoing),
      ("delete conversation nosuch --yes", either), ("room login nosuch", node), ("room post nosuch hi", either),
      ("room read nosuch", node),
      ("level nosuch all", either), ("block add nosuch", node), ("block remove nosuch", node),
      ("block add x --channel nosuch", channel),
      ("contact add nosuch", node), ("contact remove nosuch", node), ("contact export nosuch", node),
      ("contact share nosuch", node), ("contact path nosuch", node), ("contacts --radio nosuch", radio),
      ("channel remove nosuch", channel), ("channel region nosuch x", channel), ("channel relay nosuch on", channel),
      ("channel data nosuch 1 00", channel),
      ("node login nosuch", node), ("node logout nosuch", node), ("node status nosuch", node),
      ("node telemetry nosuch", node), ("node neighbours nosuch", node), ("node access nosuch", node),
      ("node region nosuch x", node), ("node regions nosuch", node),
      ("contact commands nosuch on", node), ("node trace nosuch", node),
      ("node cli nosuch ver", node), ("node clock nosuch", node), ("node snapshot nosuch", node),
      ("node diff nosuch", node), ("node readings nosuch", node),
      ("node alias nosuch x", node),
      ("node note nosuch x", node), ("node tag nosuch x", node), ("upstream remove nosuch", upstream),
      ("upstream forget nosuch", "no upstream \"nosuch\" was removed; removed: none"),
      ("upstream pause nosuch", upstream), ("upstream resume nosuch", upstream), ("upstream test nosuch", upstream),
      ("upstream skip nosuch", upstream),
      ("upstream retry nosuch", upstream), ("upstream drop nosuch", upstream),
      ("upstream retry hub 999", "hub has no dead letter 999"), ("upstream drop hub 999", "hub has no dead letter 999"),
      ("alerts acknowledge 999", "there is no alert 999"),
      ("map --radio nosuch", radio), ("chart signal nosuch", node), ("chart battery nosuch", node),
      ("chart clock nosuch", node), ("chart neighbours nosuch", node), ("chart noise nosuch", node),
      ("chart traffic --radio nosuch", radio),
    ]

    @Test func `each kind of missing thing has its own sentence, and all have one exit code`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "1"])
      try rig.startGateway()
      try rig.waitForSync()
      for (command, words) in Self.commands {
        let program = try Program.own(
          "meshpost", command.split(separator: " ").map(String.init) + ["--socket", rig.socket])
        program.endInput()
        let code = try program.ended()
        #expect(
          code == EX_NOUSER && program.lines.contains { $0.contains(words) }, "\(command): \(code) \(program.lines)")
      }
    }

    @Test func `a missing file is not reported as a failing disk`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let restored = try Program.own("meshpostd", ["--config", file, "--restore", rig.scratch.location("nosuch")])
      #expect(try restored.ended() == 73)
      #expect(
        restored.lines.joined().contains("nosuch: No such file or directory. Check its name"), "\(restored.lines)")
      let other = rig.scratch.write("other", "no backup")
      let wrong = try Program.own("meshpostd", ["--config", file, "--restore", other])
      #expect(try wrong.ended() == 73)
      #expect(wrong.lines.joined().contains("is not a valid backup"), "\(wrong.lines)")
      #expect(!(restored.lines + wrong.lines).joined().contains("disk"))
    }

    @Test func `a hub's commands name the person or the gateway that they do not find`() throws {
      let rig = try Rig()
      try rig.startHub()
      for (line, words) in [
        ("people role bob operate", "nobody is called bob"), ("people password bob", "nobody is called bob"),
        ("people remove bob", "nobody is called bob"),
        ("purge --gateway misspelt --older-than 1d --dry-run", "no gateway misspelt was ever here"),
      ] {
        let arguments = line.split(separator: " ").map(String.init)
        let program = try Program.own("meshpost-hub", arguments + ["--config", rig.scratch.location("hub.toml")])
        if arguments[1] == "password" { program.write("correct horse") }
        program.endInput()
        #expect(try program.ended() == 67, "\(line): \(program.lines)")
        #expect(program.lines.joined().contains(words), "\(line): \(program.lines)")
      }
    }

    @Test func `a hub's answer names the kind of thing that is missing`() throws {
      let rig = try Rig()
      try rig.startHub()
      func error(_ method: String, _ target: String, body: String = "") throws -> (Int?, String) {
        let answer = rig.askHub(method, target, body: body)
        return (answer?.status, try JSONValue(parsing: answer?.body ?? [])["error"]?.string ?? "")
      }
      let send = #"{"id":"c1","command":"send","to":"x","text":"y"}"#
      let unknown = try error("POST", "/v1/gateways/nosuch/commands?wait_s=0", body: send)
      #expect(unknown.0 == 404 && unknown.1.contains("no gateway nosuch"), "\(unknown)")
      // An operator can prepare a gateway before its first connection.
      let meant = send.replacing("}", with: ",\"queue\":true}")
      #expect(rig.askHub("POST", "/v1/gateways/nosuch/commands?wait_s=0", body: meant)?.status == 202)
      for target in ["/v1/nosuch", "/nosuch", "/v1/gateways/g/nosuch"] {
        let answer = try error("GET", target)
        #expect(answer.0 == 404 && answer.1.contains(target), "\(answer)")
      }
      let waiting = rig.askHub("GET", "/v1/gateways/nosuch/commands")
      #expect(waiting?.status == 200 && String(decoding: waiting?.body ?? [], as: UTF8.self).contains("c1"))
      let note = "/documents/settings/log_level"
      let value = #"{"value":"debug"}"#
      for (method, target, body) in [
        ("PUT", note, value), ("DELETE", note, ""), ("DELETE", "", ""), ("GET", "/documents", ""),
        ("GET", "/events", ""),
        ("GET", "/messages", ""), ("GET", "/contacts", ""), ("GET", "/state", ""), ("GET", "/commands", ""),
      ] {
        let answer = try error(method, "/v1/gateways/misspelt\(target)", body: body)
        #expect(answer.0 == 404 && answer.1.contains("no gateway misspelt"), "\(method) \(target): \(answer)")
      }
      #expect(
        rig.askHub("GET", "/v1/fleet/summary").map { String(decoding: $0.body, as: UTF8.self) }?.contains(
          "\"gateways\":0") == true)
      let event = #"{"epoch":"e","events":[{"seq":1,"at":1,"trusted":true,"kind":"radio","body":{}}]}"#
      #expect(rig.askHub("POST", "/v1/gateways/g/events", body: event)?.status == 200)
      #expect(rig.askHub("PUT", "/v1/gateways/g\(note)", body: value)?.status == 200)
      #expect(rig.askHub("GET", "/v1/gateways/g/contacts")?.status == 200)
      for target in ["/v1/gateways/nosuch", "/v1/messages/999", "/v1/gateways/g/commands/nosuch"] {
        let answer = try error("GET", target)
        #expect(answer.0 == 404 && !answer.1.isEmpty, "\(target): \(answer)")
      }
    }
  }
}
