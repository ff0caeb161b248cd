// SPDX-License-Identifier: MIT

import HTTPTypes
import JSON

/// A request that the hub answers: its handler and its description in one place.
struct HubRoute: Sendable {
  let method: HTTPRequest.Method
  /// In the router's syntax: `/v1/gateways/{id}`, `**` for the rest of a path.
  let path: String
  let operation: HubAccess.Operation
  /// One sentence.
  let summary: String
  var parameters: [Parameter] = []
  var body: Shape?
  var answers: [Int: Shape] = [:]
  /// Refusals besides 400, 401, 403, 429 and 503, which any request may get.
  var refusals: [Int] = []
  var isStream = false
  let handler: HubAPI.Handler

  /// A parameter of the query.
  struct Parameter: Sendable {
    let name: String
    let shape: Shape
    let summary: String

    static func whole(_ name: String, _ summary: String) -> Self { Self(name: name, shape: .whole, summary: summary) }
    static func text(_ name: String, _ summary: String, most: Int? = nil) -> Self {
      Self(name: name, shape: .text(most: most), summary: summary)
    }
  }
}

/// The shape of JSON as far as it is promised: objects may have more fields.
indirect enum Shape: Sendable {
  case text(most: Int?)
  case oneOf([String])
  case whole
  case number
  case truth
  case any
  case list(Shape)
  /// Fields whose names end in `?` are optional.
  case object([(String, Shape)])

  static var text: Shape { .text(most: nil) }

  var schema: JSONValue {
    switch self {
    case .text(let most):
      .object([("type", .string("string"))] + (most.map { [("maxLength", .integer(Int64($0)))] } ?? []))
    case .oneOf(let words): .object([("type", .string("string")), ("enum", .array(words.map { .string($0) }))])
    case .whole: .object([("type", .string("integer"))])
    case .number: .object([("type", .string("number"))])
    case .truth: .object([("type", .string("boolean"))])
    case .any: .object([])
    case .list(let items): .object([("type", .string("array")), ("items", items.schema)])
    case .object(let fields):
      .object([
        ("type", .string("object")),
        ("properties", .object(fields.map { (Self.name($0.0), $0.1.schema) })),
        ("required", .array(fields.filter { !Self.isOptional($0.0) }.map { .string($0.0) })),
      ])
    }
  }

  private static func isOptional(_ name: String) -> Bool { name.utf8.last == UInt8(ascii: "?") }
  private static func name(_ name: String) -> String { isOptional(name) ? String(name.dropLast()) : name }
}

/// The OpenAPI 3.1 description of the API, made from the routes themselves.
enum OpenAPI {
  static func document(_ routes: [HubRoute]) -> [UInt8] {
    var paths: [(String, JSONValue)] = []
    var known: [String] = []
    for route in routes where !known.contains(route.path) { known.append(route.path) }
    for path in known {
      let fields = routes.filter { $0.path == path }.map { ("\($0.method)".lowercased(), operation($0)) }
      paths.append((path.replacing("**", with: "{key}"), .object(fields)))
    }
    var writer = JSONWriter()
    writer.value(
      .object([
        ("openapi", .string("3.1.0")),
        (
          "info",
          .object([
            ("title", .string("meshpost-hub")), ("version", .string("2")),
            ("description", .string("The journals of MeshCore gateways. Times are milliseconds since 1970 UTC.")),
          ])
        ),
        ("paths", .object(paths)),
        (
          "components",
          .object([
            (
              "securitySchemes",
              .object([("token", .object([("type", .string("http")), ("scheme", .string("bearer"))]))])
            ),
            ("schemas", .object([("Refusal", Shape.object([("error", .text), ("seq?", .whole)]).schema)])),
          ])
        ),
        ("security", .array([.object([("token", .array([]))])])),
      ]))
    return writer.bytes
  }

  private static func operation(_ route: HubRoute) -> JSONValue {
    var answers: [(String, JSONValue)] = route.answers.sorted { $0.key < $1.key }.map { status, shape in
      let kind = route.isStream ? "text/event-stream" : "application/json"
      return ("\(status)", content("The answer.", kind, route.isStream ? Shape.text.schema : shape.schema))
    }
    let refusals = Set([400, 401, 403, 429, 503] + route.refusals).subtracting(route.answers.keys).sorted()
    answers += refusals.map { status in
      let schema = JSONValue.object([("$ref", .string("#/components/schemas/Refusal"))])
      return ("\(status)", content("Refused.", "application/json", schema))
    }
    var fields: [(String, JSONValue)] = [
      ("summary", .string(route.summary)), ("parameters", .array(parameters(route))), ("responses", .object(answers)),
    ]
    if let body = route.body {
      fields.append(
        (
          "requestBody",
          .object([
            ("required", .bool(true)),
            ("content", .object([("application/json", .object([("schema", body.schema)]))])),
          ])
        ))
    }
    return .object(fields)
  }

  private static func content(_ words: String, _ kind: String, _ schema: JSONValue) -> JSONValue {
    .object([
      ("description", .string(words)), ("content", .object([(kind, .object([("schema", schema)]))])),
    ])
  }

  private static func parameters(_ route: HubRoute) -> [JSONValue] {
    let names = route.path.split(separator: "/").compactMap { part -> String? in
      if part == "**" { return "key" }
      return part.utf8.first == UInt8(ascii: "{") ? String(part.dropFirst().dropLast()) : nil
    }
    let inPath = names.map { name in
      parameter(name, "path", name == "position" ? .whole : .text, nil, isRequired: true)
    }
    return inPath + route.parameters.map { parameter($0.name, "query", $0.shape, $0.summary, isRequired: false) }
  }

  private static func parameter(
    _ name: String, _ place: String, _ shape: Shape, _ words: String?, isRequired: Bool
  ) -> JSONValue {
    .object(
      [("name", .string(name)), ("in", .string(place)), ("schema", shape.schema)]
        + (isRequired ? [("required", .bool(true))] : []) + (words.map { [("description", .string($0))] } ?? []))
  }
}
