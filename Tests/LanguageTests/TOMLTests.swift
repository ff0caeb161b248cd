// SPDX-License-Identifier: MIT

import TOML
import Testing

@Suite struct TOMLTests {
  private func parse(_ text: String) throws(TOMLError) -> TOMLTable { try TOMLParser.parse(Array(text.utf8)) }

  @Test func `tables, lists of tables, dotted keys and all kinds of values`() throws {
    let table = try parse(
      """
      title = "a \\u00e9 \\"b\\""  # comment
      literal = 'C:\\x'
      long = \"\"\"
      two
      lines\"\"\"
      numbers = [1, 1_000, 0xff, -3, 2.5,
        7 ]
      on = true
      a.b.c = 1
      [server]
      port = 8080
      [[user]]
      name = "x"
      [[user]]
      name = "y"
      inline = { k = 1, l = "m" }
      """)
    #expect(table["title"]?.kind == .string("a é \"b\""))
    #expect(table["literal"]?.kind == .string("C:\\x"))
    #expect(table["long"]?.kind == .string("two\nlines"))
    guard case .array(let numbers)? = table["numbers"]?.kind else { return #expect(Bool(false)) }
    #expect(
      numbers.map(\.kind) == [.integer(1), .integer(1000), .integer(255), .integer(-3), .number(2.5), .integer(7)])
    #expect(table["server"]?.line == 10)
    guard case .array(let users)? = table["user"]?.kind else { return #expect(Bool(false)) }
    #expect(users.count == 2)
  }

  @Test(arguments: [
    ("a = 1\na = 2", 2, "twice"), ("a = \n", 1, "missing"), ("[a]\n[a]", 2, "twice"), ("a = \"x", 1, "does not end"),
    ("\n\na = 2026-11-21", 3, "date"), ("a = 1 b = 2", 1, "follows"), ("= 1", 1, "key is missing"),
    ("a = 1\n[a]\nb = 1", 2, "already"), ("a = 012", 1, "no value"), ("[a", 1, "missing"), ("a = [1 2]", 1, "`,`"),
  ]) func `mistakes are told with their line`(_ text: String, _ line: Int, _ words: String) {
    do {
      _ = try parse(text)
      Issue.record("\(text) was taken")
    } catch {
      #expect(error.line == line, "\(text): \(error)")
      #expect(error.reason.contains(words), "\(text): \(error)")
    }
  }

  @Test func `unknown keys and wrong kinds are collected, not only the first`() throws {
    var reader = TOMLReader(try parse("port = \"x\"\nnmae = 1\nlevel = \"loud\"\nsize = \"5 XB\""))
    _ = reader.integer("port", in: 1...10, default: 1)
    _ = reader.choice("level", of: ["low", "high"], default: "low")
    _ = reader.size("size", in: 0...10, default: 1)
    reader.finish()
    #expect(reader.errors.map(\.line).sorted() == [1, 2, 3, 4])
    #expect(reader.errors.contains { $0.reason.contains("nmae is not known here; known are: level, port, size") })
    #expect(reader.errors.contains { $0.reason.contains("low, high") })
  }
}
