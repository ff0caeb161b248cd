// SPDX-License-Identifier: MIT

import ControlShapes
import JSON
import OpenAPI

/// The requests of the control socket for people, and with the shapes and the commands that print them for programs.
enum RequestReference {
  static var openAPI: String {
    let commands = Shapes.commands.sorted { $0.key < $1.key }.map { name, answer -> (String, JSONValue) in
      (name, .object([("kind", .string(answer.kind)), ("shape", .string(answer.name ?? ""))]))
    }
    let document = OpenAPI.document(
      "meshpostd", version: "\(Shapes.version)",
      "HTTP/1.1 on a Unix socket, by default /run/meshpost/control.sock. Times are milliseconds since 1970 UTC.",
      Route.allCases.map(operation),
      schemas: ShapeReference.shapes.sorted { $0.key < $1.key }.map { ($0, .object($1.map(property))) },
      rest: [
        ("servers", .array([.object([("url", .string("http://meshpost"))])])), ("x-commands", .object(commands)),
      ])
    return lines(document, 3)
  }

  private static func operation(_ route: Route) -> OpenAPI.Operation {
    let (request, target) = (route.request, route.rawValue.split(separator: " ").map(String.init))
    let contents = Dictionary(grouping: request.answers, by: \.kind).sorted { $0.key < $1.key }.map { kind, answers in
      (kind, answers.count == 1 ? answers[0].schema : .either(answers.map(\.schema)))
    }
    return OpenAPI.Operation(
      target[0], target[1], request.summary.replacing(/\[([^\]]*)\]\([^)]*\)/) { $0.1 },
      parameters: route.query.map(\.parameter), body: request.body.map { .object($0) },
      answers: [("\(request.status)", contents), ("default", [("application/json", .named("refusal"))])])
  }

  private static func property(_ field: ShapeReference.Field) -> (String, Schema) {
    let plain: [String: Schema] = ["string": .text, "integer": .whole, "number": .number, "bool": .truth, "any": .any]
    let one = plain[field.base] ?? .named(field.base)
    let schema = field.isArray ? .list(one) : one
    let name = field.name + (field.isOptional ? "?" : "")
    return (name, field.summary.isEmpty ? schema : schema.described(field.summary))
  }

  /// A line for each field of the outer objects, so that changes can be read.
  private static func lines(_ value: JSONValue, _ depth: Int) -> String {
    guard depth > 0, let fields = value.fields else { return value.text }
    return "{\n" + fields.map { "\(JSONValue.string($0).text):\(lines($1, depth - 1))" }.joined(separator: ",\n") + "}"
  }

  static var markdown: String {
    var text = """
      # Requests of the control socket

      Made by `make manual` from `Sources/Shared/ControlShapes` and `Sources/Tool/Manual/Requests.swift`; for programs:
      [control-socket.json](control-socket.json), an OpenAPI 3.1 description of the [control socket](control-socket.md). `[]`, `?`: optional.
      Nodes and channels are named as on the command line. `radio`: whose rows, by a name, a key prefix, or `all`.

      | request | answer | | `meshpost` |
      |---|---|---|---|

      """
    for route in Route.allCases {
      let request = route.request
      let query =
        route.query.isEmpty
        ? "" : "?" + route.query.map { $0.isRequired ? $0.name : "[\($0.name)]" }.joined(separator: "&")
      let body = request.body.map { ", body \(object($0))" } ?? ""
      let answers = request.answers.map { answer in
        let name = answer.name.map { "[\($0)](json.md#\($0))" } ?? answer.fields.map(object) ?? "`\(answer.kind)`"
        return (answer.kind == Answer.lines ? "rows of " : "") + name
      }.joined(separator: ", or ")
      let commands = request.commands.map { "`\($0)`" }.joined(separator: ", ")
      text += "| `\(route.rawValue)\(query)`\(body) | \(answers) | \(request.summary) | \(commands) |\n"
    }
    return String(text.dropLast())
  }

  private static func object(_ fields: Request.Fields) -> String {
    let names = fields.map { $0.0.hasSuffix("?") ? "\"\($0.0.dropLast())\"?" : "\"\($0.0)\"" }
    return "`{\(names.joined(separator: ","))}`"
  }
}
