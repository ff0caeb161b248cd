// SPDX-License-Identifier: MIT

import Glibc
import JSON
import Testing
import UntrustedText

/// Scalars that join their neighbours to one `Character`, or that are taken for another text.
let joiners = [
  "\u{600}", "\u{301}", "\u{200D}", "\u{FE0F}", "\u{1F1E8}", "\u{20E3}", "\u{110BD}", "\r", "\n", "\r\n", "\0",
  "\u{E0101}",
  "\u{308}\u{301}", "\u{1160}", "👩\u{200D}", "a", "",
]

@Suite struct EscapingTests {
  /// Every sign with each text before and after it, and twice.
  private func around(_ signs: [String]) -> [String] {
    signs.flatMap { sign in
      joiners.flatMap { before in
        joiners.flatMap { after in ["\(before)\(sign)\(after)", "x\(before)\(sign)\(after)\(sign)"] }
      }
    }
  }

  /// Reads one CSV row as in RFC 4180, by bytes like other readers.
  private func fields(_ row: String) -> [[UInt8]]? {
    var (fields, field): ([[UInt8]], [UInt8]) = ([], [])
    var rest = Array(row.utf8)[...]
    while !rest.isEmpty {
      guard rest.popFirst() == UInt8(ascii: "\"") else { return nil }
      while true {
        guard let byte = rest.popFirst() else { return nil }
        if byte != UInt8(ascii: "\"") {
          field.append(byte)
        } else if rest.first == byte {
          field.append(byte)
          rest.removeFirst()
        } else {
          break
        }
      }
      fields.append(field)
      field = []
      guard let separator = rest.popFirst() else { break }
      guard separator == UInt8(ascii: ",") else { return nil }
    }
    return fields
  }

  @Test func `a CSV field reads back unchanged, whatever character is next to its quotes`() {
    for text in around(["\"", ",", "\",\"", "\"=cmd|' /C calc'!A0\"", "\n"]) {
      let row = [Escaping.csv(text), Escaping.csv("second")].joined(separator: ",")
      #expect(fields(row) == [Array(text.utf8), Array("second".utf8)], "\(Array(text.unicodeScalars))")
    }
  }

  @Test func `a shell gets an untrusted name as exactly one argument`() throws {
    let signs = [
      "'", "''", "$(id)", "`id`", "\"", ";", "\\", "\n", "-rf", "-", "a b", "#x", "~", "*", "=", "é", "'\u{301}",
    ]
    for text in signs.flatMap({ [$0, "x\($0)", "\($0)y\($0)"] }) + [""] {
      let pipe = try #require(popen("set \(Escaping.argument(text)); printf %s \"$#:$1\"", "r"))
      defer { pclose(pipe) }
      var answer = [UInt8](repeating: 0, count: 256)
      let count = fread(&answer, 1, answer.count, pipe)
      #expect(Array(answer.prefix(count)) == Array("1:\(text)".utf8), "\(Array(text.unicodeScalars))")
    }
    #expect(Escaping.argument("Ridge_1.2") == "Ridge_1.2")
  }

  @Test func `no CSV cell is a formula, also behind invisible characters`() {
    for sign in ["=", "+", "-", "@", "\u{FF1D}", "\u{FF0B}", "\u{FF0D}", "\u{FF20}"] {
      for before in ["", " ", "\u{A0}", "\u{FEFF}", "\u{200B}", "\u{600}", "\u{202E}", "\u{1}", "\u{3164}"] {
        for after in joiners {
          let cell = fields(Escaping.cell("\(before)\(sign)\(after)1+1"))?.first ?? []
          #expect(cell.first == UInt8(ascii: "'"), "\(Array((before + sign + after).unicodeScalars))")
        }
      }
    }
    for text in ["\tx", "\rx", "\r\nx"] { #expect(Escaping.cell(text).utf8.dropFirst().first == UInt8(ascii: "'")) }
    for text in ["r1", "Grüezi", "1-2", "a=b", "日本", ""] { #expect(Escaping.cell(text) == "\"\(text)\"") }
  }

  /// Non-characters.
  private let nowhere = [0xFFFE, 0xFFFF, 0xFDD0, 0x1FFFE].compactMap { Unicode.Scalar($0 as UInt32) }.map(String.init)

  @Test func `escaped XML contains no markup characters and no characters that XML forbids`() {
    for text in around(["<", ">", "&", "\"", "'", "</name><script>", "]]>", "\u{1F}", "\u{85}"] + nowhere) {
      let escaped = Escaping.xml(text)
      #expect(!escaped.utf8.contains { "<>\"'".utf8.contains($0) }, "\(Array(text.unicodeScalars))")
      #expect(
        escaped.unicodeScalars.allSatisfy { scalar in
          scalar.value >= 0x20 && !(0x7F...0x9F).contains(scalar.value) && !scalar.properties.isNoncharacterCodePoint
        })
    }
    #expect(Escaping.xml("a<b>&\"c\"'\n") == "a&lt;b&gt;&amp;&quot;c&quot;&#39;&#10;")
  }

  @Test func `JSON in a script contains no HTML characters, and keeps its value`() throws {
    for text in around(["<", "</script>", "<!--", "&", "\u{2028}", "\u{2029}", "'", "\"", "\\", "😀"]) {
      let value = JSONValue.object([("name", .string(text)), (text, .null)])
      let script = Escaping.script(json: value.bytes)
      #expect(script.utf8.allSatisfy { (0x20...0x7E).contains($0) && !"<>&'".utf8.contains($0) })
      #expect(try JSONValue(parsing: script) == value, "\(Array(text.unicodeScalars))")
    }
  }
}

@Suite struct VisibleTests {
  private func isHarmless(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F...0x9F, 0x061C, 0x200B, 0x200E, 0x200F, 0x2028...0x202E, 0x2060...0x206F, 0xFEFF, 0xE0001: false
    default: true
    }
  }

  @Test func `escaped text cannot control a terminal, change the writing direction or hide characters`() {
    let steering = (0...0x10FFFF).compactMap { Unicode.Scalar($0) }.filter { !isHarmless($0) }
    #expect(steering.count > 80)
    for scalar in steering {
      for before in joiners {
        for after in joiners {
          let text = "\(before)\(scalar)\(after)"
          #expect(Visible.line(text).unicodeScalars.allSatisfy(isHarmless), "\(Array(text.unicodeScalars))")
          #expect(
            Visible.page(text).unicodeScalars.allSatisfy { isHarmless($0) || $0 == "\n" || $0 == "\t" },
            "\(Array(text.unicodeScalars))")
          let json = JSONValue.object([(text, .string(text))])
          let seen = Visible.json(json.text)
          #expect(seen.unicodeScalars.allSatisfy(isHarmless), "\(Array(text.unicodeScalars))")
          #expect((try? JSONValue(parsing: seen)) == json, "\(Array(text.unicodeScalars))")
        }
      }
    }
    #expect(Visible.line("a\u{1B}[31mb\u{9B}2J\u{202E}c\nd\te") == "a\u{FFFD}[31mb\u{FFFD}2J\u{FFFD}c d e")
    #expect(Visible.page("a\r\nb\rc\n\td") == "a\nb\u{FFFD}c\n\td")
  }

  @Test(arguments: [
    "Grüezi mitenand", "👩‍👩‍👧‍👦 ❤️‍🔥 1️⃣ 🇨🇭 👍🏽 🏴󠁧󠁢󠁳󠁣󠁴󠁿", "日本 한국 עברית العربية", "می‌خواهم", "ක්‍ෂ नमस्ते", "e\u{301}\u{323}", "葛󠄀", "\u{600}٣",
    "9️⃣8️⃣7️⃣6️⃣5️⃣4️⃣3️⃣2️⃣1️⃣", String(repeating: "e\u{301}le\u{300}ve ", count: 9),
  ]) func `ordinary text in any script stays unchanged`(_ text: String) {
    #expect(Visible.line(text).unicodeScalars.elementsEqual(text.unicodeScalars))
  }

  @Test func `hidden joiners, tags and stacks of combining marks are made visible`() {
    for text in [
      "Ali\u{200D}ce", "\u{200C}", "x\u{E0041}\u{E0042}", "1\u{FE0F}\u{FE0F}", "a\u{E0101}", "\u{3164}", "\u{AD}",
    ] {
      #expect(Visible.line(text).unicodeScalars.contains("\u{FFFD}"), "\(Array(text.unicodeScalars))")
    }
    let tower = "a" + String(repeating: "\u{301}", count: 50)
    #expect(Visible.line(tower).unicodeScalars.count { $0 == "\u{301}" } < 10)
  }
}

@Suite struct ExactTextTests {
  @Test func `texts are equal only if their bytes are equal`() {
    #expect("é" == "e\u{301}" && !"é".isExactly("e\u{301}"))
    #expect(!"⇄\u{301}x".hasPrefix("⇄") && "⇄\u{301}x".begins(with: "⇄"))
    #expect("x\r\n".ends(with: "\n") && !"x".ends(with: "xx"))
    #expect("a\r\nb\n\nc".lines == ["a", "b", "", "c"])
    #expect(" \t a b\r\n".trimmed == "a b" && " ".trimmed.isEmpty && " x".dropFirst().trimmed == "x")
    #expect(
      "k=\u{301}v=w".pieces(at: "=", most: 2).map { Array($0.utf8) } == [Array("k".utf8), Array("\u{301}v=w".utf8)])
    #expect(
      "aé日😀".cut(toBytes: 4).isExactly("aé") && "aé".cut(toBytes: 3).isExactly("aé") && "é".cut(toBytes: 1).isEmpty)
  }

  @Test func `an id is one line of visible characters`() {
    for fine in ["a", "7f3a-1", "Hügel 3", "👩\u{200D}🚒"] { #expect(Visible.isLine(fine, bytes: 1...48)) }
    let blank = ["", " ", "  ", "\u{A0}", "\u{2800}", "\u{3000}"]
    let long = String(repeating: "a", count: 49)
    for wrong in blank + ["a\0", "a\nb", "\ta", "a\u{85}", "\u{202E}a", "a\u{7F}", long] {
      #expect(!Visible.isLine(wrong, bytes: 1...48), "\(wrong.debugDescription)")
    }
  }
}
