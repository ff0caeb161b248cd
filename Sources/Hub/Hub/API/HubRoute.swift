// SPDX-License-Identifier: MIT

import HTTPTypes
import JSON
import OpenAPI

/// A request that the hub answers: its handler and its description in one place.
struct HubRoute: Sendable {
  let method: HTTPRequest.Method
  /// In the router's syntax: `/v1/gateways/{id}`, `**` for the rest of a path.
  let path: String
  let operation: HubAccess.Operation
  let handler: HubAPI.Handler
  private let described: OpenAPI.Operation

  /// `summary`: one sentence. `answer`: with status 200, and with 202 if it `isQueued`. `refusals`: besides 400, 401, 403,
  /// 429 and 503, which any request may get. `isStream`: its answer is a stream of events.
  init(
    _ method: HTTPRequest.Method, _ path: String, _ operation: HubAccess.Operation, _ summary: String,
    _ parameters: [OpenAPI.Parameter] = [], body: Schema? = nil, answer: Schema? = nil, isQueued: Bool = false,
    refusals: [Int] = [], isStream: Bool = false, handler: @escaping HubAPI.Handler
  ) {
    (self.method, self.path, self.operation, self.handler) = (method, path, operation, handler)
    let target = path.replacing("**", with: "{key}")
    let inPath = target.matches(of: /\{([^}]*)\}/).map { match in
      OpenAPI.Parameter(String(match.1), in: "path", match.1 == "position" ? .whole : .text)
    }
    let answers = [200: answer, 202: isQueued ? answer : nil].compactMapValues { $0 }
    let kind = isStream ? "text/event-stream" : "application/json"
    let refusals = Set([400, 401, 403, 429, 503] + refusals).subtracting(answers.keys).sorted()
    described = OpenAPI.Operation(
      "\(method)", target, summary, parameters: inPath + parameters, body: body,
      answers: answers.sorted { $0.key < $1.key }.map { ("\($0.key)", [(kind, isStream ? .text : $0.value)]) }
        + refusals.map { ("\($0)", [("application/json", .named("Refusal"))]) })
  }

  /// The OpenAPI description of the API, made from the routes themselves.
  static func document(_ routes: [HubRoute]) -> [UInt8] {
    let token = JSONValue.object([("type", .string("http")), ("scheme", .string("bearer"))])
    let document = OpenAPI.document(
      "meshpost-hub", version: "2", "The journals of MeshCore gateways. Times are milliseconds since 1970 UTC.",
      routes.map(\.described), schemas: [("Refusal", .object([("error", .text), ("seq?", .whole)]))],
      components: [("securitySchemes", .object([("token", token)]))],
      rest: [("security", .array([.object([("token", .array([]))])]))])
    return document.bytes
  }
}

extension OpenAPI.Parameter {
  static func whole(_ name: String, _ summary: String) -> Self { Self(name + "?", .whole, summary) }
  static func text(_ name: String, _ summary: String) -> Self { Self(name + "?", .text, summary) }
}
