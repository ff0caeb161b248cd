// SPDX-License-Identifier: MIT

import Glibc
import JSON

/// Rows as another program takes them.
protocol ExportWriter {
  var head: String { get }
  var tail: String { get }
  mutating func row(_ row: JSONValue) -> String
}

struct JSONLinesWriter: ExportWriter {
  let head = ""
  let tail = ""

  func row(_ row: JSONValue) -> String { row.text + "\n" }
}

/// RFC 4180, with a line of names first.
struct CSVWriter: ExportWriter {
  let columns: [String]
  var head: String { columns.joined(separator: ",") + "\r\n" }
  let tail = ""

  func row(_ row: JSONValue) -> String { columns.map { Self.cell(row[$0]) }.joined(separator: ",") + "\r\n" }

  private static func cell(_ value: JSONValue?) -> String {
    guard let value, value != .null else { return "" }
    guard let text = value.string else { return quoted(value.text) }
    let isFormula = text.first.map { "=+-@\t\r".contains($0) } ?? false
    return quoted(isFormula ? "'" + text : text)
  }

  private static func quoted(_ text: String) -> String {
    guard text.contains(where: { $0 == "," || $0 == "\"" || $0.isNewline }) else { return text }
    return "\"" + text.replacing("\"", with: "\"\"") + "\""
  }
}

/// RFC 7946: a point for each row that has a position; longitude first.
struct GeoJSONWriter: ExportWriter {
  let head = "{\"type\":\"FeatureCollection\",\"features\":["
  let tail = "\n]}\n"
  private var isFirst = true

  mutating func row(_ row: JSONValue) -> String {
    guard let latitude = row["lat"]?.number, let longitude = row["lon"]?.number else { return "" }
    var json = JSONWriter()
    json.object { json in
      json.field("type", "Feature")
      json.objectField("geometry") { json in
        json.field("type", "Point")
        json.arrayField("coordinates") { json in
          json.value(longitude)
          json.value(latitude)
        }
      }
      json.objectField("properties") { json in
        for (name, value) in row.fields ?? [] where name != "lat" && name != "lon" { json.field(name, value) }
      }
    }
    defer { isFirst = false }
    return (isFirst ? "\n" : ",\n") + json.string
  }
}

/// GPX 1.1: a waypoint for each row that has a position.
struct GPXWriter: ExportWriter {
  let head = """
    <?xml version="1.0" encoding="UTF-8"?>
    <gpx version="1.1" creator="meshpost" xmlns="http://www.topografix.com/GPX/1/1">

    """
  let tail = "</gpx>\n"

  func row(_ row: JSONValue) -> String {
    guard let latitude = row["lat"]?.number, let longitude = row["lon"]?.number else { return "" }
    let name = row["alias"]?.string ?? row["name"]?.string ?? row["node"]?.string ?? ""
    let time = row["at"]?.integer ?? row["last_heard"]?.integer
    let parts = [
      row["alt"]?.number.map { "<ele>\($0)</ele>" }, time.map { "<time>\(Show.iso($0))</time>" },
      "<name>\(Self.escape(name))</name>", row["type"]?.string.map { "<type>\(Self.escape($0))</type>" },
    ]
    return "  <wpt lat=\"\(latitude)\" lon=\"\(longitude)\">\(parts.compactMap { $0 }.joined())</wpt>\n"
  }

  /// Text in XML: what it does not allow at all is left out.
  static func escape(_ text: String) -> String {
    var escaped = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": escaped += "&amp;"
      case "<": escaped += "&lt;"
      case ">": escaped += "&gt;"
      case "\"": escaped += "&quot;"
      case _ where scalar.value < 0x20 && !"\t\n\r".unicodeScalars.contains(scalar): break
      case _ where scalar.value == 0xFFFE || scalar.value == 0xFFFF: break
      default: escaped.unicodeScalars.append(scalar)
      }
    }
    return escaped
  }
}

/// Readings that hold a position (telemetry of type `gps`), each as a row with a place and a time.
struct TrackWriter<Places: ExportWriter>: ExportWriter {
  private var places: Places

  init(_ places: Places) { self.places = places }

  var head: String { places.head }
  var tail: String { places.tail }

  mutating func row(_ row: JSONValue) -> String {
    for reading in row["body"]?["readings"]?.array ?? [] where reading["type"]?.string == "gps" {
      let values = (reading["values"]?.array ?? []).compactMap(\.number)
      guard values.count >= 2, values[0] != 0 || values[1] != 0 else { continue }
      var fields: [(String, JSONValue)] = [("lat", .number(values[0])), ("lon", .number(values[1]))]
      if values.count > 2 { fields.append(("alt", .number(values[2]))) }
      if let at = row["at"] { fields.append(("at", at)) }
      if let node = row["body"]?["node"] { fields.append(("node", node)) }
      if let name = row["body"]?["name"] { fields.append(("name", name)) }
      return places.row(.object(fields))
    }
    return ""
  }
}
