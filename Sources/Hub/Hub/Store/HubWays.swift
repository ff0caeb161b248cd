// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto

/// The ways by which a message came to each of its hearers, from their newest events of its copies.
extension HubStore {
  /// Gateways whose copies are shown, and how many hearers are looked at.
  private static let (mostShown, mostAsked) = (16, 100)

  /// A message with its hearers' copies; `nil`: there is no message.
  func messageWithWays(_ position: Int64) throws(HubDatabaseError) -> [UInt8]? {
    guard let message = try joined([position]).first else { return nil }
    // `try?`: stored values were valid JSON when they arrived.
    guard let whole = try? JSONValue(parsing: message.json), let body = whole["body"],
      let identity = Self.identity(ofCopies: body)
    else { return message.json }
    let gateways = (whole["heard"]?.array ?? []).compactMap { $0["gateway"]?.string }
    let told = try ways(of: identity, at: Array(gateways.prefix(Self.mostAsked)))
    guard !told.isEmpty else { return message.json }
    let list = told.prefix(Self.mostShown).map { $0.text }.joined(separator: ",")
    let more = told.count > Self.mostShown ? ",\"ways_more\":\(told.count - Self.mostShown)" : ""
    return message.json.dropLast() + Array(",\"ways\":[\(list)]\(more)}".utf8)
  }

  /// The identity that gateways give to the message, from the words that all of them have; `nil`: it has none.
  static func identity(ofCopies body: JSONValue) -> String? {
    guard let kind = body["kind"]?.string, let time = body["sender_time"]?.integer.flatMap({ UInt32(exactly: $0) }),
      let text = body["text_hex"]?.string.flatMap({ Hex.bytes($0) }) ?? body["text"]?.string.map({ Array($0.utf8) })
    else { return nil }
    var traits = MessageTraits(kind: kind, time: time, text: text)
    traits.channel = body["channel"]?.string
    traits.sender = body["sender"]?.string.flatMap { Hex.bytes($0) } ?? []
    if kind == "channel" { traits.senderName = Array((body["sender_name"]?.string ?? "").utf8) }
    traits.author = body["author"]?.string.flatMap { Hex.bytes($0) } ?? []
    return Hex.string(traits.identity)
  }

  /// In the order of the gateways; each costs a look into the index, however many events it has sent.
  private func ways(of identity: String, at gateways: [String]) throws(HubDatabaseError) -> [JSONValue] {
    guard !gateways.isEmpty else { return [] }
    var found: [String: JSONValue] = [:]
    let named = HubSchema.message(ofWays: "x.body", database.dialect)
    let newest = joinEvents(
      """
      FROM events x WHERE x.kind = 'ways' AND \(named) = v.identity AND x.gateway = v.gateway ORDER BY x.id DESC LIMIT 1
      """)
    try database.read([
      HubCall(
        "SELECT v.gateway, e.body FROM @rows \(newest)",
        ["gateway": gateways, "identity": gateways.map { _ in identity }]
      ) { row in
        // `try?`: the same.
        found[row.text(0)] = (try? JSONValue(parsing: row.text(1))).flatMap { HeardWays(of: row.text(0), $0)?.json }
      }
    ])
    return gateways.compactMap { found[$0] }
  }
}

/// The copies that one gateway has told, within bounds: the gateway may be somebody else's.
private struct HeardWays {
  /// Copies; hops of each; hashes with their nodes, and nodes of each.
  private static let (mostCopies, mostHops, mostHashes, mostNodes) = (8, 64, 32, 4)
  /// Hexadecimal digits of a hash and of a node's key.
  private static let (hashDigits, keyDigits) = (6, 12)

  let json: JSONValue

  /// `nil`: the event has no copies.
  init?(of gateway: String, _ body: JSONValue) {
    let copies = (body["ways"]?.array ?? []).prefix(Self.mostCopies).map(Self.copy)
    guard !copies.isEmpty else { return nil }
    let nodes = (body["way_nodes"]?.array ?? []).prefix(Self.mostHashes).map { hash in
      Self.object([
        ("hash", Self.digits(hash["hash"], Self.hashDigits)),
        ("nodes", .array((hash["nodes"]?.array ?? []).prefix(Self.mostNodes).compactMap { Self.node($0, of: hash) })),
        ("more", Self.count(hash["more"])),
      ])
    }
    json = Self.object([
      ("gateway", .string(gateway)), ("ways", .array(copies)), ("ways_more", Self.count(body["ways_more"])),
      ("way_nodes", nodes.isEmpty ? nil : .array(nodes)),
    ])
  }

  private static func copy(_ way: JSONValue) -> JSONValue {
    object([
      ("at", count(way["at"], most: latest) ?? .integer(0)),
      ("path", .array((way["path"]?.array ?? []).prefix(mostHops).compactMap { digits($0, hashDigits) })),
      ("hops", count(way["hops"])), ("route", way["route"]?.string == "direct" ? .string("direct") : nil),
      ("region", name(way["region"])), ("region_code", digits(way["region_code"], 4)), ("snr", number(way["snr"])),
      ("rssi", number(way["rssi"])), ("guess", way["guess"]?.bool == true ? .bool(true) : nil),
    ])
  }

  private static func object(_ fields: [(String, JSONValue?)]) -> JSONValue {
    .object(fields.compactMap { name, value in value.map { (name, $0) } })
  }

  /// `nil`: its key does not begin with the hash.
  private static func node(_ node: JSONValue, of hash: JSONValue) -> JSONValue? {
    guard let key = digits(node["key"], keyDigits)?.string, let beginning = digits(hash["hash"], hashDigits)?.string,
      key.utf8.starts(with: beginning.utf8)
    else { return nil }
    return object([("key", .string(key)), ("name", name(node["name"]) ?? .string(""))])
  }

  private static func number(_ value: JSONValue?) -> JSONValue? { value?.number == nil ? nil : value }

  /// The last millisecond of the dates that browsers know.
  private static let latest: Int64 = 8_640_000_000_000_000

  private static func count(_ value: JSONValue?, most: Int64 = Int64(Int32.max)) -> JSONValue? {
    value?.integer.flatMap { (0...most).contains($0) ? .integer($0) : nil }
  }

  private static func name(_ value: JSONValue?) -> JSONValue? {
    HubBounds.cut(value?.string, HubBounds.nameBytes).map { .string($0) }
  }

  private static func digits(_ value: JSONValue?, _ most: Int) -> JSONValue? {
    value?.string.flatMap { text in
      text.utf8.count <= most && text.utf8.allSatisfy(Self.isDigit) ? .string(text) : nil
    }
  }

  private static func isDigit(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte)
  }
}
