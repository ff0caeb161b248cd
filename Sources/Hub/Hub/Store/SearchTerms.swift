// SPDX-License-Identifier: MIT

import Glibc
import JSON

/// The words of a search: a message has to have all of them, anywhere in its text or its names.
///
/// Both sides are folded: compatibility forms become plain ones, upper case becomes lower case, and accents of European scripts are removed. Then
/// scalars are compared, never characters: a mark that follows a word does not hide it. Scripts without spaces need nothing else: a match may begin
/// and end anywhere.
struct SearchTerms: Sendable {
  /// Most bytes of a query before folding.
  static let mostBytes = 512
  static let mostWords = 16
  /// Searched bytes of a text.
  private static let lookedAt = 8192
  /// The fields of a message that are searched.
  private static let fields = ["text", "sender_name", "author_name", "channel_name"]

  private let words: [[UInt8]]

  /// `nil`: there are no words.
  init?(_ question: String?) throws(BadQuery) {
    guard let question else { return nil }
    guard question.utf8.count <= Self.mostBytes else { throw BadQuery("q may have at most \(Self.mostBytes) bytes") }
    let words = question.unicodeScalars.split { $0.properties.isWhitespace }
    guard words.count <= Self.mostWords else { throw BadQuery("q may have at most \(Self.mostWords) words") }
    self.words = words.map { Self.folded(String($0)) }.filter { !$0.isEmpty }
    if self.words.isEmpty { return nil }
  }

  /// Whether a message's body has all the words.
  func match(message body: JSONValue) -> Bool { match(Self.fields.compactMap { body[$0]?.string }) }

  func match(_ texts: [String]) -> Bool {
    let texts = texts.map(Self.folded)
    return words.allSatisfy { word in texts.contains { Self.has($0, word) } }
  }

  private static func has(_ text: [UInt8], _ word: [UInt8]) -> Bool {
    text.withUnsafeBytes { text in
      word.withUnsafeBytes { word in
        guard let start = text.baseAddress, let sought = word.baseAddress else { return false }
        var from = 0
        while from + word.count <= text.count {
          let places = text.count - word.count - from + 1
          guard let found = memchr(start + from, Int32(word[0]), places) else { return false }
          let place = start.distance(to: UnsafeRawPointer(found))
          if memcmp(start + place, sought, word.count) == 0 { return true }
          from = place + 1
        }
        return false
      }
    }
  }

  /// The folded text as UTF-8. A match of bytes is a match of scalars.
  static func folded(_ text: String) -> [UInt8] {
    let bytes = Array(text.utf8.prefix(lookedAt))
    if bytes.allSatisfy({ $0 < 0x80 }) { return bytes.map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 } }
    var folded: [UInt8] = []
    folded.reserveCapacity(bytes.count)
    for scalar in Decomposition.compatible(String(decoding: bytes, as: UTF8.self).unicodeScalars)
    where !(0x300...0x36F).contains(scalar.value) {
      // Through upper case, as in case folding: ß and ſ, σ and ς.
      for upper in scalar.properties.uppercaseMapping.unicodeScalars where !(0x300...0x36F).contains(upper.value) {
        folded += upper.properties.lowercaseMapping.utf8
      }
    }
    return folded
  }
}

/// An invalid parameter: the answer is 400.
struct BadQuery: Error, Equatable {
  let message: String
  init(_ message: String) { self.message = message }
}
