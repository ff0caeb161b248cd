// SPDX-License-Identifier: MIT

import UntrustedText

/// A requested thing that does not exist, with words for each kind.
public enum Missing: Equatable, Sendable, CustomStringConvertible {
  case node(String)
  case channel(String)
  /// A node or a channel.
  case addressee(String)
  /// A received message, by its number.
  case message(Int64)
  case deletable(Int64)
  /// An outgoing message, by its id.
  case outgoing(String)
  case conversation(String)
  case radio(String)
  case upstream(String, known: [String])
  case removedUpstream(String, known: [String])
  case deadLetter(Int64, upstream: String)
  case alert(Int64)
  /// A blocked sender.
  case block(String)
  case page(String)

  public var description: String {
    switch self {
    case .addressee(let name) where name.begins(with: "#"), .channel(let name) where name.begins(with: "#"):
      "no channel \(name): join it with meshpost channel add \(Escaping.argument(name))"
    case .channel(let name): "the radio has no channel \"\(name)\": see meshpost channels"
    case .node(let name): "no known node is named \"\(name)\": see meshpost contacts"
    case .addressee(let name): "no known node and no channel is named \"\(name)\": see meshpost contacts and channels"
    case .message(let number): "there is no message \(number), or none that can be reacted to: see meshpost messages"
    case .deletable(let number): "there is no received message \(number): see meshpost messages"
    case .outgoing(let key): "there is no outgoing message \"\(key)\": see meshpost sent"
    case .conversation(let name): "there is no conversation \"\(name)\" yet: it begins with its first message"
    case .radio(let name): "no radio \"\(name)\" was ever attached: see meshpost radio list"
    case .removedUpstream(let name, let known):
      "no upstream \"\(name)\" was removed; removed: \(Self.list(known))"
    case .upstream(let name, let known): "unknown upstream \"\(name)\"; configured: \(Self.list(known))"
    case .deadLetter(let seq, let upstream): "\(upstream) has no dead letter \(seq): see meshpost upstream dead"
    case .block(let name): "\"\(name)\" is not blocked: see meshpost block list"
    case .alert(let id): "there is no alert \(id): see meshpost alerts"
    case .page(let path): "not found: \(path)"
    }
  }

  private static func list(_ known: [String]) -> String { known.isEmpty ? "none" : known.joined(separator: ", ") }
}
