// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import JSON

/// Makes the manual from the commands, so that help, man pages and shapes cannot differ.
struct GenerateCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "generate", abstract: "Print man pages, or the shapes of --json.", shouldDisplay: false)

  enum What: String, ExpressibleByArgument, CaseIterable { case man, shapes, json }

  @Argument(help: "man: one page, or the names of all; shapes: Markdown; json: the shapes as JSON.") var what: What
  @Argument(help: "With man: the page, such as meshpost-send.") var page: String?

  func run() throws {
    switch what {
    case .shapes: Console.page(ShapeReference.markdown)
    case .json: print(ShapeReference.json.text)
    case .man:
      let pages = try ManualPages()
      guard let page else { return Console.page(pages.names.joined(separator: "\n")) }
      guard let text = pages.page(page) else { throw Failure.say("no such page: \(page)", 64) }
      Console.page(text, end: "")
    }
  }
}

/// The shapes for people, for programs, and for man pages.
enum ShapeReference {
  struct Field {
    let name: String
    let type: String
    let summary: String
    var isOptional: Bool { type.hasSuffix("?") }
    /// The type's name without the marks of arrays and options.
    var base: String { String(type.prefix { $0 != "?" && $0 != "[" }) }
    var isArray: Bool { type.contains("[]") }
  }

  static func fields(_ shape: String) -> [Field] {
    (Shapes.shapes[shape] ?? "").split(separator: "\n").map { line in
      let parts = line.split(separator: " ", maxSplits: 2).map(String.init)
      return Field(name: parts[0], type: parts.count > 1 ? parts[1] : "any", summary: parts.count > 2 ? parts[2] : "")
    }
  }

  /// The shape, and the shapes in it.
  static func family(_ shape: String) -> [String] {
    var family = [shape]
    var place = 0
    while place < family.count {
      for field in fields(family[place]) where Shapes.shapes[field.base] != nil && !family.contains(field.base) {
        family.append(field.base)
      }
      place += 1
    }
    return family
  }

  static var json: JSONValue {
    let shapes = Shapes.shapes.keys.sorted().map { name -> (String, JSONValue) in
      (
        name,
        .array(
          fields(name).map { field in
            .object([
              ("name", .string(field.name)), ("type", .string(field.base)), ("array", .bool(field.isArray)),
              ("optional", .bool(field.isOptional)),
            ])
          })
      )
    }
    let commands = Shapes.commands.keys.sorted().map { name -> (String, JSONValue) in
      let output = Shapes.commands[name]
      return (
        name,
        .object([
          ("form", .string(output?.form.rawValue ?? "")), ("shape", .string(output?.shape ?? "")),
        ])
      )
    }
    return .object([
      ("version", .integer(Int64(Shapes.version))), ("commands", .object(commands)), ("shapes", .object(shapes)),
    ])
  }

  static var markdown: String {
    var text = """
      # Output of `--json`

      Made by `make manual` from `Sources/Tool/Manual/Shapes.swift`. Version \(Shapes.version): a change to a listed field raises it; an added
      field does not, and readers ignore names that they do not know. Times are milliseconds since 1970 unless noted otherwise. `?`: optional;
      `[]`: an array. *Rows* are one object a line. Answers are those of the [control socket](control-socket.md);
      its rows of `missed` events are told on standard error.

      | command | prints |
      |---|---|

      """
    for name in Shapes.commands.keys.sorted() {
      guard let output = Shapes.commands[name] else { continue }
      text += "| `meshpost \(name)` | \(output.form == .rows ? "rows of " : "")[\(output.shape)](#\(output.shape)) |\n"
    }
    for name in Shapes.shapes.keys.sorted() {
      text += "\n## \(name)\n\n| name | type | |\n|---|---|---|\n"
      for field in fields(name) {
        let type = Shapes.shapes[field.base] == nil ? field.type : "[\(field.type)](#\(field.base))"
        text += "| `\(field.name)` | \(type) | \(field.summary) |\n"
      }
    }
    return String(text.dropLast())
  }
}
