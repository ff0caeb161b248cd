// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

/// The subject of a document. Source: docs/documents.md.
///
///     node/KEY/alias     node/KEY/note     node/KEY/tags
///     channel/DIGEST/relay
///     settings/log_level     settings/messages_from_hub     settings/airtime_per_hour_s
public enum DocumentKey: Equatable, Sendable {
  public enum NodeField: String, CaseIterable, Sendable { case alias, note, tags }

  public enum Setting: String, CaseIterable, Sendable {
    case logLevel = "log_level"
    case messagesFromHub = "messages_from_hub"
    case airtime = "airtime_per_hour_s"
  }

  /// `key`: 64 lower-case hex digits.
  case node(key: String, NodeField)
  /// Whether gateways exchange messages of the channel; `digest`: 16 lower-case hex digits.
  case relay(digest: String)
  case setting(Setting)

  public static let allowed =
    "a document's key is node/KEY/alias, …/note or …/tags, channel/DIGEST/relay, or settings/ with log_level, "
    + "messages_from_hub or airtime_per_hour_s"

  public init?(_ text: String) {
    let parts = text.pieces(at: "/")
    switch parts.first {
    case "node" where parts.count == 3 && Self.isHex(parts[1], 64):
      guard let field = NodeField(rawValue: parts[2]) else { return nil }
      self = .node(key: parts[1], field)
    case "channel" where parts.count == 3 && Self.isHex(parts[1], 16) && parts[2] == "relay":
      self = .relay(digest: parts[1])
    case "settings" where parts.count == 2:
      guard let setting = Setting(rawValue: parts[1]) else { return nil }
      self = .setting(setting)
    default: return nil
    }
  }

  private static func isHex(_ text: String, _ count: Int) -> Bool {
    text.utf8.count == count
      && text.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
  }

  public var text: String {
    switch self {
    case .node(let key, let field): "node/\(key)/\(field.rawValue)"
    case .relay(let digest): "channel/\(digest)/relay"
    case .setting(let setting): "settings/\(setting.rawValue)"
    }
  }

  /// The right of a gateway's `allow` that a hub needs to edit the document.
  public var right: String { if case .setting = self { "settings" } else { "documents" } }

  /// The allowed values, for people.
  public var wanted: String {
    switch self {
    case .node(_, .alias): "a string of 1 to 64 bytes, not only blanks, and no control characters"
    case .node(_, .note): "a string of 1 to 1000 bytes, not only blanks"
    case .node(_, .tags):
      "a list of at most 16 strings of 1 to 32 bytes, not only blanks, and no control characters"
    case .relay, .setting(.messagesFromHub): "true or false"
    case .setting(.logLevel): "error, warning, notice, info or debug"
    case .setting(.airtime): "a number of seconds, 1 to 3600"
    }
  }

  /// Whether a document may have this key and this value; `nil`: it is deleted. The same rules hold for each edit, whoever made it.
  public static func allows(_ key: String, _ value: JSONValue?) -> Bool {
    guard let kind = DocumentKey(key) else { return false }
    return value.map(kind.allows) ?? true
  }

  public func allows(_ value: JSONValue) -> Bool {
    switch self {
    case .node(_, .alias): Self.isLine(value, 64)
    case .node(_, .note):
      value.string.map { (1...1000).contains($0.utf8.count) && !Visible.isBlank($0) } ?? false
    case .node(_, .tags): value.array.map { $0.count <= 16 && $0.allSatisfy { Self.isLine($0, 32) } } ?? false
    case .relay, .setting(.messagesFromHub): value.bool != nil
    case .setting(.logLevel):
      value.string.map { ["error", "warning", "notice", "info", "debug"].contains($0) } ?? false
    case .setting(.airtime): value.integer.map { (1...3600).contains($0) } ?? false
    }
  }

  /// An alias of which nothing is visible would hide the node's name; control characters would reach every screen.
  private static func isLine(_ value: JSONValue, _ most: Int) -> Bool {
    value.string.map { Visible.isLine($0, bytes: 1...most) } ?? false
  }
}
