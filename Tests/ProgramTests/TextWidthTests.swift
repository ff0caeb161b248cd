// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

@testable import meshpost

@Suite struct TextWidthTests {
  private func widths(_ arguments: String...) throws -> [String] {
    let script = Checkout.folder.appending(path: "Tests/widths").path()
    let program = try Program("/usr/bin/python3", [script] + arguments)
    return try program.ended() == 0 ? program.lines : []
  }

  @Test func `every character has the width of wcwidth`() throws {
    let location = Checkout.folder.appending(path: "Sources/Tool/Terminal/WidthTable.swift")
    let table = try String(contentsOf: location, encoding: .utf8).split(
      separator: "\n", omittingEmptySubsequences: false)
    let made = try widths()
    // Another version of Unicode, or none: the widths may differ.
    guard made.count > 2, made[2] == table[2] else { return }
    #expect(made == table.dropLast().map(String.init))
    let list = Array(try widths("--list").first?.utf8 ?? "".utf8)
    #expect(list.count == 0x110000)
    let wrong = list.indices.filter { code in
      guard let scalar = Unicode.Scalar(UInt32(code)), code >= 0x20, !(0x7F..<0xA0).contains(code) else { return false }
      return TextWidth.of(scalar) != Int(list[code]) - 0x30
    }
    #expect(wrong.isEmpty, "\(wrong.count): \(wrong.prefix(20))")
  }

  @Test(arguments: [
    ("🇨🇭", 2), ("👩‍👩‍👧‍👦", 2), ("❤️", 2), ("1️⃣", 2), ("👍🏽", 2), ("한", 2), ("e\u{301}", 1), ("日本", 4), ("Grüezi", 6), ("ก็", 1),
    ("", 0),
  ]) func `a joined sequence has the width of its visible form`(_ text: String, _ columns: Int) {
    #expect(TextWidth.of(text) == columns)
  }
}
