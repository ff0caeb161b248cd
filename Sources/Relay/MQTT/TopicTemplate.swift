// SPDX-License-Identifier: MIT

import JSON

/// A topic with `{field}` in it: `gateway`, `kind`, or a field of the event's body.
///
/// What is filled in cannot make other levels or wildcards: `/`, `+`, `#` and control characters become `_`.
public struct TopicTemplate: Equatable, Sendable {
  public struct Failure: Error, Equatable, CustomStringConvertible, Sendable {
    public let description: String
  }

  private enum Piece: Equatable {
    case text(String)
    case field(String)
  }

  private let pieces: [Piece]
  private static let longestField = 128

  public init(_ text: String) throws(Failure) {
    guard !text.isEmpty, text.utf8.count <= 512 else { throw Failure(description: "a topic has 1 to 512 bytes") }
    guard !text.contains("+"), !text.contains("#"), !text.unicodeScalars.contains(where: { $0.value < 0x20 }) else {
      throw Failure(description: "a topic to publish to has no + and #")
    }
    var pieces: [Piece] = []
    var rest = Substring(text)
    while let open = rest.firstIndex(of: "{") {
      guard let close = rest[open...].firstIndex(of: "}") else { throw Failure(description: "\"{\" without \"}\"") }
      let name = rest[rest.index(after: open)..<close]
      guard !name.isEmpty, name.allSatisfy({ $0.isLetter || $0.isNumber || $0 == "_" }) else {
        throw Failure(description: "\"{\(name)}\" names no field")
      }
      pieces += [.text(String(rest[..<open])), .field(String(name))]
      rest = rest[rest.index(after: close)...]
    }
    self.pieces = pieces + [.text(String(rest))]
  }

  func render(kind: String, gateway: String, body: JSONValue) -> String {
    var topic = ""
    for piece in pieces {
      switch piece {
      case .text(let text): topic += text
      case .field("gateway"): topic += Self.clean(gateway)
      case .field("kind"): topic += Self.clean(kind)
      case .field(let name): topic += Self.clean(body[name]?.string ?? body[name]?.integer.map { "\($0)" } ?? "none")
      }
    }
    return topic
  }

  private static func clean(_ text: String) -> String {
    let scalars = text.unicodeScalars.prefix(longestField).map { scalar -> Character in
      scalar.value < 0x20 || scalar.value == 0x7F || "/+#".unicodeScalars.contains(scalar) ? "_" : Character(scalar)
    }
    return scalars.isEmpty ? "none" : String(scalars)
  }
}
