// SPDX-License-Identifier: MIT

import JSON
import Store

/// The body of a webhook's request: a text with `{{field}}` for fields of the event.
///
/// Fields are those of the event's body, and `kind`, `seq`, `at`, `gateway`. A field that the event does not have is empty. A JSON template escapes
/// each value, without quotes around it; another one inserts it unchanged. `{{field:chat}}` disarms characters that make chat servers call people
/// (`@everyone`, `<!channel>`) or show links under other names: anybody on the mesh may write them.
public struct BodyTemplate: Equatable, Sendable {
  public struct Failure: Error, Equatable, CustomStringConvertible, Sendable {
    public let description: String
  }

  private enum Piece: Equatable {
    case text([UInt8])
    case field(String, isForChat: Bool)
  }

  private let pieces: [Piece]
  private let isJSON: Bool

  /// Refuses a field that is not closed, and a JSON template that gives no JSON.
  public init(_ text: String, isJSON: Bool) throws(Failure) {
    self.isJSON = isJSON
    var pieces: [Piece] = []
    var rest = Substring(text)
    while let open = Self.position(of: "{{", in: rest) {
      pieces.append(.text(Array(rest[..<open].utf8)))
      rest = rest[rest.index(open, offsetBy: 2)...]
      guard let close = Self.position(of: "}}", in: rest) else {
        throw Failure(description: "\"{{\" without \"}}\"")
      }
      let written = rest[..<close].filter { $0 != " " }
      let isForChat = written.hasSuffix(":chat")
      let name = isForChat ? String(written.dropLast(5)) : written
      guard !name.isEmpty, name.allSatisfy({ $0.isLetter || $0.isNumber || $0 == "_" }) else {
        throw Failure(description: "\"{{\(rest[..<close])}}\" is not a field")
      }
      pieces.append(.field(name, isForChat: isForChat))
      rest = rest[rest.index(close, offsetBy: 2)...]
    }
    pieces.append(.text(Array(rest.utf8)))
    self.pieces = pieces
    guard isJSON else { return }
    do {
      _ = try JSONValue(parsing: render { _ in "1" })
      // A text outside of quotes would pass for a number, until there is one.
      _ = try JSONValue(parsing: render { Self.texts.contains($0) ? "x" : "1" })
    } catch {
      throw Failure(description: "the filled-in template is not valid JSON (\(error))")
    }
  }

  /// A template whose format is not given: JSON if it begins with `{`, but not with a field, or if it is an array.
  public init(guessing text: String) throws(Failure) {
    let start = text.utf8.drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }.prefix(2)
    // `try?`: `[{{channel_name}}] {{text}}` is no array, but a text.
    if start.first == UInt8(ascii: "["), let array = try? BodyTemplate(text, isJSON: true) {
      self = array
    } else {
      try self.init(text, isJSON: start.first == UInt8(ascii: "{") && !start.elementsEqual("{{".utf8))
    }
  }

  /// Fields of no event's body.
  private static let others: Set = ["event", "seq", "at", "gateway"]
  /// Fields that are texts in each event that has them.
  private static let texts = EventBody.messageTexts.union(["event", "gateway"])

  private static func position(of marker: String, in text: Substring) -> Substring.Index? {
    var place = text.startIndex
    while place < text.endIndex {
      if text[place...].hasPrefix(marker) { return place }
      place = text.index(after: place)
    }
    return nil
  }

  /// Its fields that no message has: they stay empty.
  public var fieldsWithoutValue: [String] {
    pieces.compactMap {
      if case .field(let name, _) = $0, !Self.others.contains(name), !EventBody.messageFields.contains(name) {
        name
      } else {
        nil
      }
    }
  }

  func render(_ event: JournalEvent, gateway: String) -> [UInt8] {
    let body = event.json ?? .null
    return render { name in
      switch name {
      case "kind" where body["kind"] == nil || event.kind != "message": event.kind
      case "event": event.kind
      case "seq": "\(event.seq)"
      case "at": "\(event.at)"
      case "gateway": gateway
      // A gap gets a text in words: a template for messages has no other field for it.
      case "text" where event.kind == EventKind.gap.rawValue: Self.words(ofGap: body)
      case "sender_name" where event.kind == EventKind.gap.rawValue: "gateway \(gateway)"
      default: Self.text(body[name])
      }
    }
  }

  private static func words(ofGap body: JSONValue) -> String {
    let count = body["count"]?.count ?? 0
    let reason = body["reason"]?.string
    // What another card had not sent, only that card knows.
    let unknown = "events \(reason == "conflict" ? "may be" : "are") lost, and nobody knows how many"
    let most = body["at_most"]?.count.map { "at most \($0) events are lost" }
    return (count > 0 ? "\(count) events are lost" : most ?? unknown) + (reason.map { " (\($0))" } ?? "")
  }

  private static func text(_ value: JSONValue?) -> String {
    switch value {
    case nil, .null: return ""
    case .string(let text): return text
    case .some(let other): return other.text
    }
  }

  private func render(_ value: (String) -> String) -> [UInt8] {
    var result: [UInt8] = []
    for piece in pieces {
      switch piece {
      case .text(let bytes): result += bytes
      case .field(let name, let isForChat):
        let text = isForChat ? Self.harmless(value(name)) : value(name)
        result += isJSON ? Self.escaped(text) : Array(text.utf8)
      }
    }
    return result
  }

  /// It compares scalars, so no combining character hides one of these. An invisible space after `@` ends a mention; the entities are Slack's.
  private static func harmless(_ text: String) -> String {
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      switch scalar {
      case "@": result.append(contentsOf: "@\u{200B}".unicodeScalars)
      case "<": result.append(contentsOf: "&lt;".unicodeScalars)
      case ">": result.append(contentsOf: "&gt;".unicodeScalars)
      case "&": result.append(contentsOf: "&amp;".unicodeScalars)
      default: result.append(scalar)
      }
    }
    return String(result)
  }

  /// Escapes a text for the inside of a JSON string.
  private static func escaped(_ text: String) -> [UInt8] { Array(JSONValue.string(text).bytes.dropFirst().dropLast()) }
}
