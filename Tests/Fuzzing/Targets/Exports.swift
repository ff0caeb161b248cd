// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

@testable import meshpost

extension FuzzTarget {
  /// Rows of a gateway, one a line, with what strangers have sent over the air: exported for other programs.
  static func exports(_ bytes: [UInt8]) {
    // `try?`: a line that is no row is not exported.
    let rows = bytes.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) }
    let lines = export(rows, JSONLinesWriter()).utf8.split(separator: 10)
    must(lines.map { try? JSONValue(parsing: Array($0)) } == rows, "a row is a line that reads back")
    let columns = ["at", "name", "sender_time", "last_advert", "text", "lat"]
    must(
      records(export(rows, CSVWriter(columns: columns)))?.allSatisfy { $0.count == columns.count && isPlain($0) }
        == true,
      "each record has all columns, and no formula")
    for places in [export(rows, GeoJSONWriter()), export(rows, TrackWriter(GeoJSONWriter()))] {
      must((try? JSONValue(parsing: places))?["features"]?.array != nil, "GeoJSON is JSON: \(places)")
    }
    for track in [export(rows, GPXWriter()), export(rows, TrackWriter(GPXWriter()))] {
      must(isElements(track), "GPX has its own elements alone: \(track)")
    }
  }

  private static func export(_ rows: [JSONValue], _ writer: some ExportWriter) -> String {
    var writer = writer
    return writer.head + rows.map { writer.row($0) }.joined() + writer.tail
  }

  private static func isPlain(_ fields: [[UInt8]]) -> Bool {
    // A negative number begins with a sign, and is a number to a spreadsheet.
    fields.allSatisfy { field in
      !(field.first.map { "=+@\t\r".utf8.contains($0) } ?? false)
        && (field.first != UInt8(ascii: "-") || Double(String(decoding: field, as: UTF8.self)) != nil)
    }
  }

  /// The records of a CSV text whose fields are all quoted; `nil`: it is none.
  private static func records(_ text: String) -> [[[UInt8]]]? {
    var (rest, records, record) = (Array(text.utf8)[...], [[[UInt8]]](), [[UInt8]]())
    while !rest.isEmpty {
      guard rest.popFirst() == UInt8(ascii: "\"") else { return nil }
      var field: [UInt8] = []
      while let byte = rest.popFirst() {
        if byte == UInt8(ascii: "\"") {
          guard rest.first == byte else { break }
          rest.removeFirst()
        }
        field.append(byte)
      }
      record.append(field)
      switch rest.popFirst() {
      case UInt8(ascii: ","): continue
      case 13 where rest.popFirst() == 10:
        records.append(record)
        record = []
      default: return nil
      }
    }
    return record.isEmpty ? records : nil
  }

  /// Whether all elements are known ones, closed in order, and each attribute is a number or the format's own.
  private static func isElements(_ text: String) -> Bool {
    var open: [String] = []
    for part in text.utf8.split(separator: UInt8(ascii: "<")).dropFirst() {
      let sides = part.split(separator: UInt8(ascii: ">"), maxSplits: 1, omittingEmptySubsequences: false)
      guard sides.count == 2, !sides[1].contains(UInt8(ascii: ">")) else { return false }
      let words = sides[0].split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
      guard let element = words.first else { return false }
      if element.begins(with: "/") {
        guard open.popLast() == String(decoding: element.utf8.dropFirst(), as: UTF8.self) else { return false }
        continue
      }
      guard ["gpx", "wpt", "ele", "time", "name", "type"].contains(element) else { return false }
      let numbers = element == "wpt" ? words.dropFirst().map { $0.utf8.split(separator: UInt8(ascii: "\"")) } : []
      guard numbers.allSatisfy({ $0.count == 2 && Double(String(decoding: $0[1], as: UTF8.self))?.isFinite == true })
      else { return false }
      open.append(element)
    }
    return open.isEmpty
  }
}
