// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import SQLite

/// A stored message.
public struct StoredMessage: Equatable, Sendable {
  public enum Kind: String, Sendable {
    case direct, room, cli, channel, datagram
    /// Only the message's place is left (`Tombstone`). No query returns one, except as an event.
    case deleted
  }

  public var id: Int64
  public var kind: Kind
  /// Direct, room and CLI messages: the sender (in a room, the room).
  public var sender: KeyPrefix?
  /// The contact's name, or the name given in a channel message.
  public var senderName: Text?
  /// The channel's digest, and its slot when the message was received.
  public var channel: String?
  public var slot: UInt8?
  public var textType: TextType
  public var senderTime: UInt32?
  /// The author of a room's post: the first 4 bytes of the key, and the name of the only matching contact.
  public var author: [UInt8]?
  public var authorName: Text?
  /// The text, or a datagram's bytes.
  public var text: Text
  public var snr: SNR?
  public var path: ReceivedPath
  public var dataType: UInt16?
  public var received: Moment
  /// How often the message was received, including retries and echoes.
  public var copies: Int
  /// Whether it was queued in the radio.
  public var wait: RadioWait = .none
  /// Seconds between sending and receiving, by the sender's clock; `nil`: new, or unknown.
  public var age: Int64?
  /// The radio that received it; `Store.everyRadio`: several did.
  public var radio: Int64 = Store.everyRadio
}

/// The result of storing a received message.
public enum MessageArrival: Equatable, Sendable {
  case stored(id: Int64, seq: Int64)
  /// A duplicate of a message, which was counted and not stored again.
  case duplicate(of: Int64)

  /// The message's number.
  public var id: Int64 {
    switch self {
    case .stored(let id, _), .duplicate(let id): id
    }
  }

  public var isDuplicate: Bool { if case .duplicate = self { true } else { false } }
}

extension Store {
  /// Datagrams have no time: the same bytes within this time, in milliseconds, are one message.
  static let datagramWindow: Int64 = 60_000

  /// Within a `write`: stores and journals the message, or counts it as a copy of a stored one. `radio`: the radio that
  /// delivered it, if it is no longer attached. `knowsSlot`: the stored channel of the message's slot is up to date;
  /// otherwise the message gets no channel. `copies`: those that were heard so far.
  ///
  /// A channel message that several radios receive is a single message of all of them. A direct message belongs to one
  /// radio.
  public func insert(
    _ message: QueuedMessage, at moment: Moment, wait: RadioWait = .none, by radio: Int64? = nil,
    knowsSlot: Bool = true, copies: [HeardCopy] = []
  ) throws(SQLiteError) -> MessageArrival {
    let channel = knowsSlot ? try channel(of: message) : nil
    var stored = try describe(message, digest: channel?.digest, at: moment)
    stored.wait = wait
    let offset = try stored.sender.flatMap { sender throws(SQLiteError) in try clockOffset(of: sender) }
    stored.age = MessageAge.seconds(senderTime: stored.senderTime, received: moment, offset: offset, wait: wait)
    stored.radio = radio ?? self.radio
    let identity = Self.identity(of: stored)
    if let sender = stored.sender { try noteHeard(sender, at: moment.milliseconds) }
    if let known = try self.message(identified: identity), try !isAnother(stored, than: known) {
      try database.run("UPDATE messages SET copies = copies + 1 WHERE id = ?", .integer(known))
      if radios.count > 1 { try share(known, with: stored.radio) }
      if !copies.isEmpty { try keepCopies(copies, of: .received(known)) }
      return .duplicate(of: known)
    }
    stored.id = journalState.open.lastMessage + 1
    let seq = try insertRow(stored, identity, channelName: channel?.name, copies)
    try identify(identity, stored.id)
    if stored.radio != self.radio { try widen(stored.radio, toMessage: stored.id) }
    try noteReaction(stored, at: moment)
    if let sender = stored.sender { try noteTalk(with: sender, at: moment.milliseconds) }
    return .stored(id: stored.id, seq: seq)
  }

  /// Notes that a second radio has received the message.
  private func share(_ message: Int64, with radio: Int64) throws(SQLiteError) {
    let changed = try database.run(
      "UPDATE messages SET radio = \(Self.everyRadio) WHERE id = ? AND radio NOT IN (\(Self.everyRadio), ?)",
      .integer(message), .integer(radio))
    if changed > 0 { try widen(radio, toMessage: message) }
  }

  /// Inserts the row, which is also an event of the journal. Returns its seq.
  private func insertRow(
    _ stored: StoredMessage, _ identity: MessageIdentity, channelName: Text?, _ copies: [HeardCopy]
  ) throws(SQLiteError) -> Int64 {
    let event = MessageEvent(
      message: stored, seq: nextSeq, start: journalState.open.messageBytes, channelName: channelName,
      radio: markInEvent(ofRadio: stored.radio) == nil ? nil : stored.radio)
    try database.run(
      """
      INSERT INTO messages(id, identity, kind, sender, sender_name, channel, slot, text_type, sender_time, author, text,
        snr, path_length, data_type, at, trusted, waited, age, radio, seq, event_start, channel_name, author_name,
        event_radio, checksum, ways)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      """, .integer(stored.id), .blob(identity.bytes), .text(stored.kind.rawValue), .optional(stored.sender?.bytes),
      .optional(stored.senderName?.bytes), .optional(stored.channel), .optional(stored.slot),
      .integer(Int64(stored.textType.rawValue)), .optional(stored.senderTime), .optional(stored.author),
      .blob(stored.text.bytes), .optional(stored.snr?.quarters), .integer(Int64(stored.path.raw)),
      .optional(stored.dataType), .integer(stored.received.milliseconds), .integer(stored.received.trusted ? 1 : 0),
      .optional(stored.wait.column), .optional(stored.age), .integer(stored.radio), .integer(event.seq),
      .integer(event.start), .optional(event.channelName?.bytes), .optional(stored.authorName?.bytes),
      .optional(event.radio), .integer(event.checksum),
      copies.isEmpty ? .null : .blob(KeptCopies(copies).encode()))
    try noteTime()
    journalState.takeMessage(bytes: event.size)
    return event.seq
  }

  /// The radio's present channel in the message's slot.
  private func channel(of message: QueuedMessage) throws(SQLiteError) -> (digest: String?, name: Text)? {
    let slot: UInt8
    switch message {
    case .contact: return nil
    case .channel(let message): slot = message.slot
    case .datagram(let datagram): slot = datagram.slot
    }
    return try database.first("SELECT digest, name FROM channels WHERE slot = ?", [.integer(Int64(slot))]) { row in
      let digest = row.text(0)
      return (digest.utf8.isEmpty ? nil : digest, Text(bytes: row.blob(1)))
    }
  }

  private func describe(
    _ message: QueuedMessage, digest: String?, at moment: Moment
  ) throws(SQLiteError) -> StoredMessage {
    switch message {
    case .contact(let message): try describe(message, at: moment)
    case .channel(let message): try describe(message, digest: digest, at: moment)
    case .datagram(let datagram):
      StoredMessage(
        id: 0, kind: .datagram, channel: digest, slot: datagram.slot, textType: .plain,
        text: Text(bytes: datagram.data), snr: datagram.snr, path: datagram.path, dataType: datagram.dataType,
        received: moment, copies: 1)
    }
  }

  private func describe(_ message: ContactMessage, at moment: Moment) throws(SQLiteError) -> StoredMessage {
    // If the store cannot be read, the write itself fails right after this.
    let known = ifReadable { try contact(prefix: message.sender) }?.contact
    let kind: StoredMessage.Kind =
      switch message.textType {
      // Any node can send one: somebody who is no room says nothing in another's name.
      case .signedPlain where ![.chat, .repeater, .sensor].contains(known?.type): .room
      case let type where type.isCommandLine: .cli
      default: .direct
      }
    let name = known?.name
    var stored = StoredMessage(
      id: 0, kind: kind, sender: message.sender, senderName: name, textType: message.textType,
      senderTime: message.senderTime, author: message.author, text: message.text, snr: message.snr,
      path: message.path, received: moment, copies: 1)
    if kind == .direct { stored.author = nil }
    if let author = stored.author { stored.authorName = try nameOfAuthor(author) }
    return stored
  }

  /// The name of the only contact with this key prefix. A room can forge the four bytes, and they can collide.
  func nameOfAuthor(_ author: [UInt8]) throws(SQLiteError) -> Text? {
    let names = try database.rows(
      "SELECT name FROM contacts WHERE key >= ?1 AND substr(key, 1, 4) = ?1 LIMIT 2", [.blob(author)]
    ) { Text(bytes: $0.blob(0)) }
    return names.count == 1 ? names.first : nil
  }

  private func describe(
    _ message: ChannelMessage, digest: String?, at moment: Moment
  ) throws(SQLiteError) -> StoredMessage {
    let (name, text) = try splitSender(message.text)
    return StoredMessage(
      id: 0, kind: .channel, senderName: name, channel: digest, slot: message.slot,
      textType: message.textType, senderTime: message.senderTime, text: text, snr: message.snr, path: message.path,
      received: moment, copies: 1)
  }

  /// Splits `Name: text`: the longest known contact name before a `: ` wins, otherwise the first `: `; without one the
  /// message has no sender (docs/protocol/app-conventions.md § 1).
  func splitSender(_ text: Text) throws(SQLiteError) -> (name: Text?, text: Text) {
    let bytes = text.bytes
    let separators = bytes.indices.dropLast().filter {
      $0 <= 31 && bytes[$0] == UInt8(ascii: ":") && bytes[$0 + 1] == UInt8(ascii: " ")
    }
    guard let first = separators.first else { return (nil, text) }
    var chosen = first
    for end in separators.reversed() where separators.count > 1 {
      guard try hasContact(named: Array(bytes[..<end])) else { continue }
      chosen = end
      break
    }
    return (Text(bytes: Array(bytes[..<chosen])), Text(bytes: Array(bytes[(chosen + 2)...])))
  }

  /// A direct message with the same text and sender to another radio of this gateway is a different message. The first
  /// radio is not part of the identity, so that rows from before radios were distinguished still match.
  static func identity(of message: StoredMessage) -> MessageIdentity {
    MessageIdentity(of: traits(of: message))
  }

  /// The identity by what a server has of the message, which does not know how many radios there are: in hexadecimal.
  static func identityElsewhere(of message: StoredMessage) -> String {
    var traits = traits(of: message)
    (traits.radio, traits.senderName) = (1, Array(Text(bytes: traits.senderName).string.utf8))
    return Hex.string(traits.identity)
  }

  private static func traits(of message: StoredMessage) -> MessageTraits {
    let time = message.senderTime ?? UInt32(clamping: message.received.milliseconds / datagramWindow)
    var traits = MessageTraits(kind: message.kind.rawValue, time: time, text: message.text.bytes)
    (traits.sender, traits.channel, traits.slot) = (message.sender?.bytes ?? [], message.channel, message.slot ?? 0)
    if message.kind == .channel { traits.senderName = message.senderName?.bytes ?? [] }
    (traits.radio, traits.author) = (message.radio, message.author ?? [])
    traits.dataType = message.dataType ?? 0
    return traits
  }

  /// The identity of a channel message, the same at every receiver: 32 hexadecimal digits.
  public static func identity(
    ofMessageOn channel: String, senderName: Text, senderTime: UInt32, text: Text
  ) -> String {
    var traits = MessageTraits(kind: StoredMessage.Kind.channel.rawValue, time: senderTime, text: text.bytes)
    (traits.channel, traits.senderName) = (channel, senderName.bytes)
    return Hex.string(traits.identity)
  }

  /// Whether our radio has received the message with this `identity(ofMessageOn:…)`.
  public func hasHeard(_ identity: String) throws(StoreError) -> Bool {
    guard let identity = Hex.bytes(identity).flatMap({ MessageIdentity(bytes: $0) }) else { return false }
    return try translating { () throws(SQLiteError) in try self.message(identified: identity) != nil }
  }

  /// `nil`: there is none with this id, any more.
  public func message(id: Int64) throws(StoreError) -> StoredMessage? {
    try translating { () throws(SQLiteError) -> StoredMessage? in
      var found = try database.first(
        "SELECT \(Self.messageColumns) FROM messages WHERE id = ? AND kind <> \(Tombstone.word)", [.integer(id)]
      ) { Self.message($0) }
      if let author = found?.author { found?.authorName = try nameOfAuthor(author) }
      return found
    }
  }

  /// The name of a message's channel, if it is known: the radio's, or that of the time of its reception if the radio no
  /// longer has the channel. The slot may contain another one by now.
  public func nameOfChannel(of message: StoredMessage) throws(StoreError) -> Text? {
    guard let slot = message.slot, let digest = message.channel else { return nil }
    if let there = try channel(slot: slot), there.secret.digest == digest { return there.name }
    if let name = try nameOfChannel(digest) { return name }
    let former = try value("SELECT channel_name FROM messages WHERE id = ?", .integer(message.id))
    return former?.blob.map { Text(bytes: $0) }
  }

  /// The radio's name for the channel with this digest.
  public func nameOfChannel(_ digest: String) throws(StoreError) -> Text? {
    try value("SELECT name FROM channels WHERE digest = ?", .text(digest))?.blob.map { Text(bytes: $0) }
  }

  /// The newest id of a radio's messages; 0: there is none.
  public func lastMessageID(ofRadio id: Int64) throws(StoreError) -> Int64 {
    try value(
      "SELECT id FROM messages WHERE id >= ?1 AND id <= ?2 AND radio IN (?3, \(Self.everyRadio)) ORDER BY id DESC LIMIT 1",
      .integer(radio(id)?.firstMessage ?? 1), .integer(radio(id)?.lastMessage ?? .max), .integer(id))?.integer ?? 0
  }

  /// The latest time of a room's posts, by the room's clock, among the newest ten thousand messages; `nil`: there is
  /// none. `after`: the number of the last message that does not count; `time`: the last time that does.
  public func newestPost(
    of room: KeyPrefix, after message: Int64 = 0, notAfter time: UInt32 = .max
  ) throws(StoreError) -> UInt32? {
    try value(
      """
      SELECT max(sender_time) FROM messages WHERE id > max(?1, (SELECT max(id) FROM messages) - 10000) AND kind = ?2
        AND sender = ?3 AND sender_time <= ?4
      """, .integer(message), .text(StoredMessage.Kind.room.rawValue), .blob(room.bytes), .integer(Int64(time))
    )?.integer.map { UInt32(clamping: $0) }
  }

  /// The newest message's id; 0: there is none.
  public func lastMessageID() throws(StoreError) -> Int64 {
    try value("SELECT max(id) FROM messages")?.integer ?? 0
  }

  public func messageCount() throws(StoreError) -> Int64 {
    // Ids have no gaps, because only the oldest messages are deleted; counting would read the whole table.
    guard let first = try value("SELECT min(id) FROM messages")?.integer else { return 0 }
    let places = try translating { () throws(SQLiteError) in try deletedPlaces() }
    return max(0, try lastMessageID() - first + 1 - (places ?? 0))
  }

  /// The number of messages received since a time (milliseconds since 1970), counted among the newest ten thousand.
  public func messageCount(since milliseconds: Int64) throws(StoreError) -> Int64 {
    try value(
      "SELECT count(*) FROM messages WHERE id > (SELECT max(id) FROM messages) - 10000 AND at >= ? AND kind <> \(Tombstone.word)",
      .integer(milliseconds))?.integer ?? 0
  }

  /// The number of messages beyond a bound that are worth deleting: each deletion writes a part of the search index,
  /// and parts of a few messages cost more, as they are merged more often.
  static func worthTrimming(_ bound: Int64) -> Int64 { min(max(bound / 16, 1), indexStep) }

  /// Within a `write`: deletes the oldest messages beyond `Settings.messagesMax`, a limited number at a time. Their
  /// duplicates are then no longer recognised. Returns the number.
  public func trimMessages() throws(SQLiteError) -> Int {
    let first = try database.value("SELECT min(id) FROM messages")?.integer ?? 0
    let newest = try database.value("SELECT max(id) FROM messages")?.integer ?? 0
    // The newest message stays, because the next id follows from it.
    let last = min(newest - max(settings.messagesMax, 1), first + Self.trimStep - 1)
    guard newest > 0, last - first + 1 >= Self.worthTrimming(settings.messagesMax) else { return 0 }
    return try withSparePages { () throws(SQLiteError) in
      try unindexMessages(upTo: last)
      try journalMessages(upTo: last)
      try completeWays(of: "SELECT ways FROM messages WHERE id <= ? AND ways IS NOT NULL", .integer(last))
      try forgetIdentities(upTo: last)
      // With those of earlier messages, which had stayed.
      try database.run("DELETE FROM reactions WHERE target >= 1 AND target <= ?", .integer(last))
      if try deletedPlaces() != nil {
        let places = "SELECT count(*) FROM messages WHERE id <= ? AND kind = \(Tombstone.word)"
        try addDeletedPlaces(-(try database.value(places, .integer(last))?.integer ?? 0))
      }
      return try database.run("DELETE FROM messages WHERE id <= ?", .integer(last))
    }
  }

  /// The columns that `message(_:)` reads, in order.
  static let messageColumns =
    """
    id, kind, sender, sender_name, channel, slot, text_type, sender_time, author, text, snr, path_length, data_type, at,
    trusted, copies, waited, age, radio
    """

  static func message(_ row: Statement) -> StoredMessage {
    StoredMessage(
      id: row.integer(0), kind: StoredMessage.Kind(rawValue: row.text(1)) ?? .direct,
      sender: row.blobIfAny(2).flatMap { KeyPrefix(bytes: $0) }, senderName: row.blobIfAny(3).map { Text(bytes: $0) },
      channel: row.textIfAny(4), slot: row.integerIfAny(5).map { UInt8(truncatingIfNeeded: $0) },
      textType: TextType(rawValue: UInt8(truncatingIfNeeded: row.integer(6))),
      senderTime: row.integerIfAny(7).map { UInt32(truncatingIfNeeded: $0) }, author: row.blobIfAny(8),
      text: Text(bytes: row.blob(9)), snr: row.integerIfAny(10).map { SNR(quarters: Int8(truncatingIfNeeded: $0)) },
      path: ReceivedPath(raw: UInt8(truncatingIfNeeded: row.integer(11))),
      dataType: row.integerIfAny(12).map { UInt16(truncatingIfNeeded: $0) },
      received: Moment(milliseconds: row.integer(13), trusted: row.integer(14) != 0), copies: Int(row.integer(15)),
      wait: RadioWait(column: row.integerIfAny(16)), age: row.integerIfAny(17), radio: row.integer(18))
  }
}
