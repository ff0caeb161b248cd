// SPDX-License-Identifier: MIT

import Companion
import Documents
import JSON
import Store
import UntrustedText

/// Which events an upstream gets. What does not pass counts as taken: it is never sent, and never missed.
///
/// `kinds` says which kinds. Channels, contacts and rooms say which of these: as soon as one of the three names
/// anything, only what they name passes. An event that names none, and cannot be attributed to one, does not pass.
public struct EventFilter: Equatable, Sendable {
  /// Kinds of events; empty: all. `gap` always passes: it tells what else is missing.
  public var kinds: Set<String>
  /// Messages on these channels, ours and others', reactions there, and changes of the channels.
  public let channels: [ChannelName]
  /// Direct messages of and to these nodes, reactions there, and news about them.
  var contacts: [NodeName]
  /// Posts in these rooms, ours and others', reactions there, and news about them.
  var rooms: [NodeName]
  /// Something is named, if only by names that do not count here.
  let isSelective: Bool
  /// Names and key prefixes match nothing: for programs that act on what passes.
  let wantsWholeKeys: Bool
  /// The upstream's own name: what becomes of messages that it had sent passes whoever they are to.
  var upstream: String?
  /// The upstream's own name, where the server has to do with commands and documents: what has become of its commands it
  /// gets in any case, and what it told us itself it does not get back.
  var own: String?
  /// What is older does not pass.
  public var age: AgeLimit?
  /// Of sent messages only the end passes, with all of the message: not that they wait, are tried, or were repeated.
  public var endsOnly = false
  /// The server may edit documents, and gets all of them.
  var exchangesDocuments = false

  public init(
    kinds: Set<String> = [], channels: [String] = [], contacts: [String] = [], rooms: [String] = [],
    wantsWholeKeys: Bool = false
  ) {
    self.kinds = kinds
    self.channels = channels.map(ChannelName.init)
    self.contacts = contacts.map(NodeName.init)
    self.rooms = rooms.map(NodeName.init)
    self.wantsWholeKeys = wantsWholeKeys
    isSelective = !(channels.isEmpty && contacts.isEmpty && rooms.isEmpty)
    guard wantsWholeKeys else { return }
    self.contacts.removeAll { $0.isWeak }
    self.rooms.removeAll { $0.isWeak }
  }

  var passesAll: Bool { kinds.isEmpty && !isSelective }

  var leavesNothingOut: Bool { passesAll && own == nil && age == nil && !endsOnly }

  /// As below, and it is not too old; `present`: by what that is judged.
  func passes(_ event: JournalEvent, _ store: Store, _ present: AgeLimit.Present?) throws(StoreError) -> Bool {
    try passes(event, store) && !isTooOld(event, present)
  }

  func isTooOld(_ event: JournalEvent, _ present: AgeLimit.Present?) -> Bool {
    guard let age, let present else { return false }
    return !age.passes(event, present)
  }

  /// `store`: whose keys and channels those are that an event names in short.
  func passes(_ event: JournalEvent, _ store: Store) throws(StoreError) -> Bool {
    if let own, let passes = passesAsOwn(event, own) { return passes }
    if endsOnly, !isEnd(event, store) { return false }
    if wantsWholeKeys, try isCausedByHook(event, store) { return false }
    // Many, and of use to few: only who asks for them gets them. They cannot be told to be anybody's.
    if event.kind == EventKind.packet.rawValue { return kinds.contains(event.kind) && !isSelective }
    if passesAll || event.kind == EventKind.gap.rawValue { return true }
    guard kinds.isEmpty || takes(event.kind) else { return false }
    guard isSelective else { return true }
    // `try?`: a body that is no JSON is damaged: whose it is cannot be told.
    guard let body = try? JSONValue(parsing: event.body) else { return false }
    return try selects(event.kind, body, store)
  }

  /// Who wants alerts wants those of the battery and the supply, which have a kind of their own.
  private func takes(_ kind: String) -> Bool {
    kinds.contains(kind) || kind == EventKind.power.rawValue && kinds.contains(EventKind.alert.rawValue)
  }

  /// Alerts of the gateway pass.
  var takesAlerts: Bool { passesAll || takes(EventKind.alert.rawValue) }

  /// `nil`: it is like any other event.
  private func passesAsOwn(_ event: JournalEvent, _ own: String) -> Bool? {
    guard event.kind == EventKind.command.rawValue || event.kind == EventKind.document.rawValue else { return nil }
    // `try?`: a body that is no JSON is damaged, and its gap tells.
    guard let body = try? JSONValue(parsing: event.body) else { return nil }
    if event.kind == EventKind.document.rawValue {
      if body["via"]?.string?.isExactly(own) == true { return false }
      return exchangesDocuments ? true : nil
    }
    return body["upstream"]?.string?.isExactly(own) == true ? true : nil
  }

  /// What is from before ends had the message's text goes as it did.
  private func isEnd(_ event: JournalEvent, _ store: Store) -> Bool {
    guard event.kind == EventKind.outgoing.rawValue, event.seq > store.wholeEndsFrom,
      // `try?`: a body that is no JSON is damaged, and its gap tells.
      let body = try? JSONValue(parsing: event.body)
    else { return true }
    return body["ended_at"] != nil && (body["text"] != nil || body["heard"] == nil)
  }

  /// What a hook has sent is no event for hooks: they would answer themselves, or each other, for ever.
  private func isCausedByHook(_ event: JournalEvent, _ store: Store) throws(StoreError) -> Bool {
    guard event.kind == EventKind.outgoing.rawValue || event.kind == EventKind.command.rawValue,
      // `try?`: a body that is no JSON is damaged, and its gap tells.
      let body = try? JSONValue(parsing: event.body)
    else { return false }
    if let upstream = body["upstream"]?.string ?? body["origin"]?.string { return UpstreamSettings.isHook(upstream) }
    guard let id = body["id"]?.string, let message = try store.outgoing(key: id) else { return false }
    return UpstreamSettings.isHook(message.origin)
  }

  // MARK: Whose it is

  private func selects(_ kind: String, _ body: JSONValue, _ store: Store) throws(StoreError) -> Bool {
    switch EventKind(rawValue: kind) {
    case .message: return try selectsMessage(body, store)
    case .outgoing: return try selectsOutgoing(body, store)
    case .reaction: return try selectsConversation(body["conversation"]?.string ?? "", store)
    case .contact, .advert, .contactRemoved: return try selectsNode(body["key"], body["name"], store)
    case .telemetry, .status: return try selectsNode(body["node"], body["name"], store)
    case .channel: return try selectsChannel(body["channel"]?.string, body["name"]?.string, store)
    case .document: return try selectsDocument(body["key"]?.string ?? "", store)
    case .command: return try selectsCommand(body, store)
    // The gateway's own, of nobody: `kinds` names them, or they are not meant.
    case .radio, .radioGap, .power, .bucketGap, .allowance, .alert: return takes(kind)
    case .gap: return true
    // What a later version may add is not named either.
    case .packet, nil: return false
    }
  }

  private func selectsMessage(_ body: JSONValue, _ store: Store) throws(StoreError) -> Bool {
    let sender = body["sender"]?.string.flatMap(Self.prefix)
    switch body["kind"]?.string {
    case "channel", "datagram":
      return try selectsChannel(body["channel"]?.string, body["channel_name"]?.string, store)
    case "direct":
      guard let sender else { return false }
      return try NodeName.any(contacts, are: sender, name: body["sender_name"]?.string, store)
    case "room":
      // Who wrote it is the room's word, four bytes long: it is the room that is named, never the author.
      guard let sender else { return false }
      return try NodeName.any(rooms, are: sender, name: body["sender_name"]?.string, store)
    default: return false
    }
  }

  /// Only the first event of a message says to whom it is.
  private func selectsOutgoing(_ body: JSONValue, _ store: Store) throws(StoreError) -> Bool {
    if let upstream, body["origin"]?.string?.isExactly(upstream) == true { return true }
    if let digest = body["channel"]?.string { return try selectsChannel(digest, nil, store) }
    if let recipient = body["recipient"] { return try selectsNode(recipient, nil, store) }
    guard let id = body["id"]?.string, let message = try store.outgoing(key: id) else { return false }
    if let upstream, message.origin.isExactly(upstream) { return true }
    if let digest = message.channel { return try selectsChannel(digest, nil, store) }
    return try message.recipient.map { key throws(StoreError) in try selectsNode(key, nil, store) } ?? false
  }

  /// A channel's digest, or the beginning of the peer's key.
  private func selectsConversation(_ conversation: String, _ store: Store) throws(StoreError) -> Bool {
    guard let peer = Self.prefix(conversation) else { return try selectsChannel(conversation, nil, store) }
    let name = try store.contact(prefix: peer)?.contact.name.string
    return try NodeName.any(contacts + rooms, are: peer, name: name, store)
  }

  private func selectsNode(_ key: JSONValue?, _ name: JSONValue?, _ store: Store) throws(StoreError) -> Bool {
    guard let key = key?.string.flatMap({ PublicKey(hex: $0) }) else { return false }
    return try selectsNode(key, name?.string, store)
  }

  private func selectsNode(_ key: PublicKey, _ name: String?, _ store: Store) throws(StoreError) -> Bool {
    try NodeName.any(contacts + rooms, are: key, name: name, store)
  }

  private func selectsChannel(_ digest: String?, _ name: String?, _ store: Store) throws(StoreError) -> Bool {
    guard let digest, !digest.isEmpty else { return false }
    for channel in channels where try channel.means(digest, name: name, store) { return true }
    return false
  }

  private func selectsDocument(_ key: String, _ store: Store) throws(StoreError) -> Bool {
    switch DocumentKey(key) {
    case .node(let key, _): try selectsNode(.string(key), nil, store)
    case .relay(let digest): try selectsChannel(digest, nil, store)
    case .setting: kinds.contains(EventKind.document.rawValue)
    case nil: false
    }
  }

  /// What others had sent, it tells with its text and to whom.
  private func selectsCommand(_ body: JSONValue, _ store: Store) throws(StoreError) -> Bool {
    guard body["command"]?.string == "send" else { return kinds.contains(EventKind.command.rawValue) }
    guard let messages = body["result"]?["messages"]?.array, !messages.isEmpty else { return false }
    for message in messages where try !selectsOutgoing(message, store) { return false }
    return true
  }

  private static func prefix(_ text: String) -> KeyPrefix? { Hex.bytes(text).flatMap { KeyPrefix(bytes: $0) } }
}
