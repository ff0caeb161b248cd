// SPDX-License-Identifier: MIT

import Store

extension EventFilter {
  /// A weakness of a filter that an operator should know: the key, and an explanation.
  public struct Weakness: Equatable, Sendable {
    public let key: String
    public let message: String
  }

  /// Kinds whose events belong to a channel, to a node, or to the gateway.
  private static let ofChannels: Set<EventKind> = [
    .message, .outgoing, .reaction, .channel, .document, .command, .ways,
  ]
  private static let ofNodes: Set<EventKind> = [
    .message, .outgoing, .reaction, .contact, .advert, .contactRemoved, .telemetry, .status, .document, .command, .ways,
    .route, .neighbours, .clock, .owner, .snapshot,
  ]
  private static let ofTheGateway: Set<EventKind> = [
    .radio, .radioGap, .power, .bucketGap, .allowance, .alert, .document, .command, .deletion,
  ]

  /// The weaknesses of the written lists. `nil`: the key is missing; an empty list is deliberate.
  public func weaknesses(channels: [String]?, contacts: [String]?, rooms: [String]?) -> [Weakness] {
    guard isSelective else { return [] }
    var found: [Weakness] = []
    for (key, names) in [("contacts", contacts ?? []), ("rooms", rooms ?? [])] {
      for name in names where NodeName(name).isWeak { found.append(Weakness(key: key, message: weakness(of: name))) }
    }
    let passable = passableKinds
    if passable.isEmpty {
      let key = !(contacts ?? []).isEmpty ? "contacts" : !(rooms ?? []).isEmpty ? "rooms" : "channels"
      found.append(Weakness(key: key, message: "nothing can pass: events of these kinds cannot be attributed to these"))
    } else {
      for kind in kinds.sorted() where !passable.contains(kind) && kind != EventKind.gap.rawValue {
        found.append(Weakness(key: "kinds", message: "\"\(kind)\" cannot be attributed to those named: none passes"))
      }
      found += change(channels, contacts)
    }
    return found
  }

  private func weakness(of name: String) -> String {
    wantsWholeKeys
      ? "\"\(name)\" is not a whole key, so nothing passes by it: others can easily take a name or a key prefix. "
        + "Write the 64 hex digits"
      : "\"\(name)\" is not a whole key: anyone who takes that name, or makes a key with that prefix, passes. "
        + "Write the 64 hex digits"
  }

  /// A list of channels alone excludes direct messages, and one of contacts alone excludes channels, perhaps unintentionally.
  private func change(_ channels: [String]?, _ contacts: [String]?) -> [Weakness] {
    let messages: Set<String> = ["message", "outgoing", "reaction"]
    guard kinds.isEmpty || !kinds.isDisjoint(with: messages) else { return [] }
    if !(channels ?? []).isEmpty, contacts == nil {
      return [
        Weakness(
          key: "channels",
          message:
            "only these channels pass, and no direct messages any more: name their senders in `contacts`, or say "
            + "`contacts = []`")
      ]
    }
    if !(contacts ?? []).isEmpty, channels == nil {
      return [
        Weakness(
          key: "contacts",
          message: "only direct messages of these pass, and no channels any more: name those in `channels`, or say "
            + "`channels = []`")
      ]
    }
    return []
  }

  private var passableKinds: Set<String> {
    var passable: Set<EventKind> = []
    if !channels.isEmpty { passable.formUnion(Self.ofChannels) }
    if !contacts.isEmpty || !rooms.isEmpty { passable.formUnion(Self.ofNodes) }
    if !kinds.isEmpty { passable.formUnion(Self.ofTheGateway) }
    let names = Set(passable.map(\.rawValue))
    return kinds.isEmpty ? names : names.intersection(kinds)
  }
}
