// SPDX-License-Identifier: MIT

import JSON

/// Which joined messages a reader wants.
struct MessageFilter: Sendable {
  /// Bytes of a search; the rest is not looked for.
  private static let longest = 256

  var channel: String?
  var gateway: String?
  /// Milliseconds since 1970, of when a message first came.
  var since: Int64?
  var until: Int64?
  /// Folded; all of them must be in a message's text, its sender's name or its channel's.
  private var words: [[UInt8]]

  init(channel: String? = nil, gateway: String? = nil, since: Int64? = nil, until: Int64? = nil, q: String? = nil) {
    (self.channel, self.gateway, self.since, self.until) = (channel, gateway, since, until)
    words = Self.folded(String(decoding: (q ?? "").utf8.prefix(Self.longest), as: UTF8.self))
      .split { $0 == 0x20 || $0 == 9 || $0 == 10 || $0 == 13 }.map { Array($0) }
  }

  /// Only the channel, which the database itself picks.
  var isEmpty: Bool { gateway == nil && since == nil && until == nil && words.isEmpty }

  func lets(_ message: HubStore.Joined) -> Bool {
    if let since, message.at < since { return false }
    if let until, message.at > until { return false }
    guard !words.isEmpty else { return true }
    // `try?`: stored values were valid JSON when they arrived.
    guard let body = try? JSONValue(parsing: message.body) else { return false }
    let text = ["text", "sender_name", "channel_name"].compactMap { body[$0]?.string }.joined(separator: "\n")
    let folded = Self.folded(text)
    return words.allSatisfy { Self.contains(folded, $0) }
  }

  /// Older messages than this one may be wanted; `nil`: there is none.
  func goesOn(_ oldest: HubStore.Joined?) -> Bool {
    guard let oldest else { return false }
    return since.map { oldest.at >= $0 } ?? true
  }

  /// By scalars, without case.
  private static func folded(_ text: String) -> [UInt8] {
    var folded: [UInt8] = []
    for scalar in text.unicodeScalars { folded += Array(scalar.properties.lowercaseMapping.utf8) }
    return folded
  }

  private static func contains(_ text: [UInt8], _ word: [UInt8]) -> Bool {
    guard let first = word.first, text.count >= word.count else { return word.isEmpty }
    return (0...(text.count - word.count)).contains { start in
      text[start] == first && text[start..<(start + word.count)].elementsEqual(word)
    }
  }
}
