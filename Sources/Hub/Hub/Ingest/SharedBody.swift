// SPDX-License-Identifier: MIT

import Companion
import JSON

/// The body of a message in a channel that all its hearers share: what a radio's frame has, and no more. It is the word of the first gateway for all.
/// So it names no sender and no kind that others would not have reported, no channel and no radio, which each hearer names for itself (`AgreedName`),
/// and has nothing that hides the text from searches and pushes, which read no long body.
enum SharedBody {
  private static let mostMentions = 8

  static func of(_ body: JSONValue, in channel: String) -> JSONValue {
    func name(_ field: String) -> JSONValue? {
      HubBounds.cut(body[field]?.string, HubBounds.nameBytes).map { .string($0) }
    }
    func whole(_ field: String) -> JSONValue? { body[field]?.integer.map { .integer($0) } }
    let text = body["text"]?.string
    let isDatagram = text == nil && body["kind"]?.string == "datagram"
    let fields: [(String, JSONValue?)] = [
      ("kind", .string(isDatagram ? "datagram" : "channel")), ("sender_name", name("sender_name")),
      ("channel", .string(channel)), ("sender_time", whole("sender_time")),
      ("data_type", text == nil ? whole("data_type") : nil),
      ("data", text == nil ? body["data"]?.string.map { .string($0) } : nil), ("text", text.map { .string($0) }),
      ("text_hex", text.flatMap { bytes(body["text_hex"]?.string, of: $0) }),
      ("mentions", text.flatMap { mentions(body["mentions"]?.array, in: $0) }),
    ]
    return .object(fields.compactMap { name, value in value.map { (name, $0) } })
  }

  /// The bytes of a text that is no UTF-8: another text's would be taken for those of another message.
  private static func bytes(_ hex: String?, of text: String) -> JSONValue? {
    guard let hex, let bytes = Hex.bytes(hex), String(decoding: bytes, as: UTF8.self).utf8.elementsEqual(text.utf8)
    else {
      return nil
    }
    return .string(hex)
  }

  /// The names that are mentioned in the text.
  private static func mentions(_ names: [JSONValue]?, in text: String) -> JSONValue? {
    let there = (names ?? []).prefix(mostMentions).filter { $0.string.map { text.contains("@[\($0)]") } ?? false }
    return there.isEmpty ? nil : .array(there)
  }
}

/// What several gateways call the same: pure. No gateway names a channel for others.
struct AgreedName {
  private var counts: [String: Int] = [:]
  private var all = 0

  /// One for each gateway.
  mutating func add(_ name: String?) {
    guard let name, !name.isEmpty else { return }
    counts[name, default: 0] += 1
    all += 1
  }

  /// The name that more than half of them use.
  var name: String? { counts.first { $0.value * 2 > all }?.key }

  private static let field = "channel_name"
  /// In no text of a body: there, the second quote has a backslash before it.
  private static let member = "\"\(field)\":"

  /// A message's body, with the name that its hearers give its channel. Bodies of earlier versions have the first hearer's, which counts as one.
  static func named(_ body: String, by heard: [String]) -> String {
    var names = Self()
    for report in heard where report.contains(member) { names.add(name(in: report)) }
    var body = body
    if body.contains(member) {
      names.add(name(in: body))
      // `try?`: stored values were valid JSON when they arrived.
      body = JSONValue.object(((try? JSONValue(parsing: body))?.fields ?? []).filter { $0.0 != field }).text
    }
    guard let name = names.name, body.utf8.last == UInt8(ascii: "}"), body.utf8.count > 2 else { return body }
    return "\(body.dropLast()),\(member)\(JSONValue.string(name).text)}"
  }

  private static func name(in body: String) -> String? {
    // `try?`: as above.
    (try? JSONValue(parsing: body))?[field]?.string
  }
}
