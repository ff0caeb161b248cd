// SPDX-License-Identifier: MIT

import Companion
import JSON

/// A topic with `{field}` in it: `gateway`, `kind`, or a field of the event's body.
///
/// Values cannot add levels or wildcards, nor end the connection: `/`, `+`, `#` become `_`, and so do control
/// characters and non-characters, which MQTT forbids or lets a broker answer with a disconnect (MQTT 5, 1.5.4).
public struct TopicTemplate: Equatable, Sendable {
  public struct Failure: Error, Equatable, CustomStringConvertible, Sendable {
    public let description: String
  }

  /// Brokers compare topics byte by byte, as `Text` does.
  private enum Piece: Equatable {
    case text(Text)
    case field(Text)
  }

  private let pieces: [Piece]
  private static let longestField = 128
  /// Bytes; MQTT allows 65,535.
  private static let longestTopic = 32768

  public init(_ text: String) throws(Failure) {
    guard !text.isEmpty, text.utf8.count <= 512 else { throw Failure(description: "a topic must have 1 to 512 bytes") }
    guard Self.isPublishable(text) else {
      throw Failure(description: "a topic must not contain +, # or control characters")
    }
    var pieces: [Piece] = []
    var rest = Substring(text)
    while let open = rest.firstIndex(of: "{") {
      guard let close = rest[open...].firstIndex(of: "}") else { throw Failure(description: "\"{\" without \"}\"") }
      let name = rest[rest.index(after: open)..<close]
      guard !name.isEmpty, name.allSatisfy({ $0.isLetter || $0.isNumber || $0 == "_" }) else {
        throw Failure(description: "\"{\(name)}\" is not a field")
      }
      pieces += [.text(Text(String(rest[..<open]))), .field(Text(String(name)))]
      rest = rest[rest.index(after: close)...]
    }
    self.pieces = pieces + [.text(Text(String(rest)))]
  }

  /// Names of the fields in it.
  public var fields: [String] { pieces.compactMap { if case .field(let name) = $0 { name.string } else { nil } } }

  func render(kind: String, gateway: String, body: JSONValue) -> String {
    var topic = ""
    for piece in pieces {
      switch piece {
      case .text(let text): topic += text.string
      case .field("gateway"): topic += Self.clean(gateway)
      case .field("kind"): topic += Self.clean(kind)
      case .field where topic.utf8.count > Self.longestTopic: continue
      case .field(let name):
        let value = body[name.string]
        topic += Self.clean(value?.string ?? value?.integer.map { "\($0)" } ?? "none")
      }
    }
    // Topics with this beginning are the broker's own.
    if topic.unicodeScalars.first == "$", case .field? = pieces.first(where: { $0 != .text("") }) {
      topic = "_" + String(topic.unicodeScalars.dropFirst())
    }
    return topic
  }

  private static func clean(_ text: String) -> String {
    var cleaned = String.UnicodeScalarView()
    for scalar in text.unicodeScalars.prefix(longestField) {
      cleaned.append(scalar == "/" || !isAllowed(scalar) ? "_" : scalar)
    }
    return cleaned.isEmpty ? "none" : String(cleaned)
  }

  /// Brokers accept a publication to this topic.
  static func isPublishable(_ topic: String) -> Bool {
    !topic.isEmpty && topic.utf8.count <= longestTopic && topic.unicodeScalars.allSatisfy(isAllowed)
  }

  private static func isAllowed(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F..<0xA0, 0xFDD0...0xFDEF: false
    // The last two of each plane are non-characters.
    case let value where value & 0xFFFE == 0xFFFE: false
    default: scalar != "+" && scalar != "#"
    }
  }
}
