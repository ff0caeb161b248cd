// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import Messaging
import Store
import UntrustedText

/// `/v1/node/…`: requests to other nodes. Answers come over the air and take seconds.
struct NodeAPI {
  let dependencies: ControlAPI.Dependencies

  private var nodes: NodeService { dependencies.messaging.nodes }

  private func node(_ body: RequestBody) throws(Refusal) -> StoredContact {
    try Addressing(dependencies.store).contact(try body.string("node"))
  }

  static func answer(_ answer: NodeAnswer) -> Answer { .json { answer.write(to: &$0) } }

  func ask(_ question: NodeQuestion, _ body: RequestBody) async throws(Refusal) -> Answer {
    Self.answer(try await nodes.ask(question, of: node(body)))
  }

  func logIn(_ body: RequestBody) async throws(Refusal) -> Answer {
    let password = try body.optional("password").map { Text($0) }
    return Self.answer(
      try await nodes.logIn(node(body), password: password, keepsReadOnly: body.flag("read_only")))
  }

  func logOut(_ body: RequestBody) throws(Refusal) -> Answer {
    do {
      try nodes.credentials.set(nil, for: node(body).contact.key)
    } catch let refusal as Refusal {
      throw refusal
    } catch {
      throw .invalid("\(error)")
    }
    return .done
  }

  /// Requests telemetry of a node, or of the radio itself (`self`).
  func telemetry(_ body: RequestBody) async throws(Refusal) -> Answer {
    guard try body.string("node") == "self" else { return try await ask(.telemetry, body) }
    switch await dependencies.connection.ask(.sendTelemetryRequest(nil), .interactive) {
    case .pushed(.telemetryResponse(_, let data)): return Self.answer(.telemetry(Telemetry(decoding: data)))
    case .failed(.linkLost): throw .linkDown
    default: throw .radio("the radio did not return telemetry")
    }
  }

  func neighbours(_ body: RequestBody) async throws(Refusal) -> Answer {
    let neighbours = try await nodes.neighbours(of: node(body))
    return .json { json in
      json.field(Shape.Neighbours().total, neighbours.total)
      json.objects(Shape.Neighbours().neighbours, neighbours.entries) { entry, json in
        json.field(Shape.Neighbour().key, Hex.string(entry.key))
        json.field(Shape.Neighbour().name, dependencies.store.nameShown(for: KeyPrefix(bytes: entry.key)))
        json.field(Shape.Neighbour().heardS, entry.heardAgo)
        json.field(Shape.Neighbour().snr, entry.snr.decibels)
      }
    }
  }

  /// The access list of a repeater or room.
  func access(_ body: RequestBody) async throws(Refusal) -> Answer {
    let node = try node(body)
    guard node.contact.type != .chat else {
      throw .invalid("\(node.contact.name.string) is a companion: it has no access list")
    }
    guard case .access(let entries) = try await nodes.ask(.access, of: node) else {
      throw .radio("an unexpected answer")
    }
    return .json { json in
      json.objects(Shape.Access().entries, entries) { entry, json in
        NodeAnswer.write(entry, name: dependencies.store.nameShown(for: entry.prefix), to: &json)
      }
    }
  }

  func regions(_ body: RequestBody) async throws(Refusal) -> Answer {
    Self.answer(try await nodes.regions(of: node(body)))
  }

  func regionsAround() async throws(Refusal) -> Answer {
    let found = try await nodes.regionsAround()
    return .json { json in
      json.objects(Shape.RegionsAround().repeaters, found) { found, json in
        let row = Shape.RegionsOfRepeater()
        json.field(row.key, found.contact.key.hex)
        json.field(row.name, found.contact.name.string)
        switch found.answer {
        case .success(let names): json.field(row.carries, names)
        case .failure(let refusal): json.field(row.error, refusal.description)
        }
      }
    }
  }

  /// Traces the node's path there and back, or a given round trip in hex.
  func trace(_ body: RequestBody) async throws(Refusal) -> Answer {
    let contact = try node(body).contact
    let route: (path: [UInt8], flags: UInt8)
    if let hex = try body.optional("path") {
      let size = try body.integer("hash_bytes", in: 1...2) ?? 1
      guard let path = Hex.bytes(hex), !path.isEmpty, path.count <= 64, path.count % Int(size) == 0 else {
        throw .invalid("the round trip must be hexadecimal, \(size) bytes per hop, at most 64 bytes")
      }
      route = (path, UInt8(size - 1))
    } else {
      route = try Self.roundTrip(to: contact)
    }
    let stored = StoredContact(contact: contact, onRadio: true, firstSeen: 0, lastHeard: nil)
    return Self.answer(try await nodes.ask(.trace(path: route.path, flags: route.flags), of: stored))
  }

  /// The round trip along the node's path. The node itself takes part only if it is a repeater or a room: others do not
  /// pass packets on.
  static func roundTrip(to contact: Contact) throws(Refusal) -> (path: [UInt8], flags: UInt8) {
    guard let path = contact.outPath else {
      throw .invalid("no path to \(contact.name.string) is known; find one: meshpost contact path --discover")
    }
    // Traces have 1, 2 or 4 bytes per hop: of paths with 3, the first two are used.
    let size = min(path.length.bytesPerHop, 2)
    var hops = stride(from: 0, to: path.bytes.count, by: path.length.bytesPerHop).map {
      Array(path.bytes[$0..<$0 + size])
    }
    if contact.type == .repeater || contact.type == .room { hops.append(Array(contact.key.bytes.prefix(size))) }
    guard !hops.isEmpty else {
      throw .invalid("\(contact.name.string) is a direct neighbour: there are no hops to trace")
    }
    let trip = hops + hops.dropLast().reversed()
    guard trip.count * size <= 64 else { throw .invalid("the path is too long for a trace") }
    return (trip.flatMap { $0 }, UInt8(size - 1))
  }

  func command(_ body: RequestBody) async throws(Refusal) -> Answer {
    let node = try node(body)
    let text = Text(try body.string("command"))
    guard (1...156).contains(text.bytes.count), !text.bytes.contains(0) else {
      throw .invalid("a command must have 1 to 156 bytes")
    }
    guard node.contact.type != .chat else {
      throw .invalid("\(node.contact.name.string) is a companion: it has no CLI")
    }
    let answer = try await nodes.ask(.cli(text), of: node)
    return .json { json in
      answer.write(to: &json)
      if text.bytes.starts(with: Array("clock sync".utf8)) { json.field(Shape.Reply().warning, radioClock) }
      if text.bytes.starts(with: Array("password ".utf8)) {
        json.field(Shape.Reply().warning, Self.otherPassword(node.contact.name.string))
      }
    }
  }

  private static func otherPassword(_ name: String) -> String {
    "the gateway has the former password of \(name): meshpost node login \(Escaping.argument(name))"
  }

  /// What `clock sync` has passed on.
  private var radioClock: String {
    let (ours, radio) = (dependencies.synchronizer.now, dependencies.synchronizer.radioTime)
    let difference = radio.map { Int64($0) - ours.milliseconds / 1000 }
    let clock =
      switch difference {
      case let seconds? where ours.trusted && seconds != 0:
        "which is \(seconds.magnitude) s \(seconds < 0 ? "behind" : "ahead of") this machine's"
      case .some where ours.trusted: "which is right to the second"
      default: "of which nobody knows whether it is right"
      }
    return
      "clock sync passes the radio's own clock on, \(clock). meshpost node clock NAME --set sets it by this machine's"
  }

  /// Compares the node's clock with this machine's; `set`: sets it, `reboot`: even if the node has to be started anew for it. `clock_is_right` alone asks
  /// no node.
  func clock(_ body: RequestBody) async throws(Refusal) -> Answer {
    let (sets, mayReboot) = (try body.flag("set"), try body.flag("reboot"))
    guard sets || !mayReboot else { throw .invalid("reboot only goes with set") }
    if try body.flag("clock_is_right") {
      guard dependencies.store.confirmClock() else {
        throw .invalid("this machine's clock is not synchronised, and may be set at any time: see timedatectl")
      }
      dependencies.log.notice("somebody has said that this machine's clock is right")
      guard sets else { return .done }
    }
    let node = try node(body)
    guard sets else { return Self.clock(try await nodes.clock(of: node), "read") }
    switch try await nodes.setClock(of: node, mayReboot: mayReboot) {
    case .done(let found): return Self.clock(found, "right")
    case .ahead(let found): return Self.clock(found, "ahead")
    case .failed(let found): return Self.clock(found, "wrong")
    case .set, .reboot: throw .radio("the clock was not read again")
    }
  }

  private static func clock(_ found: ClockDifference, _ result: String) -> Answer {
    .json { json in
      json.field(Shape.NodeClock().offsetS, found.seconds)
      json.field(Shape.NodeClock().withinS, found.within)
      json.field(Shape.NodeClock().result, result)
    }
  }
}

extension Store {
  /// The name of the node whose key begins so. If it cannot be read, the key remains.
  func nameShown(for prefix: KeyPrefix?) -> String? {
    prefix.flatMap { prefix in ifReadable { try contact(prefix: prefix)?.contact.name.string } }
  }
}
