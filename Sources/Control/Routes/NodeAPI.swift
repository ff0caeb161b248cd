// SPDX-License-Identifier: MIT

import Companion
import HTTP
import JSON
import Messaging
import Store

/// `/v1/node/…`: what other nodes are asked. Answers come over the air and take seconds.
final class NodeAPI {
  static let paths = ["login", "logout", "status", "telemetry", "neighbours", "trace", "cli"].map { "/v1/node/\($0)" }

  private let parts: ControlAPI.Parts

  init(_ parts: ControlAPI.Parts) { self.parts = parts }

  private var nodes: NodeService { parts.messaging.nodes }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    guard request.method == "POST", Self.paths.contains(request.path) else { return false }
    do throws(Refusal) {
      let body = try RequestBody(request)
      let name = try body.string("node")
      if request.path == "/v1/node/telemetry", name == "self" { return ownTelemetry(responder) }
      let node = try Addressing(parts.store).contact(name)
      switch request.path {
      case "/v1/node/login":
        let password = try body.optional("password")
        nodes.logIn(node, password: password.map { Text($0) }, keepsReadOnly: body.flag("read_only")) {
          Self.tell($0, responder)
        }
      case "/v1/node/logout": try forget(node.contact, responder)
      case "/v1/node/status": nodes.ask(.status, of: node) { Self.tell($0, responder) }
      case "/v1/node/telemetry": nodes.ask(.telemetry, of: node) { Self.tell($0, responder) }
      case "/v1/node/neighbours": neighbours(node, responder)
      case "/v1/node/trace": try trace(node.contact, body, responder)
      default: try command(node, body, responder)
      }
    } catch {
      Answering.refuse(responder, error)
    }
    return true
  }

  static func tell(_ result: Result<NodeAnswer, Refusal>, _ responder: HTTPResponder) {
    switch result {
    case .failure(let refusal): Answering.refuse(responder, refusal)
    case .success(let answer): Answering.answer(responder) { answer.write(to: &$0) }
    }
  }

  private func forget(_ contact: Contact, _ responder: HTTPResponder) throws(Refusal) {
    do {
      try nodes.credentials.set(nil, for: contact.key)
    } catch {
      throw .invalid("\(error)")
    }
    Answering.answer(responder) { $0.field("ok", true) }
  }

  private func neighbours(_ node: StoredContact, _ responder: HTTPResponder) {
    nodes.neighbours(of: node) { [store = parts.store] result in
      switch result {
      case .failure(let refusal): Answering.refuse(responder, refusal)
      case .success(let neighbours):
        Answering.answer(responder) { json in
          json.field("total", neighbours.total)
          json.arrayField("neighbours") { json in
            for entry in neighbours.entries {
              // `try?`: without its name it still has its key.
              let known = KeyPrefix(bytes: entry.key).flatMap { (try? store.contact(prefix: $0)) ?? nil }
              json.object { json in
                json.field("key", Hex.string(entry.key))
                json.field("name", known?.contact.name.string)
                json.field("heard_s", entry.heardAgo)
                json.field("snr", entry.snr.decibels)
              }
            }
          }
        }
      }
    }
  }

  /// There and back along the node's path, or a round trip that is given as hex.
  private func trace(_ contact: Contact, _ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let route: (path: [UInt8], flags: UInt8)
    if let hex = try body.optional("path") {
      let size = try body.integer("hash_bytes", in: 1...2) ?? 1
      guard let path = Hex.bytes(hex), !path.isEmpty, path.count <= 64, path.count % Int(size) == 0 else {
        throw .invalid("a round trip is hex, \(size) bytes a hop, at most 64 bytes")
      }
      route = (path, UInt8(size - 1))
    } else {
      route = try Self.roundTrip(to: contact)
    }
    let stored = StoredContact(contact: contact, onRadio: true, firstSeen: 0, lastHeard: nil)
    nodes.ask(.trace(path: route.path, flags: route.flags), of: stored) { Self.tell($0, responder) }
  }

  /// A node at the end of its path takes part itself when it is a repeater or a room: others do not pass packets on.
  static func roundTrip(to contact: Contact) throws(Refusal) -> (path: [UInt8], flags: UInt8) {
    guard let path = contact.outPath else {
      throw .invalid("no path to \(contact.name.string) is known; find one: meshpost contact path --discover")
    }
    // A trace has 1, 2 or 4 bytes a hop: of paths with 3 the first two are taken.
    let size = min(path.length.bytesPerHop, 2)
    var hops = stride(from: 0, to: path.bytes.count, by: path.length.bytesPerHop).map {
      Array(path.bytes[$0..<$0 + size])
    }
    if contact.type == .repeater || contact.type == .room { hops.append(Array(contact.key.bytes.prefix(size))) }
    guard !hops.isEmpty else { throw .invalid("\(contact.name.string) is a direct neighbour: nothing lies between") }
    let trip = hops + hops.dropLast().reversed()
    guard trip.count * size <= 64 else { throw .invalid("the path is too long for a trace") }
    return (trip.flatMap { $0 }, UInt8(size - 1))
  }

  private func command(_ node: StoredContact, _ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let text = Text(try body.string("command"))
    guard (1...156).contains(text.bytes.count), !text.bytes.contains(0) else {
      throw .invalid("a command has 1 to 156 bytes")
    }
    guard node.contact.type != .chat else {
      throw .invalid("\(node.contact.name.string) is a companion: it has no CLI")
    }
    nodes.ask(.cli(text), of: node) { Self.tell($0, responder) }
  }

  private func ownTelemetry(_ responder: HTTPResponder) -> Bool {
    let id = parts.connection.submit(.sendTelemetryRequest(nil), .interactive) { outcome in
      guard case .pushed(.telemetryResponse(_, let data)) = outcome else {
        return Answering.refuse(responder, .radio("the radio does not tell its telemetry"))
      }
      Answering.answer(responder) { NodeAnswer.telemetry(Telemetry(decoding: data)).write(to: &$0) }
    }
    if id == nil { Answering.refuse(responder, .linkDown) }
    return true
  }
}
