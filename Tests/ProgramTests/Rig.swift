// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import HTTP
import JSON
import TestSupport

/// A gateway, a hub and a radio as programs, in a folder of their own.
final class Rig {
  let scratch = Scratch()
  let hubPort: Int
  var hub: Program?
  var gateway: Program?
  var radio: Program?
  var link: String
  /// The line between gateway and hub, each in its own network; `nil`: both are in this network.
  var line: ShapedLine?

  static let token = "a-token-for-the-tests"

  init() throws {
    // A free port; the hub keeps it across restarts.
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    hubPort = Int(port)
    link = "serial:\(scratch.location("radio.tty"))"
    _ = scratch.write("token", Self.token + "\n")
    writeHubConfiguration()
  }

  /// `database`: the address of a server, in place of a file.
  func writeHubConfiguration(database: String? = nil, extra: String = "") {
    _ = scratch.write(
      "hub.toml",
      """
      port = \(hubPort)
      database = "\(database ?? scratch.location("hub.db"))"
      \(extra)
      [[token]]
      file = "\(scratch.location("token"))"
      access = "all"
      """)
  }

  func writeGatewayConfiguration(url: String? = nil, extra: String = "", store: String = "") {
    _ = scratch.write(
      "gw.toml",
      """
      [radio]
      link = "\(link)"
      [store]
      location = "\(scratch.location("gw.db"))"
      \(store)
      [control]
      socket = "\(socket)"
      [[upstream]]
      name = "hub"
      url = "\(url ?? "http://127.0.0.1:\(hubPort)")"
      token_file = "\(scratch.location("token"))"
      \(UpstreamKeys.rights(beside: extra))
      \(extra)
      """)
  }

  /// Adds a key to a section of the written configuration.
  func addToGatewayConfiguration(_ section: String, _ line: String) throws {
    let file = scratch.location("gw.toml")
    let text = try String(contentsOfFile: file, encoding: .utf8)
    _ = scratch.write("gw.toml", text.replacingOccurrences(of: "[\(section)]\n", with: "[\(section)]\n\(line)\n"))
  }

  var socket: String { scratch.location("ctl") }

  /// Puts a line between gateway and hub before they start. `arguments`: of Tests/Doubles/shapedline.py.
  func shapeLine(_ arguments: [String], extra: String = "") throws {
    let line = try ShapedLine(arguments, door: scratch.location("door"), to: hubPort)
    self.line = line
    writeHubConfiguration(extra: "host = \"0.0.0.0\"")
    writeGatewayConfiguration(url: "http://\(line.farAddress):\(hubPort)", extra: extra)
  }

  /// Starts a virtual radio r0 on a pseudo-terminal, with others around it. `isKnown`: all have advertised and know each other; otherwise none knows
  /// another, as with new radios.
  func startRadio(_ arguments: [String] = [], isKnown: Bool = true) throws {
    radio = try Program.own(
      "meshpost-radio",
      ["--clock", "now", "--tty", "r0=\(scratch.location("radio.tty"))"] + (isKnown ? ["--advertise"] : []) + arguments)
    try radio?.line(with: "ready")
  }

  /// Removes its terminal first: otherwise another test's radio may get one with the same name, and the gateway would use it.
  func killRadio() {
    unlink(scratch.location("radio.tty"))
    radio?.kill9()
    radio = nil
  }

  func startHub() throws {
    hub = try Program.own("meshpost-hub", ["serve", "--config", scratch.location("hub.toml")], in: line?.far)
    try hub?.line(with: "listening")
  }

  func startGateway() throws {
    if !FileManager.default.fileExists(atPath: scratch.location("gw.toml")) { writeGatewayConfiguration() }
    gateway = try Program.own("meshpostd", ["--config", scratch.location("gw.toml")], in: line?.near)
    try gateway?.line(with: "meshpostd")
  }

  func waitForSync() throws {
    try untilTrue("the gateway to be synced: \(try status() ?? .null)\n\(gateway?.lines ?? [])") {
      try self.status()?["sync"]?["state"]?.string == "synced"
    }
  }

  var gatewayID: String? {
    let file = scratch.folder.appending(path: "gw.db.id")
    return (try? String(contentsOf: file, encoding: .utf8))?.trimmingCharacters(in: .whitespacesAndNewlines)
  }

  // MARK: Asking

  static func ask(_ endpoint: HTTPEndpoint, _ request: HTTPRequest) -> HTTPResponse? {
    let loop = EventLoop()
    let client = HTTPClient(endpoint, on: loop)
    var response: HTTPResponse?
    _ = loop.begin {
      // `try?`: without an answer the result is `nil`.
      response = try? await client.send(request, timeout: .seconds(20))
      loop.stop()
    }
    loop.run()
    client.close()
    return response
  }

  /// Sends a request to the control socket; `nil`: no answer.
  func control(_ method: String, _ target: String) -> HTTPResponse? {
    Self.ask(.unix(location: socket), HTTPRequest(method, target))
  }

  func status() throws -> JSONValue? {
    guard let response = control("GET", "/v1/status") else { return nil }
    return try JSONValue(parsing: response.body)
  }

  func askHub(
    _ method: String, _ target: String, body: String = "", token: String? = token, port: Int? = nil
  ) -> HTTPResponse? {
    var request = HTTPRequest(method, target, body: Array(body.utf8))
    if let token { request.headers.add("Authorization", "Bearer \(token)") }
    if let line { return Self.ask(.unix(location: line.door), request) }
    return Self.ask(.tcp(host: "127.0.0.1", port: UInt16(port ?? hubPort), tls: false), request)
  }

  /// Whether the hub's events of each lane are in order. The lanes are those of docs/hub-protocol.md: the daemon's own list is not asked.
  static func isInOrder(_ events: [JSONValue]) -> Bool {
    let nodes: Set<String> = ["contact", "contact_removed", "advert", "telemetry", "node_status"]
    var newest: [String: Int64] = [:]
    for event in events {
      let kind = event["kind"]?.string ?? ""
      let named = kind == "gap" ? event["body"]?["lane"]?.string : nil
      let lane = named ?? (nodes.contains(kind) ? "nodes" : kind == "packet" ? "packets" : "messages")
      let seq = event["seq"]?.integer ?? 0
      if seq <= newest[lane] ?? 0 { return false }
      newest[lane] = seq
    }
    return true
  }

  /// All rows that the hub has of the gateway, page by page.
  func hubRows(_ what: String) throws -> [JSONValue] {
    guard let id = gatewayID else { return [] }
    var rows: [JSONValue] = []
    var after = what == "contacts" ? "" : "0"
    while true {
      guard let response = askHub("GET", "/v1/gateways/\(id)/\(what)?after=\(after)&limit=1000"), response.status == 200
      else { return rows }
      let page = try JSONValue(parsing: response.body)
      rows += page[what]?.array ?? []
      guard let next = page["next"] else { return rows }
      after = next.string ?? "\(next.integer ?? 0)"
    }
  }

  /// Waits until the gateway has this many messages, and the hub has all of them. The hub is asked, too: if it lost something, the gateway reports
  /// nothing as pending until it has greeted the hub. `told`: events that came from the hub, and do not return to it.
  func waitForAllAtHub(messages: Int, told: Int64 = 0, _ note: @autoclosure () -> String = "") throws {
    try untilTrue("\(messages) messages at the hub \(note()): \(gateway?.lines.suffix(5) ?? [])") {
      // A retry with back-off need not slow the test down.
      _ = control("POST", "/v1/outbox/resume")
      guard let status = try status(), let store = status["store"], store["messages"]?.integer == Int64(messages),
        status["upstreams"]?.array?.first?["pending"]?.integer == 0,
        let answer = askHub("GET", "/v1/gateways/\(gatewayID ?? "")"), answer.status == 200
      else { return false }
      let last = store["last_seq"]?.integer ?? .max
      return try JSONValue(parsing: answer.body)["events"]?.integer ?? 0 >= last - told
    }
  }

  func hubTexts() throws -> [String] { try hubRows("messages").compactMap { $0["body"]?["text"]?.string } }

  /// The radio's own count of queued and returned messages.
  func radioStats() throws -> JSONValue {
    let before = radio?.lines.count ?? 0
    radio?.write("stats r0")
    let line = try radio?.line(with: "\"stats\"", from: before) ?? "{}"
    return try JSONValue(parsing: line)
  }

  /// `meshpost …`: exit code and lines.
  func meshpost(_ arguments: String...) throws -> (code: Int32, lines: [String]) {
    let program = try Program.own("meshpost", arguments + ["--socket", socket])
    let code = try program.ended()
    return (code, program.lines)
  }

  /// The gateway's resident memory in KiB.
  func resident() throws -> Int { Int(try status()?["resident_kib"]?.integer ?? 0) }
}
