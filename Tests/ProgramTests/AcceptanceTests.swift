// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Runs `hardware/acceptance`, which owners run with their radios, with virtual radios.
  @Suite struct Acceptance {
    private func accept(_ rig: Rig, _ arguments: [String]) throws -> (code: Int32, lines: [String]) {
      let program = try Program(
        Checkout.folder.appending(path: "hardware/acceptance").path(),
        ["--programs", Program.programs.path(), "--output", rig.scratch.location("out"), "--yes"] + arguments)
      return (try program.ended(), program.lines)
    }

    @Test func `two healthy radios pass the acceptance, and are unchanged afterwards`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "5", "--tty", "r1=\(rig.scratch.location("second.tty"))", "--forgetful"])
      rig.radio?.write("chan r1 0 this waited in the radio")
      let answer = try accept(rig, ["--link", rig.link, "--second", "serial:\(rig.scratch.location("second.tty"))"])
      print(answer.lines.joined(separator: "\n"))
      #expect(answer.code == 0)
      #expect(answer.lines.contains { $0.contains("ok      a message from the second radio") })
      let report = try JSONValue(
        parsing: String(contentsOfFile: rig.scratch.location("out/report.json"), encoding: .utf8))
      #expect((report["trials"]?.array ?? []).count == 9)
      let messages = try String(contentsOfFile: rig.scratch.location("out/messages.jsonl"), encoding: .utf8)
      #expect(messages.contains("this waited in the radio"), "messages from the radio are kept")
    }

    @Test func `an acceptance's private files are for their owner, and a radio that lacks the other is named`() throws {
      let rig = try Rig()
      let second = rig.scratch.location("second.tty")
      try rig.startRadio(["--tty", "r1=\(second)", "--forgetful"], isKnown: false)
      // The first radio knows the second, but not the reverse.
      rig.radio?.write("advert r1")
      let answer = try accept(rig, ["--link", rig.link, "--second", "serial:\(second)"])
      #expect(answer.code == 1)
      #expect(
        answer.lines.contains { $0.hasPrefix("FAILED  a message to the second") && $0.contains("r1 does not know r0") },
        "\(answer.lines)")
      for place in ["out", "out/first/gateway.db", "out/first/gateway.log", "out/messages.jsonl"] {
        let facts = try FileManager.default.attributesOfItem(atPath: rig.scratch.location(place))
        #expect(((facts[.posixPermissions] as? Int) ?? 0o777) & 0o077 == 0, "\(place)")
      }
    }

    @Test func `an acceptance compares secrets, paths and flags of the radio, too`() throws {
      func picture(secret: String = "aa", contact: String) -> String {
        "{\"key\":\"00\",\"settings\":{},\"channels\":[[0,\"Public\",\"\(secret)\",\"\"]],\"contacts\":{\"k\":\(contact)}}"
      }
      let node = #"{"name":"n","type":"chat","flags":0,"path":"a0","last_modified":5}"#
      func compare(_ after: String) throws -> String {
        let scratch = Scratch()
        let file = scratch.write("pictures.json", "[\(picture(contact: node)),\(after)]")
        let program = try Program(
          Checkout.folder.appending(path: "hardware/acceptance").path(), ["--output", scratch.location("out")],
          environment: ["MESHPOST_COMPARE": file])
        _ = try program.ended()
        return program.lines.last ?? ""
      }
      #expect(try compare(picture(contact: node)) == "[[], []]")
      #expect(try compare(picture(secret: "bb", contact: node)).contains("channels"))
      #expect(try compare(picture(contact: node.replacing("a0", with: "b0"))) == #"[["path of n"], []]"#)
      #expect(
        try compare(picture(contact: node.replacing("a0", with: "b0").replacing(":5", with: ":6")))
          == #"[[], ["path of n"]]"#)
      #expect(try compare(picture(contact: node.replacing("\"flags\":0", with: "\"flags\":1"))).contains("flags of n"))
    }

    @Test func `a device that is no radio fails the acceptance with a reason`() throws {
      let rig = try Rig()
      let program = try Program(
        Checkout.folder.appending(path: "hardware/acceptance").path(),
        [
          "--programs", Program.programs.path(), "--output", rig.scratch.location("out"), "--yes", "--link",
          "serial:\(rig.scratch.location("nothing"))",
        ], environment: ["MESHPOST_TEST_PATIENCE": "3"])
      #expect(try program.ended() == 1)
      #expect(program.lines.contains { $0.hasPrefix("FAILED  the radio is read") && $0.contains("does not exist") })
    }
  }
}
