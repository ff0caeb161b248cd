// SPDX-License-Identifier: MIT

import JSON

/// The documented shapes of `--json`, printed by the command line, compared with its output.
struct JSONShapes {
  private let promised: JSONValue

  init() throws {
    let program = try Program.own("meshpost", ["generate", "json"])
    _ = try program.ended()
    promised = try JSONValue(parsing: program.lines.joined())
  }

  var commands: [String] { promised["commands"]?.fields?.map(\.0) ?? [] }

  /// The names of all fields.
  var names: Set<String> {
    Set((promised["shapes"]?.fields ?? []).flatMap { $0.1.array ?? [] }.compactMap { $0["name"]?.string })
  }

  /// The errors in a command's output; empty: none. `mayBeEmpty`: there may be no rows.
  func problems(_ command: String, _ lines: [String], mayBeEmpty: Bool = false) -> [String] {
    guard let output = promised["commands"]?[command], let shape = output["shape"]?.string else {
      return ["\(command) promises nothing"]
    }
    if lines.isEmpty { return mayBeEmpty ? [] : ["\(command) prints nothing"] }
    if output["form"]?.string == "object", lines.count != 1 { return ["\(command) prints \(lines.count) lines"] }
    return lines.flatMap { line -> [String] in
      // `try?`: a line that is no JSON is an error.
      guard let value = try? JSONValue(parsing: line) else { return ["\(command): no JSON: \(line)"] }
      return problems(value, shape, "\(command): ")
    }
  }

  private func problems(_ value: JSONValue, _ shape: String, _ place: String) -> [String] {
    guard let fields = value.fields else { return ["\(place)no object"] }
    let known = promised["shapes"]?[shape]?.array ?? []
    let names = Set(known.compactMap { $0["name"]?.string })
    var problems = fields.filter { !names.contains($0.0) }.map { "\(place)\($0.0) is not promised" }
    for field in known {
      let name = field["name"]?.string ?? ""
      guard let found = value[name] else {
        if field["optional"]?.bool == false { problems.append("\(place)\(name) is missing") }
        continue
      }
      problems += self.problems(found, field, place + name)
    }
    return problems
  }

  private func problems(_ value: JSONValue, _ field: JSONValue, _ place: String) -> [String] {
    let type = field["type"]?.string ?? ""
    if field["array"]?.bool == true {
      guard let values = value.array else { return ["\(place) is no array"] }
      return values.flatMap { one($0, type, place + "[]") }
    }
    return one(value, type, place)
  }

  private func one(_ value: JSONValue, _ type: String, _ place: String) -> [String] {
    let isRight =
      switch type {
      case "string": value.string != nil
      case "integer": value.integer != nil
      case "number": value.number != nil
      case "bool": value.bool != nil
      case "any": true
      default: value.fields != nil && promised["shapes"]?[type] != nil
      }
    guard isRight else { return ["\(place) is no \(type)"] }
    return promised["shapes"]?[type] == nil ? [] : problems(value, type, place + ".")
  }
}
