// SPDX-License-Identifier: MIT

import Companion
import Documents
import JSON
import Store
import UntrustedText

/// Decides which events an upstream gets. Other events count as taken: they are never sent, and never missed.
///
/// `kinds` selects kinds. Channels, contacts and rooms select among their events: as soon as one of the three names anything, only events of the
/// named ones pass. The gateway's own events belong to none of them, and pass if `kinds` names their kind.
public struct EventFilter: Equatable, Sendable {
  /// Kinds of events; empty: all except `packet`. `gap` always passes: it reports missing events.
  public var kinds: Set<String>
  /// Messages on these channels, ours and others', reactions there, and changes of the channels.
  public let channels: [ChannelName]
  /// Direct messages of and to these nodes, reactions there, and news about them.
  var contacts: [NodeName]
  /// Posts in these rooms, ours and others', reactions there, and news about them.
  var rooms: [NodeName]
  /// A list names something, even if only by names that match nothing (`wantsWholeKeys`).
  let isSelective: Bool
  /// Names and key prefixes match nothing: programs act on the events that pass.
  let wantsWholeKeys: Bool
  /// The upstream's name: events of messages that it ordered pass, whoever the recipient is.
  var upstream: String?
  /// The upstream's name, for a server that exchanges commands and documents: it always gets the results of its own commands, and never its own
  /// documents.
  var own: String?
  /// Older events do not pass.
  public var age: AgeLimit?
  /// Only the last event of a sent message passes, with the whole message; the events of its waiting, attempts and repetitions do not.
  public var endsOnly = false
  /// Messages that concern nobody here do not pass, nor do their ways and reactions (`Concern`): of upstreams whose readers are people.
  public var onlyConcerning = false
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

  var leavesNothingOut: Bool { passesAll && own == nil && age == nil && !endsOnly && !onlyConcerning }

  /// Whether the event passes, and is not too old at `present`.
  func passes(_ event: JournalEvent, _ store: Store, _ present: AgeLimit.Present?) throws(StoreError) -> Bool {
    try passes(event, store) && !isTooOld(event, present)
  }

  func isTooOld(_ event: JournalEvent, _ present: AgeLimit.Present?) -> Bool {
    guard let age, let present else { return false }
    return !age.passes(event, present)
  }

  /// `store`: has the keys and channels that an event names in short.
  func passes(_ event: JournalEvent, _ store: Store) throws(StoreError) -> Bool {
    if let own, let passes = passesAsOwn(event, own) { return passes }
    // It has no content: whoever has events is told that they are to go. A hub in any case, others like news of another kind.
    if event.kind == EventKind.deletion.rawValue { return own != nil || kinds.isEmpty || kinds.contains(event.kind) }
    if endsOnly, !isEnd(event, store) { return false }
    if wantsWholeKeys, try isCausedByHook(event, store) { return false }
    // It costs queries: not for events that do not pass in any case.
    if onlyConcerning, kinds.isEmpty || takes(event.kind), try !concernsSomebody(event, store) { return false }
    // Packets are many, and useful to few: only upstreams whose `kinds` name them get them. They belong to no channel or node.
    if event.kind == EventKind.packet.rawValue { return kinds.contains(event.kind) && !isSelective }
    if passesAll || event.kind == EventKind.gap.rawValue { return true }
    guard kinds.isEmpty || takes(event.kind) else { return false }
    guard isSelective else { return true }
    guard let body = event.json else { return false }
    return try selects(event.kind, body, store)
  }

  /// `alert` includes the alerts about the battery and the supply, which have a kind of their own.
  private func takes(_ kind: String) -> Bool {
    kinds.contains(kind) || kind == EventKind.power.rawValue && kinds.contains(EventKind.alert.rawValue)
  }

  /// Otherwise the ways of a message's copies, which cost queries, need not be read.
  var takesWays: Bool { kinds.isEmpty || takes(EventKind.ways.rawValue) }

  var takesAlerts: Bool { passesAll || takes(EventKind.alert.rawValue) }

  /// `nil`: the event is like any other.
  private func passesAsOwn(_ event: JournalEvent, _ own: String) -> Bool? {
    guard event.kind == EventKind.command.rawValue || event.kind == EventKind.document.rawValue, let body = event.json
    else { return nil }
    if event.kind == EventKind.document.rawValue {
      if body["via"]?.string?.isExactly(own) == true { return false }
      return exchangesDocuments ? true : nil
    }
    return body["upstream"]?.string?.isExactly(own) == true ? true : nil
  }

  /// The end of a sent message, or that it waits for its recipient for the first time. Up to `wholeEndsFrom`, a last event has no text: all events pass.
  private func isEnd(_ event: JournalEvent, _ store: Store) -> Bool {
    guard event.kind == EventKind.outgoing.rawValue, event.seq > store.wholeEndsFrom,
      let body = event.json
    else { return true }
    if body["state"]?.string == OutgoingState.heldForRecipient.rawValue { return body["text"] != nil }
    return body["ended_at"] != nil && (body["text"] != nil || body["heard"] == nil)
  }

  /// Messages of hooks are no events for hooks, which would otherwise answer themselves, or each other, for ever.
  private func isCausedByHook(_ event: JournalEvent, _ store: Store) throws(StoreError) -> Bool {
    guard [EventKind.outgoing, .command, .ways, .reaction].contains(where: { $0.rawValue == event.kind }),
      let body = event.json
    else { return false }
    if let upstream = body["upstream"]?.string ?? body["origin"]?.string { return UpstreamSettings.isHook(upstream) }
    guard let id = body["id"]?.string, let message = try store.outgoing(key: id) else { return false }
    return UpstreamSettings.isHook(message.origin)
  }

  private func concernsSomebody(_ event: JournalEvent, _ store: Store) throws(StoreError) -> Bool {
    guard let kind = EventKind(rawValue: event.kind), [.message, .ways, .reaction].contains(kind), let body = event.json
    else { return true }
    return try store.concernsSomebody(kind, body)
  }

  // MARK: Channels and nodes of events

  private func selects(_ kind: String, _ body: JSONValue, _ store: Store) throws(StoreError) -> Bool {
    switch EventKind(rawValue: kind) {
    case .message: return try selectsMessage(body, store)
    case .outgoing: return try selectsOutgoing(body, store)
    // Like its message, whose channel and nodes it names.
    case .ways: return try body["heard_by"] == nil ? selectsMessage(body, store) : selectsOutgoing(body, store)
    case .reaction: return try selectsConversation(body["conversation"]?.string ?? "", store)
    case .contact, .advert, .contactRemoved, .route: return try selectsNode(body["key"], body["name"], store)
    case .telemetry, .status, .neighbours, .clock, .owner, .snapshot:
      return try selectsNode(body["node"], body["name"], store)
    case .channel: return try selectsChannel(body["channel"]?.string, body["name"]?.string, store)
    case .document: return try selectsDocument(body["key"]?.string ?? "", store)
    case .command: return try selectsCommand(body, store)
    // The gateway's own events belong to no channel or node: `kinds` must name them.
    case .radio, .radioGap, .power, .bucketGap, .allowance, .alert: return takes(kind)
    case .gap, .deletion: return true
    // Kinds that a later version adds belong to nothing known here.
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
      // Only the room says who the author is, in four bytes: the filter compares the room, never the author.
      guard let sender else { return false }
      return try NodeName.any(rooms, are: sender, name: body["sender_name"]?.string, store)
    default: return false
    }
  }

  /// Only the first event of a message names its recipient.
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

  /// The result of another server's `send` contains texts and recipients: all its messages must pass.
  private func selectsCommand(_ body: JSONValue, _ store: Store) throws(StoreError) -> Bool {
    guard body["command"]?.string == "send" else { return kinds.contains(EventKind.command.rawValue) }
    guard let messages = body["result"]?["messages"]?.array, !messages.isEmpty else { return false }
    for message in messages where try !selectsOutgoing(message, store) { return false }
    return true
  }

  private static func prefix(_ text: String) -> KeyPrefix? { Hex.bytes(text).flatMap { KeyPrefix(bytes: $0) } }
}
