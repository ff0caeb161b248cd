// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Testing

/// The description of the control socket (docs/control-socket.json), compared with a gateway.
@Suite struct RequestsOfAGatewayTests {
  private static let checkout = URL(filePath: #filePath).appending(path: "../../../..").standardizedFileURL
  private let description: JSONValue

  init() throws {
    let file = Self.checkout.appending(path: "docs/control-socket.json")
    description = try JSONValue(parsing: Array(try Data(contentsOf: file)))
  }

  private var operations: [(method: String, path: String, operation: JSONValue)] {
    (description["paths"]?.fields ?? []).flatMap { path, methods in
      (methods.fields ?? []).map { ($0.0.uppercased(), path, $0.1) }
    }
  }

  private func parameters(_ operation: JSONValue) -> [JSONValue] { operation["parameters"]?.array ?? [] }
  private func body(_ operation: JSONValue) -> JSONValue? {
    operation["requestBody"]?["content"]?["application/json"]?["schema"]
  }

  private static let key = "\"" + String(repeating: "ab", count: 32) + "\""
  /// The value for a name, as JSON, and for a name of one request. Other names are left out.
  private static let given = [
    "to": #""r1""#, "text": #""hello""#, "contact": #""r1""#, "node": #""r1""#, "name": #""r1""#,
    "channel": ##""#test""##, "emoji": #""👍""#, "message": "1", "key": #""settings/log_level""#, "value": #""info""#,
    "limit": "5", "level": #""all""#, "whom": #""r1""#, "cursor": #""1""#, "link": #""meshcore://channel/add?name=x""#,
    "upstream": #""hub""#, "command": #""ver""#, "direction": #""both""#, "slot": "7", "name_hex": #""7272""#,
    "address": #""no""#,
    "secret": #""00112233445566778899aabbccddeeff""#, "flood": "false", "state": #""open""#, "export": "true",
    "count": "true", "data_type": "1", "data": #""00ff""#,
    "/v1/contacts/add key": key, "/v1/contacts/put key": key, "/v1/channels/add channel": #""other""#,
    "/v1/contacts/add name": #""added""#, "/v1/node/tags value": #"["a"]"#, "/v1/channels/relay value": "true",
    "/v1/blocks/add channel": "null", "/v1/blocks/remove channel": "null",
  ]
  /// Requests with endless answers, and requests that use this machine's Bluetooth.
  private static let notAsked = ["/v1/live", "/v1/packets", "/v1/frames", "/v1/radio/scan", "/v1/doctor/bluetooth"]
  /// Requests that need more than this test has: another state of a message, a repeater, a configured server. All others succeed.
  private static let mayRefuse: Set = [
    "/v1/outgoing/retry", "/v1/outgoing/cancel", "/v1/outgoing/adopt", "/v1/contacts/export", "/v1/contacts/import",
    "/v1/contacts/share", "/v1/contacts/favourite", "/v1/node/login", "/v1/node/status", "/v1/node/telemetry",
    "/v1/node/neighbours", "/v1/node/access", "/v1/contacts/commands", "/v1/radio/survey", "/v1/radio/variables",
    "/v1/node/regions",
    "/v1/node/trace", "/v1/node/cli", "/v1/node/clock", "/v1/node/snapshot", "/v1/radio/set", "/v1/radio/pair",
    "/v1/radio/forget",
    "/v1/upstreams/test", "/v1/upstreams/skip", "/v1/upstreams/add", "/v1/upstreams/remove", "/v1/upstreams/forget",
    "/v1/alerts/acknowledge",
  ]

  @Test func `each request is answered as its description says`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("advert r1")
    rig.air("chan r1 0 good morning")
    try rig.until("a message") { try rig.texts().count == 1 }
    #expect(try rig.post("/v1/channels/add", ##"{"channel":"#test"}"##).status == 200)
    try rig.send("r1", "first", id: "a")
    try rig.until("a", is: "delivered")
    let conversation = try #require(try rig.rows("/v1/conversations").first?["conversation"]?.string)
    let removals = operations.filter { $0.path.hasSuffix("/remove") }
    let others = operations.filter { !$0.path.hasSuffix("/remove") && !Self.notAsked.contains($0.path) }
    for (method, path, operation) in others + removals {
      func given(_ name: String) -> String? { Self.given["\(path) \(name)"] ?? Self.given[name] }
      let names = parameters(operation).compactMap { $0["name"]?.string }
      let query = names.compactMap { name -> String? in
        if name == "id" { return "id=a" }
        guard let value = given(name) else { return nil }
        let text = value.replacing("\"", with: "").addingPercentEncoding(withAllowedCharacters: .alphanumerics)
        return "\(name)=\(text ?? "")"
      }
      let fields = (body(operation)?["properties"]?.fields ?? []).compactMap { name, _ in
        name == "conversation"
          ? #""conversation":"\#(conversation)""# : given(name).map { "\"\(name)\":\($0)" }
      }
      let target = path + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
      let answer = try rig.ask(method, target, body(operation) == nil ? "" : "{\(fields.joined(separator: ","))}")
      let responses = operation["responses"]
      #expect(responses?["\(answer.status)"] != nil || Self.mayRefuse.contains(path), "\(target): \(answer.status)")
      let kind = (answer.headers["Content-Type"] ?? "").prefix { $0 != ";" }
      let content = (responses?["\(answer.status)"] ?? responses?["default"])?["content"]
      let schema = try #require(content?[String(kind)]?["schema"], "\(method) \(target): \(answer.status) \(kind)")
      guard kind.hasPrefix("application/") && kind.hasSuffix("json") else { continue }
      let rows = kind == "application/json" ? [answer.body[...]] : answer.body.split(separator: 10)
      for row in rows {
        #expect(try problems(JSONValue(parsing: Array(row)), schema) == [], "\(method) \(target)")
      }
    }
  }

  @Test func `a skipped event is answered as described, and a refusal to skip one says why`() throws {
    let rig = try Rig()
    rig.hub.failsOver = { $0.body["text"]?.string == "poison" }
    try rig.startSynced()
    try rig.until("everything at the server") { try rig.upstream("hub")?["pending"]?.integer == 0 }
    rig.air("chan r1 0 poison")
    try rig.until("a failure") { rig.hasSaid("HTTP 500") }
    rig.air("chan r1 0 well")
    try rig.until("the next message") { try rig.texts().count == 2 }
    rig.hub.mood = .unreachable
    let refused = try rig.post("/v1/upstreams/skip?upstream=hub")
    #expect(refused.status == 400 && refused.json["code"]?.string == "invalid", "\(refused)")
    #expect(refused.json["error"]?.string == "hub: nothing is skipped: no connection")
    rig.hub.mood = .well
    let operation = description["paths"]?["/v1/upstreams/skip"]?["post"]
    let schema = try #require(operation?["responses"]?["200"]?["content"]?["application/json"]?["schema"])
    try rig.until("the event to be skipped") {
      guard try rig.upstream("hub")?["state"]?.string == "waiting" else { return false }
      let answer = try rig.post("/v1/upstreams/skip?upstream=hub")
      guard answer.status == 200 else { return false }
      #expect(problems(answer.json, schema) == [])
      return true
    }
    try rig.until("the other message") { rig.hub.texts == ["well"] }
    #expect(try rig.upstream("hub")?["dead_letters"]?.integer == 1)
  }

  @Test func `a parameter that a request does not have, or with a value of another kind, is refused`() throws {
    let rig = try Rig()
    try rig.startSynced()
    for (method, path, operation) in operations {
      func refusal(_ query: String) throws -> String? {
        let answer = try rig.ask(method, "\(path)?\(query)", body(operation) == nil ? "" : "{}")
        return answer.status == 400 ? try JSONValue(parsing: answer.body)["error"]?.string : nil
      }
      #expect(try refusal("limt=5")?.contains("\"limt\" is not a parameter") == true, "\(path)")
      for parameter in parameters(operation) {
        let (name, schema) = (parameter["name"]?.string ?? "", parameter["schema"])
        guard schema?["type"]?.string == "integer" || schema?["enum"] != nil else { continue }
        for value in ["x", "1.5", "", "%31%00"] {
          #expect(try refusal("\(name)=\(value)")?.contains("\"\(name)\" must be") == true, "\(path) \(name)=\(value)")
        }
      }
    }
  }

  /// The errors of a value; empty: none. An object of a declared shape has no other fields.
  private func problems(_ value: JSONValue, _ schema: JSONValue, _ place: String = "") -> [String] {
    if let name = schema["$ref"]?.string?.split(separator: "/").last {
      guard let named = description["components"]?["schemas"]?[String(name)] else { return ["no shape \(name)"] }
      let known = named["properties"]?.fields?.map(\.0) ?? []
      let others = (value.fields ?? []).map(\.0).filter { !known.contains($0) }
      return problems(value, named, place) + others.map { "\(place).\($0) is not declared in \(name)" }
    }
    if let schemas = schema["anyOf"]?.array {
      let all = schemas.map { problems(value, $0, place) }
      return all.contains([]) ? [] : all.flatMap { $0 }
    }
    let isRight =
      switch schema["type"]?.string {
      case "string": value.string != nil && schema["enum"]?.array?.contains(value) != false
      case "integer": value.integer != nil
      case "number": value.number != nil
      case "boolean": value.bool != nil
      case "array": value.array != nil
      case "object": value.fields != nil
      default: true
      }
    guard isRight else { return ["\(place) is no \(schema["type"]?.string ?? ""): \(value.text)"] }
    let missing = (schema["required"]?.array ?? []).compactMap(\.string).filter { value[$0] == nil }
    return missing.map { "\(place).\($0) is missing" }
      + (schema["properties"]?.fields ?? []).flatMap { name, inner in
        value[name].map { problems($0, inner, "\(place).\(name)") } ?? []
      }
      + (value.array ?? []).flatMap { one in schema["items"].map { problems(one, $0, place + "[]") } ?? [] }
  }

  @Test func `each name that a request reads is described, and each described name is read`() throws {
    let folder = Self.checkout.appending(path: "Sources/Gateway/Control/Routes")
    var (read, described): (Set<String>, Set<String>) = ([], [])
    for name in try FileManager.default.contentsOfDirectory(atPath: folder.path()) {
      let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
      let reading =
        /(?:query\[|(?:number|time|place)\(request, |body\.(?:string|optional|flag|integer|any|array)\(|body\.whole\[|request\.body\)\)\?\[)"(\w+)"/
      read.formUnion(text.matches(of: reading).map { String($0.1) })
    }
    for (_, _, operation) in operations {
      described.formUnion(parameters(operation).compactMap { $0["name"]?.string })
      described.formUnion((body(operation)?["properties"]?.fields ?? []).map(\.0))
    }
    #expect(read == described)
  }
}
