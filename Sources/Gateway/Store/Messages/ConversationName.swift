// SPDX-License-Identifier: MIT

import Companion
import UntrustedText

/// Identifies a channel, or the conversation with a node: `channel:DIGEST` or `node:PREFIX`, as clients write it.
///
/// It does not depend on names: a channel that the radio no longer has, or an unknown node, has one, too.
public enum ConversationName: Hashable, Sendable, CustomStringConvertible {
  /// A channel by the digest of its secret, 16 hexadecimal digits.
  case channel(String)
  case node(KeyPrefix)

  /// `nil`: not in this form.
  public init?(_ text: String) {
    if text.begins(with: "channel:") {
      let digest = String(text.utf8.dropFirst(8))?.lowercased() ?? ""
      guard digest.utf8.count == 16, Hex.bytes(digest) != nil else { return nil }
      self = .channel(digest)
    } else if text.begins(with: "node:") {
      guard let bytes = String(text.utf8.dropFirst(5)).flatMap({ Hex.bytes($0) }), let prefix = KeyPrefix(bytes: bytes)
      else { return nil }
      self = .node(prefix)
    } else {
      return nil
    }
  }

  /// The conversation of a received message; `nil`: answers of a node's command line, datagrams, and messages on an
  /// unknown channel.
  public init?(of message: StoredMessage) {
    switch message.kind {
    case .direct, .room:
      guard let sender = message.sender else { return nil }
      self = .node(sender)
    case .channel:
      guard let channel = message.channel else { return nil }
      self = .channel(channel)
    case .cli, .datagram, .deleted: return nil
    }
  }

  public init?(of message: OutgoingMessage) {
    if let channel = message.channel {
      self = .channel(channel)
    } else if let recipient = message.recipient {
      self = .node(recipient.prefix)
    } else {
      return nil
    }
  }

  public init?(of row: ConversationRow) {
    switch row {
    case .received(let message): self.init(of: message)
    case .sent(let message, _): self.init(of: message)
    }
  }

  public var description: String {
    switch self {
    case .channel(let digest): "channel:\(digest)"
    case .node(let prefix): "node:\(prefix.hex)"
    }
  }

  public var channel: String? { if case .channel(let digest) = self { digest } else { nil } }
  public var node: KeyPrefix? { if case .node(let prefix) = self { prefix } else { nil } }

  /// The term of its messages in the search index.
  var indexWord: String {
    switch self {
    case .channel(let digest): "c\(digest)"
    case .node(let prefix): "s\(prefix.hex)"
    }
  }
}
