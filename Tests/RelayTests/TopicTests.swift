// SPDX-License-Identifier: MIT

import JSON
import Testing

@testable import Relay

@Suite struct TopicTests {
  private func topic(_ name: String) throws -> String {
    try TopicTemplate("mesh/{sender_name}/x").render(
      kind: "message", gateway: "g", body: .object([("sender_name", .string(name))]))
  }

  @Test func `what a broker hangs up over is replaced`() throws {
    let bad: [UInt32] = [0, 1, 0x1F, 0x7F, 0x80, 0x85, 0x9F, 0xFDD0, 0xFDEF, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF]
    for value in bad {
      let scalar = try #require(Unicode.Scalar(value))
      #expect(try topic("a\(Character(scalar))b") == "mesh/a_b/x", "U+\(String(value, radix: 16))")
    }
    // A combining accent makes one Character of the wildcard and itself.
    #expect(try topic("+\u{301}#\u{301}/\u{301}").unicodeScalars.contains { "+#".unicodeScalars.contains($0) } == false)
    #expect(try topic("Jörg 🙂 \u{A0}\u{FFFD}") == "mesh/Jörg 🙂 \u{A0}\u{FFFD}/x")
    #expect(try topic("") == "mesh/none/x")
  }

  @Test func `a name cannot make a topic of the broker's own`() throws {
    let template = try TopicTemplate("{sender_name}/x")
    let body = JSONValue.object([("sender_name", .string("$SYS"))])
    #expect(template.render(kind: "message", gateway: "g", body: body) == "_SYS/x")
    #expect(try TopicTemplate("$share/{kind}").render(kind: "message", gateway: "g", body: body) == "$share/message")
  }

  @Test(arguments: ["a+", "a+\u{301}", "#\u{301}", "a\u{85}", ""])
  func `a template that no broker takes is refused`(_ text: String) {
    #expect(throws: TopicTemplate.Failure.self) { try TopicTemplate(text) }
  }
}
