// SPDX-License-Identifier: MIT

import TOML
import Testing

@Suite struct TOMLTests {
  private func parse(_ text: String) throws(TOMLError) -> TOMLTable { try TOMLParser.parse(Array(text.utf8)) }

  @Test func `tables, lists of tables, dotted keys and all kinds of values are read`() throws {
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
    ("a = 1\na = 2", 2, "twice"), ("a = \n", 1, "missing"), ("[a]\n[a]", 2, "twice"), ("a = \"x", 1, "unterminated"),
    ("\n\na = 2026-11-21", 3, "date"), ("a = 1 b = 2", 1, "unexpected"), ("= 1", 1, "key is missing"),
    ("a = 1\n[a]\nb = 1", 2, "already"), ("a = 012", 1, "not a valid number"), ("[a", 1, "missing"),
    ("a = [1 2]", 1, "`,`"),
  ]) func `a mistake is reported with its line`(_ text: String, _ line: Int, _ words: String) {
    do {
      _ = try parse(text)
      Issue.record("\(text) was taken")
    } catch {
      #expect(error.line == line, "\(text): \(error)")
      #expect(error.reason.contains(words), "\(text): \(error)")
    }
  }

  /// Each document with its keys and values in one line.
  @Test(arguments: [
    ("\u{FEFF}a = 1", "a=1"), ("a = 1\r\nb = 2\r\n", "a=1 b=2"), ("a = inf\nb = -inf", "a=inf b=-inf"),
    ("a = nan", "a=nan"), ("a = +1\nb = -0", "a=1 b=0"), ("a = 1e3\nb = 6.02E+2_3", "a=1000.0 b=6.02e+23"),
    ("a = 0xDEAD_beef\nb = 0o17\nc = 0b1_0", "a=3735928559 b=15 c=2"),
    ("a = -9223372036854775808", "a=-9223372036854775808"),
    ("a = \"\"\"x \\\n   \n  y\"\"\"", "a=<x y>"), ("a = \"\"\"x \\  \r\n y\"\"\"", "a=<x y>"),
    ("a = \"\"\"x\r\ny\"\"\"", "a=<x\ny>"), ("a = \"\"\"\"x\"\"\"\"\"", "a=<\"x\"\">"), ("a = ''''x''''", "a=<'x'>"),
    ("a = \"\"\"\\\"\"\"\"", "a=<\">"), ("\"\" = 1\n'b c' = 2", "=1 b c=2"),
    // Equal as Strings in Swift, but two keys in TOML.
    ("\"\u{E9}\" = 1\n\"e\u{301}\" = 2", "\u{E9}=1 e\u{301}=2"),
    // A combining mark after a quote does not hide it.
    ("a = \"x\"\u{20}# \u{301}", "a=<x>"), ("a = \"\u{301}\"", "a=<\u{301}>"),
    ("[a.b]\nx = 1\n[a]\ny = 2", "a={b={x=1} y=2}"),
    ("[a]\nb.c = 1\nb.d = 2\n[a.b.e]\nf = 3", "a={b={c=1 d=2 e={f=3}}}"),
    ("[[a]]\n[[a.b]]\nx = 1\n[[a]]\n[a.b]\nx = 2", "a=[{b=[{x=1}]} {b={x=2}}]"), ("a = [ # x\n1, \n2,\n]", "a=[1 2]"),
    ("a = { b.c = 1, b.d = [ {}, ] }", "a={b={c=1 d=[{}]}}"),
  ]) func `each form that TOML 1.0 allows is read`(_ text: String, _ contents: String) throws {
    #expect(described(try parse(text)) == contents, "\(text.debugDescription)")
  }

  @Test(arguments: [
    ("a = 1.", 1), ("a = .5", 1), ("a = 1.e3", 1), ("a = 1e", 1), ("a = 1__0", 1), ("a = 1_", 1), ("a = -0xff", 1),
    ("a = +0b1", 1), ("a = 0x-1", 1), ("a = 0xG", 1), ("a = 0X1", 1), ("a = 00", 1), ("a = ++1", 1), ("a = Inf", 1),
    ("a = 9223372036854775808", 1), ("a = True", 1), ("a = 1\rb = 2", 1), ("a = 1 # x\ry", 1), ("a = 1 # \u{0}", 1),
    ("a = \"\u{1}\"", 1), ("a = '\u{7F}'", 1), ("\na = \"\"\"\n\u{1B}\"\"\"", 3), ("a = \"\"\"x\ry\"\"\"", 1),
    ("a = \"\"\"x\"\"\"\"\"\"", 1), ("a = \"\\u+123\"", 1), ("a = \"\\uD800\"", 1), ("a = \"\\x41\"", 1),
    ("a = \"\"\"\\ x\"\"\"", 1), ("\"\"\"a\"\"\" = 1", 1), ("'''\na''' = 1", 1), ("a\n= 1", 1), ("a =\n1", 1),
    ("[a]\nb = 1\n[a.b]", 3), ("[a.b]\n[a]\nb.c = 1", 3), ("a.b = 1\n[a]", 2), ("[t]\na.b = 1\n[t.a]", 3),
    ("a = {}\n[a.b]", 2), ("a = {}\na.b = 1", 2), ("a = { b = { c = 1 }, b.d = 2 }", 1),
    ("a = { b.c = 1 }\na.b.d = 2", 2),
    ("a = [{}]\n[[a]]", 2), ("a = []\n[[a]]", 2), ("[a]\n[[a]]", 2), ("[[a]]\n[a]", 2), ("[[a.b]]\n[[a]]", 2),
    ("a = { b = 1, }", 1), ("a = { b = 1\n}", 1), ("[ [a]]", 1), ("[a]]", 1), ("[]", 1), ("[a.]", 1), ("a = [1,,2]", 1),
    ("\u{FEFF}\u{FEFF}a = 1", 1), ("a = 12:00:00", 1),
  ]) func `each form that TOML 1.0 forbids is refused with its line`(_ text: String, _ line: Int) {
    do {
      let table = try parse(text)
      Issue.record("\(text.debugDescription) was taken as \(described(table))")
    } catch {
      #expect(error.line == line, "\(text.debugDescription): \(error)")
    }
  }

  @Test func `a mistake is one line, whatever it quotes`() throws {
    var reader = TOMLReader(try parse("a = 1\nb = \"x\\ny\\u001b[2J\""))
    let text = reader.string("b") ?? ""
    reader.note("b", "\"\(text)\" is not allowed")
    #expect(text == "x\ny\u{1B}[2J")
    #expect(reader.errors.map(\.line) == [2])
    #expect(
      reader.errors.allSatisfy { !$0.description.unicodeScalars.contains { $0.value < 0x20 } }, "\(reader.errors)")
  }

  @Test func `invalid UTF-8 is reported with its line`() {
    #expect(throws: TOMLError(line: 2, reason: "not valid UTF-8")) {
      try TOMLParser.parse(Array("a = 1\nb = \"".utf8) + [0xC3] + Array("\"\nc = 1".utf8))
    }
  }

  @Test(arguments: [[0xFF, 0xFE, 0x61, 0], [0xFE, 0xFF, 0, 0x61]] as [[UInt8]])
  func `a text in UTF-16 is named so`(_ bytes: [UInt8]) {
    #expect(throws: TOMLError(line: 1, reason: "the text is UTF-16: save it as UTF-8")) {
      try TOMLParser.parse(bytes)
    }
  }

  private func described(_ table: TOMLTable) -> String {
    table.entries.map { "\($0.key)=\(described($0.value))" }.joined(separator: " ")
  }

  private func described(_ value: TOMLValue) -> String {
    switch value.kind {
    case .string(let text): "<\(text)>"
    case .integer(let number): "\(number)"
    case .number(let number): "\(number)"
    case .bool(let bool): "\(bool)"
    case .array(let elements): "[\(elements.map(described).joined(separator: " "))]"
    case .table(let table): "{\(described(table))}"
    }
  }

  @Test func `a setting has changed if its text has other bytes, or is another list`() throws {
    let documents = ["a = \"\u{E9}\"", "a = \"e\u{301}\"", #"a = ["x\",\"y"]"#, #"a = ["x", "y"]"#]
    for (place, old) in documents.enumerated() {
      for (other, new) in documents.enumerated() {
        let changes = TOMLTable.changes(from: try parse(old), to: try parse(new))
        #expect(changes == (place == other ? [] : ["a"]), "\(old), \(new)")
      }
    }
  }

  @Test func `all unknown keys and wrong kinds are reported, not only the first`() throws {
    var reader = TOMLReader(try parse("port = \"x\"\nnmae = 1\nlevel = \"loud\"\nsize = \"5 XB\""))
    _ = reader.integer("port", in: 1...10, default: 1)
    _ = reader.choice("level", of: ["low", "high"], default: "low")
    _ = reader.size("size", in: 0...10, default: 1)
    reader.finish()
    #expect(reader.errors.map(\.line).sorted() == [1, 2, 3, 4])
    #expect(
      reader.errors.contains { $0.reason.contains("nmae is not a known key; expected one of: level, port, size") })
    #expect(reader.errors.contains { $0.reason.contains("low, high") })
  }

  @Test func `a word that is a number may be written as one, and another kind is answered with all words`() throws {
    var reader = TOMLReader(try parse("version = 5\nother = 6\nlevel = true"))
    let version = reader.choice("version", of: ["auto", "5"], default: "auto")
    #expect(version == "5")
    _ = reader.choice("other", of: ["auto", "5"], default: "auto")
    _ = reader.choice("level", of: ["low", "high"], default: "low")
    reader.finish()
    #expect(
      reader.errors.map(\.reason) == [
        "other: \"6\" is not allowed: auto, 5", "level: expected one of low, high, found true or false",
      ])
  }

  @Test func `an unknown key is answered with a near one, also with one that stands nowhere in the text`() throws {
    var reader = TOMLReader(try parse("lnik = 1\nwbe = 1\nspeed = 1"))
    _ = reader.string("link")
    let isThere = reader.optionalTable("web") != nil
    #expect(!isThere)
    reader.finish()
    let words = reader.errors.map(\.reason)
    #expect(
      words == [
        "lnik is not a known key (did you mean link?); expected one of: link, web",
        "wbe is not a known key (did you mean web?); expected one of: link, web",
        "speed is not a known key; expected one of: link, web",
      ])
  }

  @Test func `a table that may be missing is read with its mistakes`() throws {
    var reader = TOMLReader(try parse("[web]\nurl = 5"))
    let found = reader.optionalTable("web")
    var table = try #require(found)
    _ = table.string("url")
    table.finish()
    reader.finish()
    #expect(table.errors.map(\.line) == [2] && reader.errors.isEmpty)
  }

  @Test(arguments: ["inf", "-inf", "nan", "1e400", "2.5"]) func `only a whole number is read as an integer`(
    _ number: String
  ) throws {
    var reader = TOMLReader(try parse("port = \(number)"))
    #expect(reader.integer("port", in: 1...10, default: 3) == 3)
    #expect(reader.errors.count == 1)
  }
}
