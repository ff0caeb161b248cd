// SPDX-License-Identifier: MIT

/// An input line: the text, and the cursor's position.
struct LineEditor: Equatable {
  private(set) var characters: [Character] = []
  private(set) var position = 0

  var text: String { String(characters) }

  /// The word before the cursor, for completion.
  var word: String {
    String(characters[wordStart..<position])
  }

  /// A list of positions: a separately typed accent has its own position.
  private var wordStart: Int { characters[..<position].lastIndex(of: " ").map { $0 + 1 } ?? 0 }

  /// Returns true if the key was an editing key.
  mutating func take(_ key: Terminal.Key) -> Bool {
    switch key {
    case .character(let character):
      characters.insert(character, at: position)
      position += 1
    case .backspace:
      guard position > 0 else { return true }
      position -= 1
      characters.remove(at: position)
    case .delete: if position < characters.count { characters.remove(at: position) }
    case .left: position = max(0, position - 1)
    case .right: position = min(characters.count, position + 1)
    case .home, .control("a"): position = 0
    case .end, .control("e"): position = characters.count
    case .control("u"): set("")
    case .control("w"):
      let start = min(wordStart, max(0, position - 1))
      characters.removeSubrange(start..<position)
      position = start
    default: return false
    }
    return true
  }

  mutating func set(_ text: String) {
    characters = Array(text)
    position = characters.count
  }

  /// Replaces the word before the cursor.
  mutating func replaceWord(with text: String) {
    let (start, fresh) = (wordStart, Array(text))
    characters.replaceSubrange(start..<position, with: fresh)
    position = start + fresh.count
  }

  /// The visible part of the line in this many columns, and the cursor's column.
  func window(_ columns: Int) -> (text: String, cursor: Int) {
    guard columns > 2 else { return ("", 0) }
    var start = 0
    while TextWidth.of(String(characters[start..<position])) >= columns { start += 1 }
    var (shown, used) = ("", 0)
    for character in characters[start...] {
      let width = TextWidth.of(character)
      guard used + width <= columns else { break }
      shown.append(character)
      used += width
    }
    return (shown, TextWidth.of(String(characters[start..<position])))
  }
}
