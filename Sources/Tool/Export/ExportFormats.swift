// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

/// Writes rows in the format of another program.
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

/// RFC 4180 with a header line; every field is quoted. Times are RFC 3339 in UTC.
struct CSVWriter: ExportWriter {
  let columns: [String]
  var head: String { columns.map { Escaping.csv($0) }.joined(separator: ",") + "\r\n" }
  let tail = ""

  func row(_ row: JSONValue) -> String {
    columns.map { Self.cell($0, row[$0]) }.joined(separator: ",") + "\r\n"
  }

  private static func cell(_ column: String, _ value: JSONValue?) -> String {
    guard let value, value != .null else { return Escaping.csv("") }
    if let time = value.integer, milliseconds.contains(column), FourDigitYears.milliseconds.contains(time) {
      return Escaping.csv(Show.exact(time))
    }
    if let time = value.integer, seconds.contains(column) {
      return Escaping.csv(time > 0 && FourDigitYears.seconds.contains(time) ? Show.iso(time * 1000) : "")
    }
    return value.string.map { Escaping.cell($0) } ?? Escaping.csv(value.text)
  }

  /// Our times are in milliseconds since 1970, senders' times in seconds.
  private static let milliseconds = ["at", "received_at", "last_heard", "first_seen"]
  private static let seconds = ["sender_time", "last_advert"]
}

/// The times that RFC 3339 can write. Another one, of a senseless clock, stays a number, or is left out.
private enum FourDigitYears {
  static let seconds: ClosedRange<Int64> = -62_167_219_200...253_402_300_799
  static let milliseconds = seconds.lowerBound * 1000...seconds.upperBound * 1000 + 999
}

/// RFC 7946: a point for each row with a position; longitude first.
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

/// GPX 1.1: a waypoint for each row with a position.
struct GPXWriter: ExportWriter {
  let head = """
    <?xml version="1.0" encoding="UTF-8"?>
    <gpx version="1.1" creator="meshpost" xmlns="http://www.topografix.com/GPX/1/1">

    """
  let tail = "</gpx>\n"

  func row(_ row: JSONValue) -> String {
    guard let latitude = row["lat"]?.number, let longitude = row["lon"]?.number else { return "" }
    let name = row["alias"]?.string ?? row["name"]?.string ?? row["node"]?.string ?? ""
    let time = (row["at"]?.integer ?? row["last_heard"]?.integer).flatMap {
      FourDigitYears.milliseconds.contains($0) ? $0 : nil
    }
    let parts = [
      row["alt"]?.number.map { "<ele>\($0)</ele>" }, time.map { "<time>\(Show.iso($0))</time>" },
      "<name>\(Escaping.xml(name))</name>", row["type"]?.string.map { "<type>\(Escaping.xml($0))</type>" },
    ]
    return "  <wpt lat=\"\(latitude)\" lon=\"\(longitude)\">\(parts.compactMap { $0 }.joined())</wpt>\n"
  }
}

/// Writes readings with a position (telemetry of type `gps`), each as a row with a place and a time.
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
