// SPDX-License-Identifier: MIT

import Deflate
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
  private static let senderFields = ["sender_name", "author_name"]

  /// Folded.
  let words: [[UInt8]]

  /// `nil`: there are no words. `name`: of the parameter.
  init?(_ question: String?, of name: String = "q") throws(BadQuery) {
    guard let question else { return nil }
    guard question.utf8.count <= Self.mostBytes else {
      throw BadQuery("\(name) may have at most \(Self.mostBytes) bytes")
    }
    let words = question.unicodeScalars.split { $0.properties.isWhitespace }
    guard words.count <= Self.mostWords else { throw BadQuery("\(name) may have at most \(Self.mostWords) words") }
    self.words = words.map { Self.folded(String($0)) }.filter { !$0.isEmpty }
    if self.words.isEmpty { return nil }
  }

  /// Whether a message's body has all the words.
  func match(message body: JSONValue) -> Bool { match(Self.texts(of: body)) }

  /// The texts of a message's body that are searched.
  static func texts(of body: JSONValue) -> [String] { fields.compactMap { body[$0]?.string } }

  /// Whether the name of a message's sender has all the words; in a room, also its author's.
  func match(sender body: JSONValue) -> Bool { match(Self.senderFields.compactMap { body[$0]?.string }) }

  func match(_ texts: [String]) -> Bool {
    let texts = texts.map(Self.folded)
    return words.allSatisfy { word in texts.contains { $0.contains(word) } }
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

/// Unicode's compatibility decomposition (NFKD): UAX #15, and for Hangul the core specification, 3.12. Foundation's decomposition would bring 34 MB
/// of ICU.
enum Decomposition {
  /// The decomposition of each scalar that has one, except Hangul.
  private static let mappings: [UInt32: [Unicode.Scalar]] = read(PackageResources.decompositions_gz)

  /// The decomposition in canonical order: equivalent texts have equal ones.
  static func compatible(_ text: some Sequence<Unicode.Scalar>) -> [Unicode.Scalar] {
    var scalars: [Unicode.Scalar] = []
    for scalar in text {
      if scalar.value < 0xA0 {
        scalars.append(scalar)
      } else if (0xAC00...0xD7A3).contains(scalar.value) {
        scalars += hangul(scalar.value - 0xAC00)
      } else if let mapped = mappings[scalar.value] {
        scalars += mapped
      } else {
        scalars.append(scalar)
      }
    }
    order(&scalars)
    return scalars
  }

  private static func hangul(_ index: UInt32) -> [Unicode.Scalar] {
    let parts = [0x1100 + index / 588, 0x1161 + index % 588 / 28] + (index % 28 == 0 ? [] : [0x11A7 + index % 28])
    return parts.compactMap { Unicode.Scalar($0) }
  }

  /// Sorts successive marks by their combining classes; marks of one class keep their order.
  private static func order(_ scalars: inout [Unicode.Scalar]) {
    var from = 0
    while from < scalars.count {
      guard scalars[from].properties.canonicalCombiningClass != .notReordered else {
        from += 1
        continue
      }
      let end = scalars[from...].firstIndex { $0.properties.canonicalCombiningClass == .notReordered } ?? scalars.count
      // `sort` keeps the order of equal elements, but its documentation does not promise it: the offset decides.
      let marks = scalars[from..<end].enumerated().sorted {
        ($0.element.properties.canonicalCombiningClass.rawValue, $0.offset)
          < ($1.element.properties.canonicalCombiningClass.rawValue, $1.offset)
      }
      scalars.replaceSubrange(from..<end, with: marks.map(\.element))
      from = end
    }
  }

  /// Reads the compressed table, a list of runs. A run has: the number of scalars between the last run and this one; twice the number of targets, plus
  /// one if a length follows, for a run whose targets count upwards; the length; and each target as its distance from the one before.
  /// Tests/decompositions writes it, here with Unicode 14.0.0.
  private static func read(_ packed: [UInt8]) -> [UInt32: [Unicode.Scalar]] {
    // `try?`: the table is of this program.
    guard var bytes = (try? Inflater.gunzip(packed, limit: 1 << 16))?[...] else { return [:] }
    func number() -> Int {
      var (value, shift) = (0, 0)
      while let byte = bytes.popFirst() {
        value |= Int(byte & 0x7F) << shift
        shift += 7
        if byte & 0x80 == 0 { break }
      }
      return value
    }
    var (mappings, scalar, last) = ([UInt32: [Unicode.Scalar]](), 0, 0)
    while !bytes.isEmpty {
      scalar += number()
      let kind = number()
      let length = kind & 1 == 1 ? number() : 1
      let targets = (0..<kind >> 1).map { _ in
        let distance = number()
        last += distance & 1 == 1 ? -(distance >> 1) - 1 : distance >> 1
        return last
      }
      for step in 0..<length {
        mappings[UInt32(scalar + step)] = targets.compactMap { Unicode.Scalar(UInt32($0 + step)) }
      }
      scalar += length
    }
    return mappings
  }
}
