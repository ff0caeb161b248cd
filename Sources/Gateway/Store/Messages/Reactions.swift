// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import SQLite

/// A reaction in MeshCore One's form: an emoji, and a hash that identifies its target.
///
///     direct, room   EMOJI LF HASH
///     channel        EMOJI@[TARGET SENDER] LF HASH, or @[TARGET SENDER]EMOJI LF HASH
///
/// Source: docs/protocol/app-conventions.md § 2.1.
public struct ReactionText: Equatable, Sendable {
  public var emoji: String
  /// On channels: the sender of the target.
  public var targetSender: String?
  /// 8 characters of Crockford's Base32, lower case.
  public var hash: String

  public init(emoji: String, targetSender: String?, hash: String) {
    self.emoji = emoji
    self.targetSender = targetSender
    self.hash = hash
  }

  /// `nil`: not a reaction.
  public init?(reading text: Text, inChannel: Bool) {
    // By scalars: a name may begin or end with a scalar that combines with its neighbour into one `Character`.
    guard text.bytes.count <= 160, text.bytes.contains(0x0A), let string = String(validating: text.bytes, as: UTF8.self)
    else { return nil }
    let scalars = string.unicodeScalars
    guard let end = scalars.lastIndex(of: "\n"), let hash = Self.hash(string[scalars.index(after: end)...])
    else { return nil }
    var front = scalars[..<end]
    var sender: Substring?
    if inChannel {
      guard let at = front.firstIndex(of: "@"), let close = front.lastIndex(of: "]") else { return nil }
      let open = front.index(after: at)
      guard open < close, front[open] == "[" else { return nil }
      sender = Substring(front[front.index(after: open)..<close])
      let (before, after) = (front[..<at], front[front.index(after: close)...])
      guard before.isEmpty != after.isEmpty else { return nil }
      front = before.isEmpty ? after : before
    }
    guard Self.isEmoji(Substring(front)) else { return nil }
    self.init(emoji: String(front), targetSender: sender.map(String.init), hash: hash)
  }

  /// The text of the message that carries the reaction.
  public var text: Text { Text((targetSender.map { "\(emoji)@[\($0)]" } ?? emoji) + "\n" + hash) }

  /// Whether the text is one grapheme that begins with an emoji, and neither a letter nor a digit.
  public static func isEmoji(_ text: some StringProtocol) -> Bool {
    guard text.count == 1, let first = text.unicodeScalars.first else { return false }
    let second = text.unicodeScalars.dropFirst().first
    return first.properties.isEmojiPresentation
      || (first.properties.isEmoji && first.value > 0xFF && (second == nil || second?.value == 0xFE0F))
      || (first.properties.isEmoji && second?.value == 0xFE0F)
  }

  /// Lenient, as Crockford's Base32: `O` is 0, `I` and `L` are 1; `U` is invalid.
  private static func hash(_ text: Substring) -> String? {
    guard text.utf8.count == 8 else { return nil }
    var result: [UInt8] = []
    // By bytes: the Kelvin sign, which Unicode considers a `k`, is invalid.
    for byte in text.utf8 {
      let character = (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
      switch character {
      case UInt8(ascii: "o"): result.append(UInt8(ascii: "0"))
      case UInt8(ascii: "i"), UInt8(ascii: "l"): result.append(UInt8(ascii: "1"))
      case UInt8(ascii: "u"): return nil
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"): result.append(character)
      default: return nil
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}

/// The sender of a reaction and its conversation.
struct ReactionPlace {
  /// The channel's digest, or the peer's prefix in hex.
  var conversation: String
  /// On a channel the sender's name, otherwise the key's prefix or the author in hex. Ours has the word `self`, which anybody may have as a name.
  var sender: String
  /// The radio that received or sends it; `Store.everyRadio`: on a channel, reactions of others are the same for all
  /// radios.
  var radio: Int64
}

extension Store {
  /// The greatest number of reactions whose target was not received yet; the oldest is dropped.
  static let maxUnmatched: Int64 = 100
  /// The number of messages that are searched for a reaction's target.
  static let maxCandidates = 500

  /// Within a `write`: if the message is a reaction, stores it as one, too, but only once.
  func noteReaction(_ message: StoredMessage, at moment: Moment) throws(SQLiteError) {
    guard message.kind == .direct || message.kind == .channel || message.kind == .room,
      let reaction = ReactionText(reading: message.text, inChannel: message.kind == .channel)
    else { return try matchWaiting(message, at: moment) }
    let place = Self.place(of: message)
    try keep(reaction, place, number: message.id, at: moment)
  }

  /// Within a `write`: stores a reaction of our own.
  public func keepOwnReaction(
    _ reaction: ReactionText, conversation: String, outgoing: Int64, at moment: Moment
  ) throws(SQLiteError) {
    let place = ReactionPlace(conversation: conversation, sender: "self", radio: radio)
    try keep(reaction, place, number: -outgoing, at: moment)
  }

  private func keep(
    _ reaction: ReactionText, _ place: ReactionPlace, number: Int64, at moment: Moment
  ) throws(SQLiteError) {
    let target = try target(of: reaction, in: place)
    if target == nil { mayHaveWaitingReactions = true }
    let added = try database.run(
      """
      INSERT OR IGNORE INTO reactions(conversation, hash, sender, emoji, target, message, at, radio)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
      """, .text(place.conversation), .text(reaction.hash), .text(place.sender), .text(reaction.emoji),
      .optional(Self.number(target)), .integer(number), .integer(moment.milliseconds), .integer(place.radio))
    guard added > 0 else { return }
    try database.run(
      """
      DELETE FROM reactions WHERE id IN
        (SELECT id FROM reactions WHERE target IS NULL ORDER BY id DESC LIMIT -1 OFFSET \(Self.maxUnmatched))
      """)
    try journalReaction(reaction, place, target, number: number, at: moment)
  }

  /// `number`: of the message that carries it, negative if that is ours.
  private func journalReaction(
    _ reaction: ReactionText, _ place: ReactionPlace, _ target: MessageNumber?, number: Int64, at moment: Moment
  ) throws(SQLiteError) {
    let origin = try origin(ofReaction: number)
    let body = JSONWriter.object { json in
      json.field("emoji", reaction.emoji)
      json.field("conversation", place.conversation)
      json.field("sender", place.sender)
      json.field("ours", number < 0 ? true : nil)
      json.field("hash", reaction.hash)
      switch target {
      case .received(let id): json.field("target", id)
      case .sent(let number): json.field("target_outgoing", number)
      case nil: break
      }
      json.field("origin", origin)
      json.field("radio", markInEvent(ofRadio: place.radio))
    }
    try append(.reaction, at: moment, body: body)
  }

  /// Who ordered our own reaction: hooks get no events that hooks caused. `nil`: it is another's, or its message was deleted.
  private func origin(ofReaction number: Int64) throws(SQLiteError) -> String? {
    guard number < 0 else { return nil }
    return try database.value("SELECT origin FROM outgoing WHERE id = ?", .integer(-number))?.text
  }

  /// Matches waiting reactions with a received message.
  private func matchWaiting(_ message: StoredMessage, at moment: Moment) throws(SQLiteError) {
    guard let time = message.senderTime, message.kind != .cli, message.kind != .datagram else { return }
    if mayHaveWaitingReactions == nil {
      mayHaveWaitingReactions = try database.value("SELECT 1 FROM reactions WHERE target IS NULL LIMIT 1") != nil
    }
    // Most gateways get no reactions for days.
    guard mayHaveWaitingReactions == true else { return }
    let place = Self.place(of: message)
    let waiting = try database.value(
      "SELECT 1 FROM reactions WHERE conversation = ? AND radio IN (?, 0) AND target IS NULL LIMIT 1",
      .text(place.conversation), .integer(place.radio))
    guard waiting != nil else { return }
    let hash = TextDigest.reactionHash(message.text, senderTime: time)
    try resolve(hash, place, .received(message.id), at: moment)
  }

  private func resolve(
    _ hash: String, _ place: ReactionPlace, _ target: MessageNumber, at moment: Moment
  ) throws(SQLiteError) {
    let found: [(Int64, String, String, Int64, Int64)] = try database.rows(
      """
      SELECT id, sender, emoji, radio, message FROM reactions WHERE conversation = ? AND hash = ? AND radio IN (?, 0)
        AND target IS NULL
      """, [.text(place.conversation), .text(hash), .integer(place.radio)]
    ) { ($0.integer(0), $0.text(1), $0.text(2), $0.integer(3), $0.integer(4)) }
    for (id, sender, emoji, radio, number) in found {
      try database.run("UPDATE reactions SET target = ? WHERE id = ?", .optional(Self.number(target)), .integer(id))
      let reaction = ReactionText(emoji: emoji, targetSender: nil, hash: hash)
      let whose = ReactionPlace(conversation: place.conversation, sender: sender, radio: radio)
      try journalReaction(reaction, whose, target, number: number, at: moment)
    }
  }

  /// Sent messages have negative numbers.
  private static func number(_ target: MessageNumber?) -> Int64? {
    switch target {
    case .received(let id): id
    case .sent(let id): -id
    case nil: nil
    }
  }

  /// The newest message of the conversation with this hash; with a node, in the present radio's conversation.
  private func target(of reaction: ReactionText, in place: ReactionPlace) throws(SQLiteError) -> MessageNumber? {
    let prefix = Hex.bytes(place.conversation).flatMap { KeyPrefix(bytes: $0) }
    let theirs = try find(
      reaction.hash,
      """
      SELECT id, text, sender_time FROM messages WHERE id > (SELECT max(id) FROM messages) - \(Self.maxCandidates)
      AND (channel = ?1 OR sender = ?2 AND radio = ?3) AND sender_time IS NOT NULL ORDER BY id DESC
      """, [.text(place.conversation), .optional(prefix?.bytes), .integer(place.radio)])
    if let theirs { return .received(theirs) }
    let ours = try find(
      reaction.hash,
      """
      SELECT id, text, sender_time FROM outgoing WHERE id > (SELECT max(id) FROM outgoing) - \(Self.maxCandidates)
      AND (channel = ?1 OR substr(recipient, 1, 6) = ?2 AND radio = ?3) AND sender_time IS NOT NULL ORDER BY id DESC
      """, [.text(place.conversation), .optional(prefix?.bytes), .integer(place.radio)])
    return ours.map { .sent($0) }
  }

  private func find(_ hash: String, _ query: String, _ values: [SQLiteValue]) throws(SQLiteError) -> Int64? {
    var found: Int64?
    try database.each(query, values) { (row) throws(SQLiteError) in
      let time = UInt32(truncatingIfNeeded: row.integer(2))
      guard TextDigest.reactionHash(Text(bytes: row.blob(1)), senderTime: time) == hash else { return true }
      found = row.integer(0)
      return false
    }
    return found
  }

  static func place(of message: StoredMessage) -> ReactionPlace {
    let peer = message.sender?.hex ?? ""
    switch message.kind {
    case .channel:
      return ReactionPlace(
        conversation: message.channel ?? "", sender: message.senderName?.string ?? "", radio: Store.everyRadio)
    case .room:
      let author = message.author.map { Hex.string($0) } ?? peer
      return ReactionPlace(conversation: peer, sender: author, radio: message.radio)
    case .direct, .cli, .datagram, .deleted:
      return ReactionPlace(conversation: peer, sender: peer, radio: message.radio)
    }
  }

  /// The reactions to a message, in order. Ours are known by their message, not by the sender's name.
  public func reactions(
    to target: MessageNumber
  ) throws(StoreError) -> [(emoji: String, sender: String, isOurs: Bool)] {
    try rows(
      "SELECT emoji, sender, message < 0 FROM reactions WHERE target = ? ORDER BY id LIMIT 100",
      [.optional(Self.number(target))]
    ) { ($0.text(0), $0.text(1), $0.integer(2) != 0) }
  }
}
