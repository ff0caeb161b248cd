// SPDX-License-Identifier: MIT

import HTTP
import JSON
import TOML
import UntrustedText

extension FuzzTarget {
  static func json(_ bytes: [UInt8]) {
    guard let value = try? JSONValue(parsing: bytes) else { return }
    let written = value.bytes
    must((try? JSONValue(parsing: written)) == value, "JSON survives writing")
    let text = String(decoding: bytes, as: UTF8.self)
    must((try? JSONValue(parsing: Visible.json(text))) == value, "visible JSON has the same value")
    let script = Escaping.script(json: written)
    must((try? JSONValue(parsing: script)) == value, "JSON in a script has the same value")
    must(script.utf8.allSatisfy { (0x20...0x7E).contains($0) && !"<>&'".utf8.contains($0) }, "a script has no HTML")
    let canonical = EventContent.canonical(at: 1, kind: "contact", body: value)
    must((try? JSONValue(parsing: canonical)) != nil, "canonical content is JSON")
  }

  static func toml(_ bytes: [UInt8]) {
    let lines = bytes.count { $0 == 10 } + 1
    do {
      let table = try TOMLParser.parse(bytes)
      must(TOMLTable.changes(from: table, to: table).isEmpty, "a document does not differ from itself")
      var reader = TOMLReader(table)
      reader.finish()
      must(reader.errors.count == table.entries.count, "each key is known or is reported")
      must(reader.errors.allSatisfy { (1...lines).contains($0.line) }, "a mistake is on a line of the document")
    } catch {
      must((1...lines).contains(error.line), "a mistake is on a line of the document: \(error)")
    }
  }

  /// Texts of people and nodes: cleaned for terminals, tables, pages and links.
  static func text(_ bytes: [UInt8]) {
    let text = String(decoding: bytes, as: UTF8.self)
    let line = Visible.line(text)
    must(line.unicodeScalars.allSatisfy(isHarmless), "a visible line controls nothing")
    must(Visible.line(line).isExactly(line), "a visible line stays as it is")
    let page = Visible.page(text)
    must(
      page.unicodeScalars.allSatisfy { isHarmless($0) || $0 == "\n" || $0 == "\t" }, "a visible page controls nothing")
    must(Visible.page(page).isExactly(page), "a visible page stays as it is")
    must(field(Escaping.csv(text)) == Array(text.utf8), "a CSV field reads back")
    let cell = field(Escaping.cell(text)) ?? []
    must(!(cell.first.map { "=+-@\t\r".utf8.contains($0) } ?? false), "a cell is no formula")
    must(!Escaping.xml(text).utf8.contains { "<>\"'".utf8.contains($0) }, "XML text has no markup")
    must(PercentCoding.decode(PercentCoding.encode(text))?.isExactly(text) == true, "percent-encoding reads back")
    _ = PercentCoding.query(text)
    must(text.pieces(at: ",").joined(separator: ",").isExactly(text), "pieces join to the text")
    let most = Int(bytes.first ?? 0)
    let cut = text.cut(toBytes: most)
    must(cut.utf8.count <= most && text.begins(with: cut), "a cut text is a start of the text")
    if let relayed = RelayMark.text(sender: line, gateway: "g1", text: text) {
      must(RelayMark.isIn(relayed), "a relayed text has its mark")
    }
  }

  private static func isHarmless(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F...0x9F, 0x061C, 0x200B, 0x200E, 0x200F, 0x2028...0x202E, 0x2060...0x206F, 0xFEFF, 0xE0001: false
    default: true
    }
  }

  /// The content of one quoted CSV field; `nil`: it is none.
  private static func field(_ text: String) -> [UInt8]? {
    var (rest, field) = (Array(text.utf8)[...], [UInt8]())
    guard rest.popFirst() == UInt8(ascii: "\""), rest.popLast() == UInt8(ascii: "\"") else { return nil }
    while let byte = rest.popFirst() {
      guard byte != UInt8(ascii: "\"") || rest.popFirst() == byte else { return nil }
      field.append(byte)
    }
    return field
  }
}
