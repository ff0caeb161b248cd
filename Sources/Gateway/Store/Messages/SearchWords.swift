// SPDX-License-Identifier: MIT

/// Prepares texts for the search index: in scripts without spaces, each letter becomes a separate word.
///
/// The index splits at characters that are not letters. A Chinese sentence would be one word, and a search would find
/// it only as a whole. With separated letters, a word becomes a phrase: 天气 is found as 天 followed by 气. Korean has
/// spaces between words but not between a word and its particles, so its syllables are separated, too. Other text is
/// unchanged.
enum SearchWords {
  /// Scripts without spaces, in ascending order: Thai and Lao, Burmese, jamo, Khmer, radicals, the numeral zero, kana,
  /// Bopomofo and what follows up to Yi, Chinese, Burmese's additions, Hangul, compatibility forms, forms of half
  /// width, old kana, Chinese beyond the first plane.
  private static let unspaced: [ClosedRange<UInt32>] = [
    0x0E00...0x0EFF, 0x1000...0x109F, 0x1100...0x11FF, 0x1780...0x17FF, 0x2E80...0x2FDF, 0x3005...0x3007,
    0x3040...0x31FF, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xA960...0xA97F, 0xA9E0...0xA9FF, 0xAA60...0xAA7F,
    0xAC00...0xD7FF, 0xF900...0xFAFF, 0xFF66...0xFFDC, 0x1B000...0x1B16F, 0x20000...0x3FFFF,
  ]

  /// Whether this letter is a separate word.
  static func isUnspaced(_ scalar: UInt32) -> Bool {
    guard scalar >= 0x0E00 else { return false }
    return unspaced.contains { $0.contains(scalar) }
  }

  /// The text with a space before and after each letter that is a separate word; invalid UTF-8 is unchanged.
  static func spaced(_ text: some Collection<UInt8>) -> [UInt8] {
    var spaced: [UInt8] = []
    spaced.reserveCapacity(text.count)
    var place = text.startIndex
    while place < text.endIndex {
      let lead = text[place]
      let length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 1
      let letter = text[place...].prefix(length)
      place = letter.endIndex
      guard length > 1, letter.count == length, isUnspaced(scalar(letter)) else {
        // Only one byte: the following bytes may be a whole letter.
        spaced.append(lead)
        place = text.index(after: letter.startIndex)
        continue
      }
      spaced.append(32)
      spaced.append(contentsOf: letter)
      spaced.append(32)
    }
    return spaced
  }

  static func spaced(_ text: String) -> String { String(decoding: spaced(Array(text.utf8)), as: UTF8.self) }

  /// The scalar of a letter of three or four bytes; 0 if the bytes are not a letter.
  private static func scalar(_ letter: some Collection<UInt8>) -> UInt32 {
    var value = UInt32(letter.first ?? 0) & (letter.count == 3 ? 0x0F : 0x07)
    for byte in letter.dropFirst() {
      guard byte & 0xC0 == 0x80 else { return 0 }
      value = value << 6 | UInt32(byte & 0x3F)
    }
    return value
  }
}
