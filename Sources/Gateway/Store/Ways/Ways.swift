// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import SQLite

/// A received or a sent message, by its number.
public enum MessageNumber: Hashable, Sendable {
  case received(Int64)
  case sent(Int64)

  /// Whole texts: making them for each message would cost time, too.
  fileprivate var readingWays: String {
    switch self {
    case .received: "SELECT ways FROM messages WHERE id = ? AND kind <> 'deleted'"
    case .sent: "SELECT ways FROM outgoing WHERE id = ? AND state <> 'deleted'"
    }
  }

  fileprivate var writingWays: String {
    switch self {
    case .received: "UPDATE messages SET ways = ? WHERE id = ? AND kind <> 'deleted'"
    case .sent: "UPDATE outgoing SET ways = ? WHERE id = ? AND state <> 'deleted'"
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
  func keepCopies(_ copies: [HeardCopy], of message: MessageNumber) throws(SQLiteError) {
    var kept = try readCopies(of: message)
    kept.add(copies)
    try writeWays(kept.encode(), of: message)
  }

  private func writeWays(_ bytes: [UInt8], of message: MessageNumber) throws(SQLiteError) {
    try database.run(message.writingWays, .blob(bytes), .integer(message.id))
  }

  /// The copies of a message, and how many were heard and not kept.
  public func copies(of message: MessageNumber) throws(StoreError) -> (kept: [HeardCopy], more: Int) {
    try translating { () throws(SQLiteError) in
      let found = try readCopies(of: message)
      return (found.copies, found.more)
    }
  }

  /// The newest event that told copies of the message; 0: none did.
  func newestEventOfCopies(_ message: MessageNumber) throws(SQLiteError) -> Int64 { try readCopies(of: message).event }

  private func readCopies(of message: MessageNumber) throws(SQLiteError) -> KeptCopies {
    try readCopiesIfThere(message) ?? KeptCopies()
  }

  /// `nil`: there is no such message.
  private func readCopiesIfThere(_ message: MessageNumber) throws(SQLiteError) -> KeptCopies? {
    let row = try database.value(message.readingWays, .integer(message.id))
    return row.map { KeptCopies(decoding: $0.blob ?? []) }
  }

  /// Within a `write`: adds copies, and journals all that are kept of the message, because its own event was made before
  /// them. `more`: copies that are not kept. They are told with the next that is.
  public func tellCopies(
    _ copies: [HeardCopy], more: Int = 0, of message: MessageNumber, at moment: Moment
  ) throws(SQLiteError) {
    guard var kept = try readCopiesIfThere(message) else { return }
    let (previous, moreBefore) = (kept.event, kept.more)
    kept.add(copies, more: more)
    guard kept.hasNews else {
      // Without a new copy, only their number can be another.
      if kept.more != moreBefore { try writeWays(kept.encode(), of: message) }
      return
    }
    kept.tell(by: nextSeq)
    let bytes = kept.encode()
    try writeWays(bytes, of: message)
    try append(.ways, at: moment, body: WaysReference(of: message, kept, bytes, after: previous).encode())
  }

  /// The newest received messages, with a copy that no event has told.
  public func eachNewest(_ limit: Int, _ row: (StoredMessage, _ hasNews: Bool) -> Void) throws(StoreError) {
    try every(
      "SELECT \(Self.messageColumns), ways FROM messages WHERE kind <> \(Tombstone.word) ORDER BY id DESC LIMIT ?",
      [.integer(Int64(clamping: limit))]
    ) { row(Self.message($0), KeptCopies(decoding: $0.blobIfAny(19) ?? []).hasNews) }
  }

  // MARK: Events

  /// The JSON of an event of copies. It names what a filter needs to treat it like its message. `nil`: the message is
  /// deleted or damaged.
  func body(of reference: [UInt8], _ nodes: inout NodesOnWays) throws(SQLiteError) -> [UInt8]? {
    guard let reference = WaysReference(decoding: reference),
      let copies = reference.copies(in: try readCopies(of: reference.message))
    else { return nil }
    let known = try nodes.on(copies, in: self)
    switch reference.message {
    case .received(let id):
      return try database.first(
        "SELECT \(Self.messageColumns), channel_name, event_radio FROM messages WHERE id = ?", [.integer(id)]
      ) { row in
        let message = Self.message(row)
        return JSONWriter.object { json in
          let fields = Shape.Message()
          json.field(fields.id, id)
          json.field("identity", Self.identityElsewhere(of: message))
          json.field(fields.kind, message.kind.rawValue)
          json.field(fields.sender, message.sender?.hex)
          json.field(fields.senderName, message.senderName?.string)
          json.field(fields.channel, message.channel)
          json.field(fields.channelName, row.blobIfAny(19).map { Text(bytes: $0).string })
          json.field(fields.radio, row.integerIfAny(20).flatMap { self.mark(ofRadio: $0) })
          EventBody.write(copies, more: reference.more, fields.ways, known, to: &json)
        }
      }
    case .sent(let id):
      guard let sent = try readOneOutgoing("id = ?", .integer(id)) else { return nil }
      return JSONWriter.object { json in
        let fields = Shape.Outgoing()
        json.field(fields.id, sent.key)
        json.field(fields.number, id)
        json.field(fields.origin, sent.origin)
        json.field(fields.kind, sent.kind.rawValue)
        json.field(fields.recipient, sent.recipient?.hex)
        json.field(fields.channel, sent.channel)
        json.field(fields.radio, markInEvent(ofRadio: sent.radio))
        EventBody.write(copies, more: reference.more, fields.heardBy, known, to: &json)
      }
    }
  }

  /// Call it within a `write`, before deleting these messages: events about their copies that the journal still has get
  /// the text that refers to the message. `rows`: SQL, selects their copies.
  func completeWays(of rows: String, _ values: SQLiteValue...) throws(SQLiteError) {
    let events = try database.rows(rows, values) { KeptCopies(decoding: $0.blob(0)).event }
    var nodes = NodesOnWays()
    for newest in events where newest >= journalState.open.oldest {
      var event = newest
      while event >= journalState.open.oldest, let previous = try completeWays(event, &nodes), previous < event {
        event = previous
      }
    }
  }

  /// Returns the message's event before; `nil`: this event was deleted, or is damaged.
  private func completeWays(_ seq: Int64, _ nodes: inout NodesOnWays) throws(SQLiteError) -> Int64? {
    let found: JournalEvent? = try database.first(
      "SELECT at, trusted, kind, body, checksum FROM journal WHERE seq = ?", [.integer(seq)]
    ) { row in
      let event = JournalEvent(
        seq: seq, at: row.integer(0), trusted: row.integer(1) != 0, kind: row.text(2), body: row.blob(3))
      return event.checksum == row.bits(4) ? event : nil
    }
    guard var event = found, let reference = WaysReference(decoding: event.body),
      let body = try self.body(of: event.body, &nodes)
    else { return nil }
    event.body = body
    try database.run(
      "UPDATE journal SET body = ?, checksum = ? WHERE seq = ?", .blob(body), .integer(event.checksum), .integer(seq))
    journalState.recount(Int64(body.count - event.size), EventKind.ways.lane)
    return reference.previous
  }
}

extension EventBody {
  /// Writes copies, how many `more` were not kept, and the nodes that the hashes may mean.
  public static func write(
    _ copies: [HeardCopy], more: Int, _ field: Field<[Shape.Way]?>, _ nodes: [Store.HashedNodes],
    to json: inout JSONWriter
  ) {
    json.objects(field, copies) { copy, json in
      let row = Shape.Way()
      json.field(row.at, copy.at)
      json.field(row.path, copy.hashes.map { Hex.string($0) })
      // What is usual is left out: the event goes over slow lines.
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
    json.field(Shape.Message().waysMore, more > 0 ? more : nil)
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
