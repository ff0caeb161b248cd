// SPDX-License-Identifier: MIT

/// A line that is typed: the text, and where the cursor stands.
struct LineEditor: Equatable {
  private(set) var characters: [Character] = []
  private(set) var position = 0

  var text: String { String(characters) }

  /// The word before the cursor, which is being completed.
  var word: String {
    String(characters[wordStart..<position])
  }

  /// By places, not by the text's characters: an accent that was typed for itself has a place of its own.
  private var wordStart: Int { characters[..<position].lastIndex(of: " ").map { $0 + 1 } ?? 0 }

  /// True: the key belongs to editing.
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

  /// Puts something into the place of the word before the cursor.
  mutating func replaceWord(with text: String) {
    let (start, fresh) = (wordStart, Array(text))
    characters.replaceSubrange(start..<position, with: fresh)
    position = start + fresh.count
  }

  /// What is seen of it in so many columns, and in which of them the cursor stands.
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
