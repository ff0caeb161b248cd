// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import HTTP
import JSON
import Messaging
import SQLite
import Store
import UntrustedText

/// Changes of read positions, for followers: the latest ones since the start.
final class ReadMarks {
  private static let mostKept = 64

  private(set) var count = 0
  private var last: [(radio: Int64, name: ConversationName)] = []

  func add(_ name: ConversationName, ofRadio radio: Int64) {
    count += 1
    last.append((radio, name))
    if last.count > Self.mostKept { last.removeFirst() }
  }

  /// Changes after the first `seen`, each once; older ones than are kept are missing.
  func changes(after seen: Int) -> [(radio: Int64, name: ConversationName)] {
    var found: [(radio: Int64, name: ConversationName)] = []
    for change in last.suffix(max(0, count - seen)) where !found.contains(where: { $0 == change }) {
      found.append(change)
    }
    return found
  }
}

/// `/v1/conversations`: the list of conversations with unread counts, read positions and levels.
struct ConversationsAPI {
  let dependencies: ControlAPI.Dependencies
  let messages: MessagesAPI
  let reads: ReadMarks
  private var store: Store { dependencies.store }

  /// The newest first; then the radio's channels and rooms without messages. `unread=1`: only those with unread messages.
  func list(_ request: HTTPRequest, _ reply: Reply, _ news: News) async throws -> Answer {
    let radio = try RadiosAPI.wanted(request, store) ?? store.radio
    let onlyUnread = request.query["unread"] == "1"
    try await prepare()
    try await recount(news)
    defer { dependencies.operations.memoryWasUsed() }
    var left = try all(ofRadio: radio).filter { !onlyUnread || $0.unread > 0 }[...]
    return try await reply.rows {
      var lines: [UInt8] = []
      for conversation in left.prefix(ControlAPI.pageRows) { lines += try line(of: conversation) }
      left = left.dropFirst(ControlAPI.pageRows)
      return (lines, left.isEmpty)
    }
  }

  private func all(ofRadio radio: Int64) throws(StoreError) -> [Conversation] {
    let kept = try store.conversations(ofRadio: radio)
    let spoken = kept.filter { $0.newest > .first }
    guard radio == store.radio else { return spoken }
    let levels = Dictionary(kept.map { ($0.name, $0.level) }) { first, _ in first }
    return spoken
      + (try unspoken(beside: spoken)).map { conversation in
        var conversation = conversation
        conversation.level = levels[conversation.name] ?? .all
        return conversation
      }
  }

  /// The radio's channels and rooms without messages.
  private func unspoken(beside spoken: [Conversation]) throws(StoreError) -> [Conversation] {
    var known = Set(spoken.map(\.name))
    var names = try store.channels().map { ConversationName.channel($0.secret.digest) }
    try store.eachContact(onRadioOnly: true, ofRadio: store.radio) { stored in
      if stored.contact.type == .room { names.append(.node(stored.contact.key.prefix)) }
      return true
    }
    return names.filter { known.insert($0).inserted }.map {
      Conversation(name: $0, newest: .first, unread: 0, isMentioned: false, read: .first)
    }
  }

  private func line(of conversation: Conversation) throws(StoreError) -> [UInt8] {
    let newest = try row(at: conversation.newest)
    let who = try who(conversation.name, newest)
    return ControlAPI.line { json in
      let row = Shape.Conversation()
      json.field(row.conversation, conversation.name.description)
      json.field(row.kind, who.kind)
      json.field(row.name, who.name)
      json.field(row.alias, who.key.flatMap { DocumentAPI.alias(ofKey: $0.hex, store) })
      json.field(row.key, who.key?.hex)
      json.field(row.channel, conversation.name.channel)
      json.field(row.onRadio, who.isOnRadio)
      Self.write(conversation, to: &json)
      if let newest {
        json.object(row.newest) { MessageRow(store: store, relay: nil).write(newest, to: &$0) }
      }
    }
  }

  static func write(_ conversation: Conversation, to json: inout JSONWriter) {
    json.field(Shape.Unread().unread, conversation.unread)
    json.field(Shape.Unread().mentioned, conversation.isMentioned)
    json.field(Shape.Unread().read, conversation.read.description)
    json.field(Shape.Unread().level, conversation.level.rawValue)
    json.field(Shape.Unread().muted, conversation.level == .nothing)
  }

  private struct Who {
    var (kind, name) = ("direct", "")
    var key: PublicKey?
    var isOnRadio = false
  }

  private func who(_ name: ConversationName, _ newest: ConversationRow?) throws(StoreError) -> Who {
    var who = Who()
    switch name {
    case .channel(let digest):
      let known = try store.nameOfChannel(digest)
      (who.kind, who.name, who.isOnRadio) = ("channel", known?.string ?? "", known != nil)
      if known == nil, case .received(let message)? = newest {
        who.name = try store.nameOfChannel(of: message)?.string ?? ""
      }
    case .node(let prefix):
      let stored = try store.contact(prefix: prefix)
      who.name = stored?.contact.name.string ?? ""
      (who.key, who.isOnRadio) = (stored?.contact.key, stored?.onRadio ?? false)
      if Visible.isBlank(who.name) { who.name = "" }
      if stored?.contact.type == .room { who.kind = "room" }
      if case .received(let message)? = newest {
        if message.kind == .room { who.kind = "room" }
        if stored == nil { who.name = message.senderName?.string ?? "" }
      }
    }
    return who
  }

  /// `nil`: the message was deleted meanwhile.
  private func row(at place: MessagePlace) throws(StoreError) -> ConversationRow? {
    guard place.outgoing == 0 else {
      return try store.outgoing(id: place.outgoing).map { .sent($0, place) }
    }
    return try store.message(id: place.message).map { .received($0) }
  }

  // MARK: Read positions

  static func name(_ text: String) throws(Refusal) -> ConversationName {
    guard let name = ConversationName(text) else {
      throw .invalid("conversation: channel:DIGEST or node:PREFIX is wanted")
    }
    return name
  }

  /// Marks messages as read up to and including this row; never moves back.
  func markRead(_ body: RequestBody, _ news: News) async throws -> Answer {
    let name = try Self.name(try body.string("conversation"))
    guard let place = MessagePlace(try body.string("cursor")) else {
      throw Refusal.invalid("cursor: a row's cursor is wanted")
    }
    try await prepareWithIndexes()
    let radio = store.radio
    var isMoved = false
    try await store.save { store throws(SQLiteError) in
      isMoved = try store.markRead(name, upTo: place, ofRadio: radio)
    }
    if isMoved { tell(name, ofRadio: radio, news) }
    try await recount(news)
    return .done
  }

  /// Sets which messages of a conversation concern anybody here. It is named as in rows, or by its node or channel.
  func setLevel(_ body: RequestBody, _ news: News) async throws -> Answer {
    let wanted = try body.string("conversation")
    let name = try ConversationName(wanted) ?? conversation(with: wanted)
    guard let level = ConversationLevel(rawValue: try body.string("level")) else {
      let known = ConversationLevel.allCases.map(\.rawValue).joined(separator: ", ")
      throw Refusal.invalid("level: one of \(known) is wanted")
    }
    try await prepareWithIndexes()
    let radio = store.radio
    // Only conversations in the list can have a level, so that the table cannot grow beyond it.
    guard try all(ofRadio: radio).contains(where: { $0.name == name }) else {
      throw Refusal.notFound(.conversation(wanted))
    }
    try await store.save { store throws(SQLiteError) in
      try store.setLevel(level, of: name, ofRadio: radio)
      _ = try store.recountUnread(in: name)
    }
    tell(name, ofRadio: radio, news)
    try await recount(news)
    return .done
  }

  /// Whether the list has it, of any radio. Within a request, behind `prepareWithIndexes`.
  func isThere(_ name: ConversationName) throws(StoreError) -> Bool {
    if try all(ofRadio: store.radio).contains(where: { $0.name == name }) { return true }
    let found = try store.deletable(name, before: nil)
    return found.received + found.sent + found.waiting > 0
  }

  /// Its whole name; `nil`: it has none.
  func title(of name: ConversationName) throws(StoreError) -> String? {
    let title = try who(name, nil).name
    return title.isEmpty ? nil : title
  }

  func conversation(with text: String, isWhole: Bool = false) throws(Refusal) -> ConversationName {
    let addressing = Addressing(store)
    return switch isWhole ? try addressing.findWhole(text) : try addressing.find(text) {
    case .channel(let channel): .channel(channel.secret.digest)
    case .contact(let stored): .node(stored.contact.key.prefix)
    }
  }

  func tell(_ name: ConversationName, ofRadio radio: Int64, _ news: News) {
    reads.add(name, ofRadio: radio)
    news.tell()
  }

  /// So that unread messages can be counted. While the search index is being built, they are counted later.
  func prepareWithIndexes() async throws(StoreError) {
    try await prepare()
    _ = try await messages.prepareIfNear()
  }

  /// Counts again what is unread where that is due: a few conversations in each turn, since there may be any number of messages. While the search index is
  /// being built, the counts stay as they were, and a later request gets here.
  func recount(_ news: News) async throws(StoreError) {
    while try store.isRecountDue(), try await messages.prepareIfNear() {
      var counted: [Store.Counted] = []
      try await store.save { store throws(SQLiteError) in counted = try store.recountNext() }
      for one in counted { tell(one.name, ofRadio: one.radio, news) }
    }
  }

  /// Adds messages to the list that arrived since the last request.
  private func prepare() async throws(StoreError) {
    while try !store.isListUpToDate() {
      try await store.save { store throws(SQLiteError) in _ = try store.listConversations() }
    }
  }
}
