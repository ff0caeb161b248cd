// SPDX-License-Identifier: MIT

import JSON

/// The documented shapes of `--json`, printed by the command line, compared with its output.
struct JSONShapes {
  private let promised: JSONValue

  init() throws {
    let program = try Program.own("meshpost", ["generate", "openapi"])
    _ = try program.ended()
    promised = try JSONValue(parsing: program.lines.joined())
  }

  var commands: [String] { promised["x-commands"]?.fields?.map(\.0) ?? [] }

  private func properties(_ shape: String) -> [(String, JSONValue)]? {
    promised["components"]?["schemas"]?[shape]?["properties"]?.fields
  }

  /// The names of all fields.
  var names: Set<String> {
    Set((promised["components"]?["schemas"]?.fields ?? []).flatMap { properties($0.0) ?? [] }.map(\.0))
  }

  /// The errors in a command's output; empty: none. `mayBeEmpty`: there may be no rows.
  func problems(_ command: String, _ lines: [String], mayBeEmpty: Bool = false) -> [String] {
    guard let output = promised["x-commands"]?[command], let shape = output["shape"]?.string else {
      return ["\(command) promises nothing"]
    }
    if lines.isEmpty { return mayBeEmpty ? [] : ["\(command) prints nothing"] }
    if output["kind"]?.string == "application/json", lines.count != 1 {
      return ["\(command) prints \(lines.count) lines"]
    }
    return lines.flatMap { line -> [String] in
      // `try?`: a line that is no JSON is an error.
      guard let value = try? JSONValue(parsing: line) else { return ["\(command): no JSON: \(line)"] }
      return problems(value, shape, "\(command): ")
    }
  }

  private func problems(_ value: JSONValue, _ shape: String, _ place: String) -> [String] {
    guard let fields = value.fields else { return ["\(place)no object"] }
    let known = properties(shape) ?? []
    let required = promised["components"]?["schemas"]?[shape]?["required"]?.array ?? []
    var problems = fields.filter { field in !known.contains { $0.0 == field.0 } }.map {
      "\(place)\($0.0) is not promised"
    }
    for (name, schema) in known {
      if let found = value[name] {
        problems += self.problems(found, schema, place + name)
      } else if required.contains(.string(name)) {
        problems.append("\(place)\(name) is missing")
      }
    }
    return problems
  }

  private func problems(_ value: JSONValue, _ schema: JSONValue, _ place: String) -> [String] {
    if let shape = schema["$ref"]?.string?.split(separator: "/").last {
      return properties(String(shape)) == nil
        ? ["\(place) is no \(shape)"] : problems(value, String(shape), place + ".")
    }
    let isRight =
      switch schema["type"]?.string {
      case "string": value.string != nil
      case "integer": value.integer != nil
      case "number": value.number != nil
      case "boolean": value.bool != nil
      case "array": value.array != nil
      default: schema["type"] == nil
      }
    guard isRight else { return ["\(place) is no \(schema["type"]?.string ?? "")"] }
    return (value.array ?? []).flatMap { one in schema["items"].map { problems(one, $0, place + "[]") } ?? [] }
  }
}
