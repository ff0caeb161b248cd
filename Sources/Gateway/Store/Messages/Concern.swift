// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import UntrustedText

/// Which messages of a conversation concern anybody here. A direct message is addressed to us on every level but the last.
public enum ConversationLevel: String, CaseIterable, Sendable {
  case all
  /// Those that mention us.
  case mentions
  /// Those that begin with a mention of us, as apps write answers.
  case direct
  case nothing = "none"

  /// In the database. 0 and 1 are the values that `muted` had.
  var column: Int64 {
    switch self {
    case .all: 0
    case .nothing: 1
    case .mentions: 2
    case .direct: 3
    }
  }

  init(column: Int64) { self = Self.allCases.first { $0.column == column } ?? .all }
}

/// A sender whose messages concern nobody here.
public enum Block: Sendable {
  /// A key, or at least its first `fewestBytes`: under any name.
  case key([UInt8])
  /// A name on the channel with this digest: messages on channels tell no key.
  case name(String, channel: String)

  /// Of the author of a room's post, only so many bytes of the key are told.
  public static let fewestBytes = 4
  private static let mostBytes = 32
  /// The longest name, in bytes: no text has room for a longer one.
  public static let longestName = 160

  /// `nil`: nobody can have such a key.
  public init?(key: [UInt8]) {
    guard (Self.fewestBytes...Self.mostBytes).contains(key.count) else { return nil }
    self = .key(key)
  }

  /// `nil`: nobody can have such a name.
  public init?(name: String, channel: String) {
    guard (1...Self.longestName).contains(name.utf8.count) else { return nil }
    self = .name(name, channel: channel)
  }

  /// `nil`: it holds in all conversations.
  public var channel: ConversationName? { if case .name(_, let channel) = self { .channel(channel) } else { nil } }

  /// Whether some sender is meant by both: of two keys, one begins with the other.
  public func meets(_ other: Block) -> Bool {
    switch (self, other) {
    case (.key(let one), .key(let other)): Self.meet(one, other)
    case (.name(let one, let here), .name(let other, let there)): one.isExactly(other) && here.isExactly(there)
    default: false
    }
  }

  /// Whether both are the same row.
  public func isRow(_ other: Block) -> Bool {
    switch (self, other) {
    case (.key(let one), .key(let other)): one == other
    case (.name, .name): meets(other)
    default: false
    }
  }

  func holds(_ said: Said) -> Bool {
    switch self {
    case .key(let key): said.keys.contains { Self.meet(key, $0) }
    case .name(let name, let channel):
      said.place?.channel?.isExactly(channel) == true && said.name?.isExactly(name) == true
    }
  }

  private static func meet(_ one: [UInt8], _ other: [UInt8]) -> Bool {
    one.starts(with: other) || other.starts(with: one)
  }

  /// The columns of its row.
  fileprivate var values: [SQLiteValue] {
    switch self {
    case .key(let key): [.text(""), .blob(key)]
    case .name(let name, let channel): [.text(channel), .blob(Array(name.utf8))]
    }
  }
}

/// What a received message says of its sender, and of those for whom it is.
struct Said {
  /// `nil`: it is no part of a conversation, and concerns somebody in any case.
  var place: ConversationName?
  var isDirect = false
  /// The first bytes of keys: of the sender's and, in a room, of the author's.
  var keys: [[UInt8]] = []
  /// On a channel, the name that the sender gives.
  var name: String?
  var text = Text("")
  /// A reaction to a message of ours.
  var isAboutOurs = false

  init(_ message: StoredMessage) {
    self.init(
      message.kind, sender: message.sender?.bytes, author: message.author, name: message.senderName?.string,
      channel: message.channel, message.text)
  }

  /// Of the event of a message, or of the ways of one. `nil`: it is not about a received message.
  init?(message body: JSONValue) {
    guard body["id"]?.integer != nil, let kind = body["kind"]?.string.flatMap({ StoredMessage.Kind(rawValue: $0) })
    else { return nil }
    self.init(
      kind, sender: body["sender"]?.string.flatMap { Hex.bytes($0) },
      author: body["author"]?.string.flatMap { Hex.bytes($0) }, name: body["sender_name"]?.string,
      channel: body["channel"]?.string, Text(body["text"]?.string ?? ""))
  }

  /// Of the event of a reaction. `nil`: it is our own.
  init?(reaction body: JSONValue) {
    guard let conversation = body["conversation"]?.string, let sender = body["sender"]?.string,
      body["ours"]?.bool != true
    else { return nil }
    if let peer = Hex.bytes(conversation).flatMap({ KeyPrefix(bytes: $0) }) {
      let author = Hex.bytes(sender).flatMap { $0 == peer.bytes ? nil : $0 }
      self.init(author == nil ? .direct : .room, sender: peer.bytes, author: author, name: nil, channel: nil, Text(""))
    } else {
      self.init(.channel, sender: nil, author: nil, name: sender, channel: conversation, Text(""))
    }
    isAboutOurs = body["target_outgoing"] != nil
  }

  private init(
    _ kind: StoredMessage.Kind, sender: [UInt8]?, author: [UInt8]?, name: String?, channel: String?, _ text: Text
  ) {
    switch kind {
    // Answers that were asked for are no messages: what comes as one is what anybody can send.
    case .direct, .room, .cli:
      place = sender.flatMap { KeyPrefix(bytes: $0) }.map { .node($0) }
      keys = [sender, author].compactMap { $0 }
    case .channel, .datagram:
      place = channel.map { .channel($0) }
      self.name = name
    case .deleted: break
    }
    isDirect = kind == .direct || kind == .cli
    self.text = text
  }
}

/// Decides whether a received message concerns anybody here: the numbers of the pages, hooks, webhooks and Home Assistant ask it.
///
/// The journal, hubs, the search, backups and clients of the proxy never do: they have all messages.
struct Concern {
  var blocks: [Block]
  var level = ConversationLevel.all
  /// The radio's name; `nil`: nobody can mention us.
  var ourName: String?

  /// `nil`: the message concerns somebody.
  func filtered(_ said: Said) -> Filtered? {
    guard said.place != nil else { return nil }
    if blocks.contains(where: { $0.holds(said) }) { return .blocked }
    return isWanted(said) ? nil : .level
  }

  private func isWanted(_ said: Said) -> Bool {
    switch level {
    case .all: true
    case .mentions: said.isDirect || said.isAboutOurs || mentionsUs(said)
    case .direct: said.isDirect || said.isAboutOurs || isToUs(said)
    case .nothing: false
    }
  }

  func mentionsUs(_ said: Said) -> Bool {
    guard let ourName else { return false }
    return Mention.names(in: said.text).contains { $0.isExactly(ourName) }
  }

  private func isToUs(_ said: Said) -> Bool {
    guard let ourName else { return false }
    return said.text.bytes.starts(with: "@[\(ourName)]".utf8)
  }
}

/// Why a message concerns nobody.
public enum Filtered: String, Sendable {
  /// Its sender is blocked.
  case blocked
  /// The level of its conversation leaves it out.
  case level
}

extension Store {
  public static let maxBlocks = 256

  /// At most `maxBlocks`.
  public func blocks() throws(StoreError) -> [Block] {
    try translating { () throws(SQLiteError) in try readBlocks() }
  }

  func readBlocks() throws(SQLiteError) -> [Block] {
    try database.rows("SELECT channel, whom FROM blocks") { (row: Statement) -> Block? in
      let (channel, whom) = (row.text(0), row.blob(1))
      return channel.isEmpty ? Block.key(whom) : Block.name(Text(bytes: whom).string, channel: channel)
    }
  }

  /// Within a `write`. The caller keeps to `maxBlocks`, and counts again what is unread.
  public func add(_ block: Block) throws(SQLiteError) {
    try database.run("INSERT OR IGNORE INTO blocks(channel, whom) VALUES (?, ?)", block.values)
  }

  /// Within a `write`. The caller counts again what is unread.
  public func remove(_ block: Block) throws(SQLiteError) {
    try database.run("DELETE FROM blocks WHERE channel = ? AND whom = ?", block.values)
  }

  /// Why a received message concerns nobody; `nil`: it concerns somebody.
  public func filtered(_ message: StoredMessage) throws(StoreError) -> Filtered? {
    let radio = message.radio == Self.everyRadio ? self.radio : message.radio
    return try translating { () throws(SQLiteError) in try judge(Said(message), ofRadio: radio) }
  }

  /// Whether an event is about a message that concerns somebody, or about no received message.
  public func concernsSomebody(_ kind: EventKind, _ body: JSONValue) throws(StoreError) -> Bool {
    guard let said = try self.said(kind, body) else { return true }
    // On a channel, a reaction is the same for all radios: its event names none.
    let isOfAll = kind == .reaction && said.place?.channel != nil
    let radio = isOfAll ? self.radio : self.radio(inEvent: body["radio"]?.string)?.id ?? self.radio
    return try translating { () throws(SQLiteError) in try judge(said, ofRadio: radio) } == nil
  }

  /// `nil`: the event is about no received message.
  private func said(_ kind: EventKind, _ body: JSONValue) throws(StoreError) -> Said? {
    switch kind {
    case .message: return Said(message: body)
    case .ways:
      // The event has no text.
      guard let id = body["id"]?.integer, let message = try self.message(id: id) else { return Said(message: body) }
      return Said(message)
    case .reaction: return Said(reaction: body)
    default: return nil
    }
  }

  private func judge(_ said: Said, ofRadio radio: Int64) throws(SQLiteError) -> Filtered? {
    guard let place = said.place else { return nil }
    return try concern(in: place, ofRadio: radio, readBlocks()).filtered(said)
  }

  func concern(
    in place: ConversationName, ofRadio radio: Int64, _ blocks: [Block]
  ) throws(SQLiteError) -> Concern {
    let level = try database.value(
      "SELECT level FROM conversations WHERE radio = ? AND name = ?", .integer(radio), .text(place.description))
    return Concern(
      blocks: blocks, level: ConversationLevel(column: level?.integer ?? 0), ourName: self.radio(radio)?.name.string)
  }
}
