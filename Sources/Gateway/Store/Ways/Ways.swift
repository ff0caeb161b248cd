// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import SQLite

/// A received or a sent message, by its number.
public enum MessageNumber: Hashable, Sendable {
  case received(Int64)
  case sent(Int64)

  fileprivate var table: String {
    switch self {
    case .received: "messages"
    case .sent: "outgoing"
    }
  }

  fileprivate var id: Int64 {
    switch self {
    case .received(let id), .sent(let id): id
    }
  }
}

/// The copies of a message that the radio heard, in the message's own row: so they cost no further page, and are deleted
/// with it.
extension Store {
  /// Within a `write`: adds copies to those of the message, up to `HeardCopy.most`.
  public func keepCopies(_ copies: [HeardCopy], of message: MessageNumber) throws(SQLiteError) {
    let known = try readCopies(of: message)
    try write(known + copies.prefix(max(0, HeardCopy.most - known.count)), of: message)
  }

  private func write(_ copies: [HeardCopy], of message: MessageNumber) throws(SQLiteError) {
    try database.run(
      "UPDATE \(message.table) SET ways = ? WHERE id = ?", .blob(copies.flatMap { $0.encode() }),
      .integer(message.id))
  }

  public func copies(of message: MessageNumber) throws(StoreError) -> [HeardCopy] {
    try translating { () throws(SQLiteError) in try readCopies(of: message) }
  }

  private func readCopies(of message: MessageNumber) throws(SQLiteError) -> [HeardCopy] {
    HeardCopy.decode(
      try database.value("SELECT ways FROM \(message.table) WHERE id = ?", .integer(message.id))?.blob ?? [])
  }

  /// Within a `write`: adds copies, and journals all that are kept of the message, because its own event was made before
  /// them. The event names what a filter needs to treat it like its message.
  public func tellCopies(_ copies: [HeardCopy], of message: MessageNumber, at moment: Moment) throws(SQLiteError) {
    var kept = try readCopies(of: message)
    kept += copies.prefix(max(0, HeardCopy.most - kept.count))
    guard kept.contains(where: { !$0.isTold }) else { return }
    for place in kept.indices { kept[place].isTold = true }
    try write(kept, of: message)
    try journal(kept, of: message, at: moment)
  }

  private func journal(_ copies: [HeardCopy], of message: MessageNumber, at moment: Moment) throws(SQLiteError) {
    let nodes = try nodes(on: copies)
    var body: [UInt8]?
    switch message {
    case .received(let id):
      try database.each(
        "SELECT identity, kind, sender, sender_name, channel, channel_name, radio FROM messages WHERE id = ?",
        [.integer(id)]
      ) { (row) throws(SQLiteError) in
        body = JSONWriter.object { json in
          let fields = Shape.Message()
          json.field(fields.id, id)
          json.field("identity", Hex.string(row.blob(0)))
          json.field(fields.kind, row.text(1))
          json.field(fields.sender, row.blobIfAny(2).map { Hex.string($0) })
          json.field(fields.senderName, row.blobIfAny(3).map { Text(bytes: $0).string })
          json.field(fields.channel, row.textIfAny(4))
          json.field(fields.channelName, row.blobIfAny(5).map { Text(bytes: $0).string })
          json.field(fields.radio, self.markInEvent(ofRadio: row.integer(6)))
          EventBody.write(copies, fields.ways, nodes, to: &json)
        }
        return false
      }
    case .sent(let id):
      guard let sent = try readOneOutgoing("id = ?", .integer(id)) else { return }
      body = JSONWriter.object { json in
        let fields = Shape.Outgoing()
        json.field(fields.id, sent.key)
        json.field(fields.number, id)
        json.field(fields.origin, sent.origin)
        json.field(fields.kind, sent.kind.rawValue)
        json.field(fields.recipient, sent.recipient?.hex)
        json.field(fields.channel, sent.channel)
        json.field(fields.radio, markInEvent(ofRadio: sent.radio))
        EventBody.write(copies, fields.heardBy, nodes, to: &json)
      }
    }
    if let body { try append(.ways, at: moment, body: body) }
  }

  /// The newest received messages, with a copy that no event has told.
  public func eachNewest(_ limit: Int, _ row: (StoredMessage, _ hasNews: Bool) -> Void) throws(StoreError) {
    try every(
      "SELECT \(Self.messageColumns), ways FROM messages ORDER BY id DESC LIMIT ?", [.integer(Int64(clamping: limit))]
    ) { row(Self.message($0), HeardCopy.decode($0.blobIfAny(19) ?? []).contains { !$0.isTold }) }
  }

  // MARK: Nodes on the way

  /// The known nodes that a hash on a way may mean. Even a single one is no fact: a node that nobody knows here may
  /// have the hash, too.
  public struct HashedNodes: Sendable {
    public var hash: [UInt8]
    /// Repeaters and rooms first.
    public var candidates: [(key: KeyPrefix, name: Text)] = []
    /// Further ones.
    public var more = 0
  }

  /// Different hashes whose nodes are listed, and nodes for each: paths on the air can be invented.
  private static let (mostHashes, mostCandidates, mostCounted) = (32, 4, 64)

  public func nodesOnWays(_ copies: [HeardCopy]) throws(StoreError) -> [HashedNodes] {
    try translating { () throws(SQLiteError) in try nodes(on: copies) }
  }

  private func nodes(on copies: [HeardCopy]) throws(SQLiteError) -> [HashedNodes] {
    var found: [HashedNodes] = []
    for hash in copies.lazy.flatMap(\.hashes) where !found.contains(where: { $0.hash == hash }) {
      guard found.count < Self.mostHashes else { break }
      var nodes = HashedNodes(hash: hash)
      try database.every(
        """
        SELECT substr(key, 1, 6), name FROM contacts WHERE key >= ?1 AND (?2 IS NULL OR key < ?2)
        ORDER BY type NOT IN (2, 3), on_radio DESC, last_heard DESC LIMIT \(Self.mostCounted)
        """, [.blob(hash), .optional(Self.next(hash))]
      ) { row in
        guard nodes.candidates.count < Self.mostCandidates, let key = KeyPrefix(bytes: row.blob(0)) else {
          nodes.more += 1
          return
        }
        nodes.candidates.append((key, Text(bytes: row.blob(1))))
      }
      found.append(nodes)
    }
    return found
  }

  /// The first key behind those that begin with these bytes; `nil`: there is none.
  private static func next(_ hash: [UInt8]) -> [UInt8]? {
    var next = hash
    while next.last == 0xFF { next.removeLast() }
    guard let last = next.popLast() else { return nil }
    return next + [last + 1]
  }
}

extension EventBody {
  /// Writes copies, and the nodes that their hashes may mean.
  public static func write(
    _ copies: [HeardCopy], _ field: Field<[Shape.Way]?>, _ nodes: [Store.HashedNodes], to json: inout JSONWriter
  ) {
    json.objects(field, copies) { copy, json in
      let row = Shape.Way()
      json.field(row.at, copy.at)
      json.field(row.path, copy.hashes.map { Hex.string($0) })
      // What is usual is left out: the event goes over slow lines, and has to fit a page of the database.
      json.field(row.hops, copy.path.count < copy.length.byteCount ? copy.length.hops : nil)
      json.field(row.route, copy.route.isFlood ? nil : "direct")
      json.field(row.region, copy.region)
      if copy.region == nil {
        json.field(row.regionCode, copy.code.map { HeardCopy.hex($0) })
      }
      json.field(row.snr, copy.snr.decibels)
      json.field(row.rssi, copy.rssi)
      json.field(row.guess, copy.isGuess ? true : nil)
    }
    guard !nodes.isEmpty else { return }
    json.objects(Shape.Message().wayNodes, nodes) { nodes, json in
      let row = Shape.WayNodes()
      json.field(row.hash, Hex.string(nodes.hash))
      json.objects(row.nodes, nodes.candidates) { node, json in
        json.field(Shape.WayNode().key, node.key.hex)
        json.field(Shape.WayNode().name, node.name.string)
      }
      json.field(row.more, nodes.more > 0 ? nodes.more : nil)
    }
  }
}
