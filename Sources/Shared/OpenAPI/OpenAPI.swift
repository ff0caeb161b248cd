// SPDX-License-Identifier: MIT

import JSON

/// The shape of JSON as far as it is promised: objects may have more fields.
public struct Schema: Sendable, ExpressibleByDictionaryLiteral {
  let json: JSONValue

  private init(_ fields: [(String, JSONValue)]) { json = .object(fields) }
  private init(_ type: String) { json = .object([("type", .string(type))]) }

  public static let text = Schema("string")
  public static let whole = Schema("integer")
  public static let number = Schema("number")
  public static let truth = Schema("boolean")
  public static let any = Schema([])

  public static func text(most: Int) -> Schema {
    Schema([("type", .string("string")), ("maxLength", .integer(Int64(most)))])
  }
  public static func oneOf(_ words: [String]) -> Schema {
    Schema([("type", .string("string")), ("enum", .array(words.map { .string($0) }))])
  }
  public static func list(_ items: Schema) -> Schema { Schema([("type", .string("array")), ("items", items.json)]) }
  /// One of the description's schemas, by its name.
  public static func named(_ name: String) -> Schema { Schema([("$ref", .string("#/components/schemas/\(name)"))]) }
  public static func either(_ schemas: [Schema]) -> Schema { Schema([("anyOf", .array(schemas.map(\.json)))]) }
  /// Fields whose names end in `?` are optional.
  public static func object(_ fields: [(String, Schema)]) -> Schema {
    Schema([
      ("type", .string("object")), ("properties", .object(fields.map { (name($0.0), $0.1.json) })),
      ("required", .array(fields.filter { !isOptional($0.0) }.map { .string($0.0) })),
    ])
  }

  public init(dictionaryLiteral fields: (String, Schema)...) { self = .object(fields) }

  public func described(_ words: String) -> Schema { Schema((json.fields ?? []) + [("description", .string(words))]) }

  static func isOptional(_ name: String) -> Bool { name.utf8.last == UInt8(ascii: "?") }
  static func name(_ name: String) -> String { isOptional(name) ? String(name.dropLast()) : name }
}

/// An OpenAPI 3.1 description of an interface over HTTP.
public enum OpenAPI {
  public struct Operation: Sendable {
    let method: String, path: String
    let json: JSONValue

    /// Variable parts of `path` are in braces. `answers`: by status, each with its schemas by media type.
    public init(
      _ method: String, _ path: String, _ summary: String, parameters: [Parameter], body: Schema?,
      answers: [(String, [(String, Schema)])]
    ) {
      (self.method, self.path) = (method.lowercased(), path)
      let responses = answers.map { status, schemas -> (String, JSONValue) in
        let words = status.utf8.first == UInt8(ascii: "2") ? "The answer." : "Refused."
        return (status, JSONValue.object([("description", .string(words)), content(schemas)]))
      }
      let request = body.map { JSONValue.object([("required", .bool(true)), content([("application/json", $0)])]) }
      json = .object(
        [
          ("summary", .string(summary)), ("parameters", .array(parameters.map(\.json))),
          ("responses", .object(responses)),
        ] + (request.map { [("requestBody", $0)] } ?? []))
    }
  }

  public struct Parameter: Sendable {
    let json: JSONValue

    /// A name that ends in `?` is that of an optional parameter.
    public init(_ name: String, in place: String = "query", _ schema: Schema, _ summary: String? = nil) {
      json = .object(
        [("name", .string(Schema.name(name))), ("in", .string(place)), ("schema", schema.json)]
          + (Schema.isOptional(name) ? [] : [("required", .bool(true))])
          + (summary.map { [("description", .string($0))] } ?? []))
    }
  }

  private static func content(_ schemas: [(String, Schema)]) -> (String, JSONValue) {
    ("content", .object(schemas.map { kind, schema in (kind, .object([("schema", schema.json)])) }))
  }

  /// `rest`: further fields of the description, such as `security`.
  public static func document(
    _ title: String, version: String, _ words: String, _ operations: [Operation], schemas: [(String, Schema)],
    components: [(String, JSONValue)] = [], rest: [(String, JSONValue)]
  ) -> JSONValue {
    var paths: [(String, JSONValue)] = []
    for path in operations.map(\.path) where !paths.contains(where: { $0.0 == path }) {
      paths.append((path, .object(operations.filter { $0.path == path }.map { ($0.method, $0.json) })))
    }
    let info: [(String, JSONValue)] = [
      ("title", .string(title)), ("version", .string(version)), ("description", .string(words)),
    ]
    return .object(
      [
        ("openapi", .string("3.1.0")), ("info", .object(info)), ("paths", .object(paths)),
        ("components", .object(components + [("schemas", .object(schemas.map { ($0, $1.json) }))])),
      ] + rest)
  }
}
