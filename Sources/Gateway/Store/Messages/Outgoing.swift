// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import SQLite
import UntrustedText

/// The state of a sent message.
public enum OutgoingState: String, Sendable, CaseIterable {
  /// The message waits for its turn.
  case pending
  /// The radio is getting the message.
  case sending
  /// Transmitted. The final state of a channel message, which nobody acknowledges.
  case sent
  case delivered
  case failed
  /// A round of attempts was not acknowledged: the message is sent again when its recipient gives a sign of life, and from time to time.
  case heldForRecipient = "held_for_recipient"
  /// Another round of attempts was requested.
  case retrying
}

/// A message of this gateway, to be sent or already sent.
public struct OutgoingMessage: Equatable, Sendable {
  public enum Kind: String, Sendable { case direct, room, channel }

  public struct Attempts: Equatable, Sendable {
    /// The number of the next one.
    public var next: UInt8 = 0
    /// Those that the radio accepted or may have accepted, and flooded ones among them.
    public var accepted = 0
    public var floods = 0
    /// The ack codes of all.
    public var codes: [AckCode] = []

    public init() {}

    public mutating func expect(_ code: AckCode) { if !codes.contains(code) { codes.append(code) } }
  }

  public var id: Int64
  /// The sender's key for the message: a repeated key means the same message.
  public var key: String
  /// The source: `control`, an upstream's name, `room` and so on.
  public var origin: String
  public var priority: UInt8
  public var kind: Kind
  /// The recipient of a direct message or a room's post.
  public var recipient: PublicKey?
  /// The digest of the channel's secret.
  public var channel: String?
  public var text: Text
  public var state = OutgoingState.pending
  /// Why the message failed.
  public var reason: String?
  /// The message's timestamp, set at the first attempt and then kept, because it is part of the identity.
  public var senderTime: UInt32?
  public var attempts = Attempts()
  public var created: Moment
  /// The time of creation in elapsed time (`Store.elapsed`), which determines the expiry.
  public var createdElapsed: Int64 = 0
  /// Milliseconds until it expires.
  public var lifetime: Int64
  public var endedAt: Int64?
  /// Milliseconds, measured by the radio.
  public var roundTrip: UInt32?
  /// Repeated acknowledgements, or repeaters that were heard repeating the message.
  public var heard = 0
  /// Milliseconds on the air so far, estimated.
  public var airtime: Int64 = 0
  /// The radio that sends it; no other radio does.
  public var radio: Int64
  /// The region of this message, as `RegionChoice.text`; `nil`: that of its recipient or channel.
  public var region: String?

  public init(
    id: Int64 = 0, key: String, origin: String, priority: UInt8, kind: Kind, recipient: PublicKey? = nil,
    channel: String? = nil, text: Text, created: Moment, lifetime: Int64, radio: Int64 = 1
  ) {
    self.id = id
    self.key = key
    self.origin = origin
    self.priority = priority
    self.kind = kind
    self.recipient = recipient
    self.channel = channel
    self.text = text
    self.created = created
    self.lifetime = lifetime
    self.radio = radio
  }

  /// The prefix of sources that are programs sharing the radio. They retry their messages themselves.
  public static let sharedOrigin = "proxy/"
  /// The prefix of sources that are hooks.
  public static let hookOrigin = "hook/"
  var isShared: Bool { origin.begins(with: Self.sharedOrigin) }

  /// Whether the state is final.
  public var hasEnded: Bool {
    switch state {
    case .delivered, .failed: true
    case .sent: kind == .channel || isShared
    case .pending, .sending, .heldForRecipient, .retrying: false
    }
  }
}

extension Store {
  private static let outgoingColumns = """
    id, key, origin, priority, kind, recipient, channel, text, state, reason, sender_time, attempt, tries, floods, \
    codes, created_at, created_trusted, lifetime, ended_at, round_trip, heard, airtime, created_elapsed, radio, \
    region
    """

  /// Within a `write`: stores and journals a new message. `nil`: its key exists already.
  public func insertOutgoing(_ message: OutgoingMessage) throws(SQLiteError) -> OutgoingMessage? {
    guard try database.value("SELECT 1 FROM outgoing WHERE key = ?", .text(message.key)) == nil else { return nil }
    var stored = message
    try database.run(
      """
      INSERT INTO outgoing(\(Self.outgoingColumns), seq, newest_seq, ended_seq, place)
        VALUES (NULL\(String(repeating: ", ?", count: 27)), (SELECT ifnull(max(id), 0) FROM messages))
      """,
      Self.values(of: message) + [
        .integer(nextSeq), .integer(nextSeq), message.endedAt.map { _ in .integer(nextSeq) } ?? .null,
      ])
    stored.id = database.lastInsertedRow
    try append(.outgoing, at: message.created, body: body(of: stored))
    if let recipient = message.recipient { try noteTalk(with: recipient.prefix, at: message.created.milliseconds) }
    return stored
  }

  private func body(of message: OutgoingMessage) -> [UInt8] {
    EventBody.outgoing(message, radio: markInEvent(ofRadio: message.radio))
  }

  /// Within a `write`: gives the message to another radio, as a new message.
  public func adoptOutgoing(_ message: OutgoingMessage) throws(SQLiteError) {
    let seq = try append(.outgoing, at: message.created, body: body(of: message))
    try updateRow(message, newest: seq)
    try database.run(
      "UPDATE outgoing SET place = (SELECT ifnull(max(id), 0) FROM messages), seq = ? WHERE id = ?", .integer(seq),
      .integer(message.id))
  }

  /// Within a `write`: stores and journals the state. The event of the end contains the whole message, because many
  /// upstreams get no other event. `isWhole`: this event does, too. `isTold`: false for a state on the way, of which there may be hundreds: it is stored
  /// without an event.
  public func updateOutgoing(
    _ message: OutgoingMessage, at moment: Moment, isWhole: Bool = false, isTold: Bool = true
  ) throws(SQLiteError) {
    // A late state of a deleted message has its text.
    guard try database.value(Self.isDeleted, .integer(message.id)) == nil else { return }
    guard isTold || message.endedAt != nil else { return try updateRow(message, newest: nil) }
    if isWhole, message.state == .heldForRecipient, try isToldAsHeld(message.id) {
      return try updateRow(message, newest: nil)
    }
    var endsNow = message.endedAt != nil
    if endsNow {
      let open = try database.value("SELECT 1 FROM outgoing WHERE id = ? AND ended_at IS NULL", .integer(message.id))
      endsNow = open != nil
    }
    let radio = markInEvent(ofRadio: message.radio)
    let body = endsNow || isWhole ? body(of: message) : EventBody.outgoingState(message, radio: radio)
    let seq = try append(.outgoing, at: moment, body: body)
    try updateRow(message, newest: seq, ended: endsNow ? seq : nil)
    // The recipient has acknowledged it, so it must have been able to decrypt it.
    if message.state == .delivered, let recipient = message.recipient {
      try noteHeard(recipient.prefix, at: moment.milliseconds)
    }
  }

  /// `newest`: the message's newest event; `ended`: the event of its end, if that is new.
  private func updateRow(_ message: OutgoingMessage, newest: Int64?, ended: Int64? = nil) throws(SQLiteError) {
    try database.run(
      """
      UPDATE outgoing SET (\(Self.outgoingColumns.dropFirst(4)), newest_seq, ended_seq) =
        (?\(String(repeating: ", ?", count: 23)), ifnull(?, newest_seq), ifnull(?, ended_seq))
      WHERE id = ?
      """, Self.values(of: message) + [.optional(newest), .optional(ended), .integer(message.id)])
  }

  private static func values(of message: OutgoingMessage) -> [SQLiteValue] {
    [
      .text(message.key), .text(message.origin), .integer(Int64(message.priority)), .text(message.kind.rawValue),
      .optional(message.recipient?.bytes), .optional(message.channel), .blob(message.text.bytes),
      .text(message.state.rawValue), .optional(message.reason), .optional(message.senderTime),
      .integer(Int64(message.attempts.next)), .integer(Int64(message.attempts.accepted)),
      .integer(Int64(message.attempts.floods)),
      .blob(message.attempts.codes.flatMap(\.bytes)), .integer(message.created.milliseconds),
      .integer(message.created.trusted ? 1 : 0), .integer(message.lifetime), .optional(message.endedAt),
      .optional(message.roundTrip), .integer(Int64(message.heard)), .integer(message.airtime),
      .integer(message.createdElapsed), .integer(message.radio), .optional(message.region),
    ]
  }

  private static let isDeleted = "SELECT 1 FROM outgoing WHERE id = ? AND state = \(Tombstone.word)"
  private static let isThere = "state <> \(Tombstone.word)"

  public func outgoing(id: Int64) throws(StoreError) -> OutgoingMessage? {
    try oneOutgoing("id = ? AND \(Self.isThere)", .integer(id))
  }

  public func outgoing(key: String) throws(StoreError) -> OutgoingMessage? {
    try oneOutgoing("key = ? AND \(Self.isThere)", .text(key))
  }

  /// Whether there was ever a message with this key: one that was deleted is not sent again.
  public func hasOutgoing(key: String) throws(StoreError) -> Bool {
    try value("SELECT 1 FROM outgoing WHERE key = ?", .text(key)) != nil
  }

  /// Within a `write`. A deleted message has failed, and is empty.
  public func readOutgoing(key: String) throws(SQLiteError) -> OutgoingMessage? {
    try readOneOutgoing("key = ?", .text(key))
  }

  /// Whether this gateway has sent this text on this channel, itself or for a program that shares its radio, under any
  /// name of the radio. `senderTime`: the message's own time, in seconds since 1970.
  public func hasSaid(_ text: Text, on channel: String, senderTime: UInt32) throws(StoreError) -> Bool {
    try value(
      """
      SELECT 1 FROM outgoing WHERE sender_time = ? AND kind = 'channel'
        AND (channel = ? AND text = ? OR state = \(Tombstone.word) AND codes = ?) LIMIT 1
      """, .integer(Int64(senderTime)), .text(channel), .blob(text.bytes),
      .blob(Tombstone.digest(of: text, on: channel, senderTime: senderTime))) != nil
  }

  /// The newest message of the attached radio with this ack code, among those that are not in memory: failed messages,
  /// and those of programs that share the radio. Only the newest hundreds are searched.
  public func unacknowledgedOutgoing(with code: AckCode) throws(StoreError) -> OutgoingMessage? {
    var found: OutgoingMessage?
    let condition = """
      (state = 'failed' OR state = 'sent' AND ended_at IS NOT NULL AND kind <> 'channel') AND radio = ?
      AND id > (SELECT max(id) FROM outgoing) - 500 ORDER BY id DESC
      """
    try eachOutgoing(condition, [.integer(radio)]) { message in
      if message.attempts.codes.contains(code) { found = message }
      return found == nil
    }
    return found
  }

  private func oneOutgoing(_ condition: String, _ value: SQLiteValue) throws(StoreError) -> OutgoingMessage? {
    try translating { () throws(SQLiteError) in try readOneOutgoing(condition, value) }
  }

  func readOneOutgoing(_ condition: String, _ value: SQLiteValue) throws(SQLiteError) -> OutgoingMessage? {
    try database.first("SELECT \(Self.outgoingColumns) FROM outgoing WHERE \(condition)", [value]) { Self.outgoing($0) }
  }

  /// Messages of the attached radio that have not ended, in order.
  public func liveOutgoing() throws(StoreError) -> [OutgoingMessage] { try unendedOutgoing("radio = ?") }

  /// Messages of other radios that have not ended, in order.
  public func heldOutgoing() throws(StoreError) -> [OutgoingMessage] { try unendedOutgoing("radio <> ?") }

  private func unendedOutgoing(_ whose: String) throws(StoreError) -> [OutgoingMessage] {
    try rows(
      "SELECT \(Self.outgoingColumns) FROM outgoing WHERE ended_at IS NULL AND \(whose) ORDER BY id", [.integer(radio)]
    ) { Self.outgoing($0) }
  }

  /// The newest `limit` messages, and all that have not ended, oldest first; of them those with ids greater than `after`. With a radio: its own
  /// messages, and those held for others.
  public func eachOutgoing(
    after: Int64 = 0, ofRadio radio: Int64? = nil, limit: Int = .max, _ row: (OutgoingMessage) -> Bool
  ) throws(StoreError) {
    let whose = "(?3 IS NULL OR radio = ?3 OR ended_at IS NULL AND ?3 = \(self.radio))"
    try eachOutgoing(
      """
      id > ?1 AND (id >= ifnull((SELECT id FROM outgoing WHERE \(whose) ORDER BY id DESC LIMIT 1 OFFSET ?2), 0)
        OR id IN (SELECT id FROM outgoing WHERE ended_at IS NULL))
      AND \(whose) AND \(Self.isThere) ORDER BY id
      """, [.integer(after), .integer(Int64(clamping: max(0, limit - 1))), .optional(radio)], row)
  }

  private func eachOutgoing(
    _ condition: String, _ values: [SQLiteValue], _ row: (OutgoingMessage) -> Bool
  ) throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try database.each("SELECT \(Self.outgoingColumns) FROM outgoing WHERE \(condition)", values) {
        (statement) throws(SQLiteError) in
        row(Self.outgoing(statement))
      }
    }
  }

  /// The highest timestamp of a message (of this kind) that this gateway has sent: each message gets a different one.
  /// Those of programs that share the radio are by clocks of their own.
  public func lastSenderTime(of kind: OutgoingMessage.Kind? = nil) throws(StoreError) -> UInt32 {
    let last = try value(
      "SELECT max(sender_time) FROM outgoing WHERE (?1 IS NULL OR kind = ?1) AND origin NOT GLOB ?2",
      .optional(kind?.rawValue), .text(OutgoingMessage.sharedOrigin + "*"))?.integer
    return UInt32(clamping: last ?? 0)
  }

  /// The number of ended messages that are kept. Repeated keys and late acknowledgements are recognised among these.
  public static let maxOutgoing: Int64 = 10_000

  /// Within a `write`: deletes the oldest ended messages beyond `maxOutgoing`, a limited number at a time. Returns the
  /// number.
  public func trimOutgoing() throws(SQLiteError) -> Int {
    let leaving = """
      SELECT id FROM outgoing WHERE ended_at IS NOT NULL AND id <= (SELECT max(id) FROM outgoing) - \(Self.maxOutgoing)
      ORDER BY id LIMIT \(Self.trimStep)
      """
    let first = try database.value("SELECT min(id) FROM outgoing")?.integer ?? 0
    let newest = try database.value("SELECT max(id) FROM outgoing")?.integer ?? 0
    guard newest - first + 1 >= Self.maxOutgoing + Self.worthTrimming(Self.maxOutgoing) else { return 0 }
    try unindexOutgoing(leaving)
    try completeWays(of: "SELECT ways FROM outgoing WHERE id IN (\(leaving)) AND ways IS NOT NULL")
    try database.run("DELETE FROM reactions WHERE target IN (SELECT -id FROM (\(leaving)))")
    return try database.run("DELETE FROM outgoing WHERE id IN (\(leaving))")
  }

  private static func outgoing(_ row: Statement) -> OutgoingMessage {
    var message = OutgoingMessage(
      id: row.integer(0), key: row.text(1), origin: row.text(2), priority: UInt8(truncatingIfNeeded: row.integer(3)),
      kind: OutgoingMessage.Kind(rawValue: row.text(4)) ?? .direct, recipient: PublicKey(bytes: row.blob(5)),
      channel: row.textIfAny(6), text: Text(bytes: row.blob(7)),
      created: Moment(milliseconds: row.integer(15), trusted: row.integer(16) != 0), lifetime: row.integer(17))
    message.state = OutgoingState(rawValue: row.text(8)) ?? .failed
    message.reason = row.text(8) == "deleted" ? "deleted" : row.textIfAny(9)
    message.senderTime = row.integerIfAny(10).map { UInt32(truncatingIfNeeded: $0) }
    message.attempts.next = UInt8(truncatingIfNeeded: row.integer(11))
    (message.attempts.accepted, message.attempts.floods) = (Int(row.integer(12)), Int(row.integer(13)))
    let codes = row.blob(14)
    message.attempts.codes = stride(from: 0, to: codes.count, by: 4).compactMap {
      AckCode(bytes: Array(codes[$0..<min($0 + 4, codes.count)]))
    }
    message.endedAt = row.integerIfAny(18)
    message.roundTrip = row.integerIfAny(19).map { UInt32(truncatingIfNeeded: $0) }
    (message.heard, message.airtime) = (Int(row.integer(20)), row.integer(21))
    message.createdElapsed = row.integer(22)
    message.radio = row.integer(23)
    message.region = row.textIfAny(24)
    return message
  }
}

extension EventBody {
  /// The whole message.
  public static func outgoing(_ message: OutgoingMessage, radio: String? = nil) -> [UInt8] {
    JSONWriter.object { write(message, radio: radio, to: &$0) }
  }

  /// Only the fields that change: upstreams have the others from the first event.
  static func outgoingState(_ message: OutgoingMessage, radio: String?) -> [UInt8] {
    JSONWriter.object { json in
      json.field(Shape.Outgoing().id, message.key)
      writeState(message, to: &json)
      json.field(Shape.Outgoing().radio, radio)
    }
  }

  /// `radio`: the name, in rows, of the radio that sends the message.
  public static func write(_ message: OutgoingMessage, radio: String?, to json: inout JSONWriter) {
    let row = Shape.Outgoing()
    json.field(row.id, message.key)
    json.field(row.number, message.id)
    json.field(row.origin, message.origin)
    json.field(row.kind, message.kind.rawValue)
    json.field(row.recipient, message.recipient?.hex)
    json.field(row.channel, message.channel)
    json.field(row.text, message.text.string)
    json.field(row.region, message.region)
    json.field(row.createdAt, message.created.milliseconds)
    writeState(message, to: &json)
    json.field(row.ended, message.hasEnded)
    json.field(row.radio, radio)
  }

  static func writeState(_ message: OutgoingMessage, to json: inout JSONWriter) {
    let row = Shape.Outgoing()
    json.field(row.state, message.state.rawValue)
    json.field(row.reason, message.reason)
    json.field(row.senderTime, message.senderTime)
    if message.attempts.next > 0 || message.senderTime != nil {
      json.field(row.attempts, message.attempts.accepted)
      json.field(row.floods, message.attempts.floods)
      json.field(row.roundTripMs, message.roundTrip)
      if message.heard > 0 { json.field(row.heard, message.heard) }
      json.field(row.airtimeMs, message.airtime)
    }
    json.field(row.endedAt, message.endedAt)
  }
}
