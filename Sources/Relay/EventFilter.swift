// SPDX-License-Identifier: MIT

import JSON
import Store

/// Which events an upstream gets. What does not pass counts as taken: it is never sent, and never missed.
public struct EventFilter: Equatable, Sendable {
  /// Kinds of events; empty: all. `gap` always passes: it tells what else is missing.
  public var kinds: Set<String>
  /// Channels of messages, by name or digest; empty: all. Direct messages are no channel's and pass.
  public var channels: Set<String>
  /// Senders and recipients of direct messages, by name or the beginning of their key; empty: all.
  public var contacts: Set<String>
  /// The upstream's own name, where the server has to do with commands and documents: what has become of its commands it
  /// gets in any case, and what it told us itself it does not get back.
  var own: String?

  public init(kinds: Set<String> = [], channels: Set<String> = [], contacts: Set<String> = []) {
    self.kinds = kinds
    self.channels = channels
    self.contacts = contacts
  }

  var passesAll: Bool { kinds.isEmpty && channels.isEmpty && contacts.isEmpty }

  var leavesNothingOut: Bool { passesAll && own == nil }

  func passes(_ event: JournalEvent) -> Bool {
    if let own, let passes = passesAsOwn(event, own) { return passes }
    // Many, and of use to few: only who asks for them gets them.
    if event.kind == EventKind.packet.rawValue { return kinds.contains(event.kind) }
    if passesAll || event.kind == EventKind.gap.rawValue { return true }
    guard kinds.isEmpty || kinds.contains(event.kind) else { return false }
    guard !channels.isEmpty || !contacts.isEmpty else { return true }
    // `try?`: a body that is no JSON is damaged, and its gap tells.
    guard let body = try? JSONValue(parsing: event.body) else { return true }
    if body["channel"] != nil { return passes(channels, [body["channel"], body["channel_name"]], []) }
    let people = [body["sender_name"], body["name"], body["author_name"]]
    return passes(contacts, people, [body["sender"], body["recipient"], body["key"], body["node"]])
  }

  /// `nil`: it is like any other event.
  private func passesAsOwn(_ event: JournalEvent, _ own: String) -> Bool? {
    guard event.kind == EventKind.command.rawValue || event.kind == EventKind.document.rawValue else { return nil }
    // `try?`: a body that is no JSON is damaged, and its gap tells.
    guard let body = try? JSONValue(parsing: event.body) else { return true }
    if event.kind == EventKind.document.rawValue { return body["via"]?.string != own }
    return body["upstream"]?.string == own ? true : nil
  }

  private func passes(_ wanted: Set<String>, _ exact: [JSONValue?], _ keys: [JSONValue?]) -> Bool {
    guard !wanted.isEmpty else { return true }
    let known = exact.compactMap { $0?.string }, hex = keys.compactMap { $0?.string }
    // What speaks of nobody in particular (a radio, a reaction) is for everybody.
    if known.isEmpty, hex.isEmpty { return true }
    return known.contains(where: wanted.contains)
      || hex.contains { key in wanted.contains { $0.utf8.count >= 4 && key.hasPrefix($0.lowercased()) } }
  }
}
