// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes

/// Makes the manual from the commands, so that help, man pages and shapes cannot differ.
struct GenerateCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "generate", abstract: "Print man pages, shapes, or requests.", shouldDisplay: false)

  enum What: String, ExpressibleByArgument, CaseIterable { case man, shapes, requests, openapi }

  @Argument(help: "man: one page, or the names of all; shapes, requests: Markdown; openapi: both for programs.")
  var what: What
  @Argument(help: "With man: the page, such as meshpost-send.") var page: String?

  func run() throws {
    switch what {
    case .shapes: Console.page(ShapeReference.markdown)
    case .requests: Console.page(RequestReference.markdown)
    case .openapi: Console.page(RequestReference.openAPI)
    case .man:
      let pages = try ManualPages()
      guard let page else { return Console.page(pages.names.joined(separator: "\n")) }
      guard let text = pages.page(page) else { throw Failure.say("no such page: \(page)", 64) }
      Console.page(text, end: "")
    }
  }
}

/// The shapes for people, and for man pages.
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

  /// The fields of each shape, by its name. A field with a shape that is not here is refused.
  static let shapes = Dictionary(
    (Shapes.commands.values.compactMap(\.shape) + Shapes.parts
      + Route.allCases.flatMap { $0.request.answers.compactMap(\.shape) }).map { (name($0), fields($0)) },
    uniquingKeysWith: { first, _ in first })

  static func name(_ shape: Any) -> String { words("\(type(of: shape))") }

  /// `LinkState`: `link-state`.
  fileprivate static func words(_ type: String) -> String {
    String(type.flatMap { $0.isUppercase ? "-\($0.lowercased())" : "\($0)" }.dropFirst())
  }

  /// In the order of their declaration; a shape in a shape has its fields in its place.
  private static func fields(_ shape: Any) -> [Field] {
    Mirror(reflecting: shape).children.flatMap {
      ($0.value as? any DeclaredField).map { [$0.field] } ?? fields($0.value)
    }
  }

  /// The shape, and the shapes in it.
  static func family(_ shape: String) -> [String] {
    var family = [shape]
    var place = 0
    while place < family.count {
      for field in shapes[family[place]] ?? [] where shapes[field.base] != nil && !family.contains(field.base) {
        family.append(field.base)
      }
      place += 1
    }
    return family
  }

  static var markdown: String {
    var text = """
      # Output of `--json`

      Made by `make manual` from `Sources/Shared/ControlShapes`. Version \(Shapes.version): a change to a listed field raises it; an added
      field does not, and readers ignore names that they do not know. Times are milliseconds since 1970 unless noted otherwise. `?`: optional;
      `[]`: an array. *Rows* are one object a line. Answers are those of the [control socket](control-socket.md);
      its rows of `missed` events are told on standard error. Shapes that no command prints are those of other [requests](requests.md).

      | command | prints |
      |---|---|

      """
    for name in Shapes.commands.keys.sorted() {
      guard let answer = Shapes.commands[name], let shape = answer.name else { continue }
      text += "| `meshpost \(name)` | \(answer.kind == Answer.lines ? "rows of " : "")[\(shape)](#\(shape)) |\n"
    }
    for (name, fields) in shapes.sorted(by: { $0.key < $1.key }) {
      text += "\n## \(name)\n\n| name | type | |\n|---|---|---|\n"
      for field in fields {
        let type = shapes[field.base] == nil ? field.type : "[\(field.type)](#\(field.base))"
        text += "| `\(field.name)` | \(type) | \(field.summary) |\n"
      }
    }
    return String(text.dropLast())
  }
}

/// A field of any type, as the manual has it.
private protocol DeclaredField { var field: ShapeReference.Field { get } }

extension Field: DeclaredField {
  fileprivate var field: ShapeReference.Field {
    var (type, marks) = ("\(Value.self)"[...], "")
    for (generic, mark) in [("Optional<", "?"), ("Array<", "[]")] where type.hasPrefix(generic) {
      (type, marks) = (type.dropFirst(generic.count).dropLast(), mark + marks)
    }
    let plain = ["String": "string", "Int64": "integer", "Double": "number", "Bool": "bool", "JSONValue": "any"]
    let base = plain[String(type)] ?? ShapeReference.words(String(type))
    return .init(name: name.description, type: base + marks, summary: summary.description)
  }
}
