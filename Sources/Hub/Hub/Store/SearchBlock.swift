// SPDX-License-Identifier: MIT

import JSON

/// Successive messages, and which of them have what can be searched for: pure.
///
/// Every three successive bytes of a message's folded texts, and its channel, have a slot. A message that has a word is in the slots of all parts of
/// it; others may be as well, because parts share slots. So the slots tell which messages to look at. When the folding or the slots change, a step of
/// the schema has to empty the tables of blocks.
///
/// A slot's messages are a list, or bits where the list would be longer: so a block has less than 3 MiB, whatever strangers say, 0.7 KiB a message.
struct SearchBlock: Sendable {
  /// Two characters name one of as many messages.
  static let mostMessages = 4096
  private static let slotCount = 4096
  /// Slots of one question: as many leave out nearly all other messages.
  private static let mostAsked = 24

  private(set) var positions: [Int64] = []
  private var places: [[UInt16]] = Array(repeating: [], count: slotCount)

  /// `body`: empty for a message that no word finds.
  mutating func add(_ position: Int64, channel: String?, body: String) {
    let place = UInt16(positions.count)
    positions.append(position)
    var slots = channel.map { [Self.slot(of: $0)] } ?? []
    // `try?`: stored values were valid JSON when they arrived.
    if let body = try? JSONValue(parsing: body) {
      for text in SearchTerms.texts(of: body) { slots += Self.slots(of: SearchTerms.folded(text)) }
    }
    for slot in slots where places[slot].last != place { places[slot].append(place) }
  }

  /// The slots with messages, and their messages as text.
  var rows: [(slot: Int64, places: String)] {
    places.indices.filter { !places[$0].isEmpty }.map { slot in
      (slot: Int64(slot), places: Self.text(places[slot]))
    }
  }

  /// The positions as text: the first one, and the distance of each later one.
  var distances: String {
    zip(positions, [0] + positions).map { String($0 - $1) }.joined(separator: " ")
  }

  static func positions(_ distances: String) -> [Int64] {
    var position: Int64 = 0
    var positions: [Int64] = []
    for number in distances.split(separator: " ") {
      position += Int64(number) ?? 0
      positions.append(position)
    }
    return positions
  }

  // MARK: Slots

  /// The slots that every message of this channel with these words has. Empty: the words are too short, and all messages have to be looked at.
  static func slots(words: [[UInt8]], channel: String?) -> [Int64] {
    var all = Set(words.flatMap { slots(of: $0) })
    if let channel { all.insert(slot(of: channel)) }
    return all.sorted().prefix(mostAsked).map { Int64($0) }
  }

  private static func slots(of text: [UInt8]) -> [Int] {
    var (slots, key) = ([Int](), UInt32(0))
    for (place, byte) in text.enumerated() {
      key = (key << 8 | UInt32(byte)) & 0xFF_FFFF
      if place >= 2 { slots.append(slot(key)) }
    }
    return slots
  }

  private static func slot(of channel: String) -> Int {
    var key: UInt32 = 1 << 24
    for byte in channel.utf8 { key = (key &* 31) ^ UInt32(byte) }
    return slot(key)
  }

  /// Multiplicative hashing: the upper bits of the product.
  private static func slot(_ key: UInt32) -> Int { Int((key &* 2_654_435_761) >> 20) }

  // MARK: Places

  private static let zero = UInt8(ascii: "0")
  /// Begins a text of bits: no list has it.
  private static let mark = UInt8(ascii: ".")
  /// Messages of a character of bits.
  private static let inOne = 6

  private static func text(_ places: [UInt16]) -> String {
    let length = (Int(places.last ?? 0) + inOne) / inOne
    guard 1 + length < places.count * 2 else {
      return String(decoding: places.flatMap(characters), as: UTF8.self)
    }
    var bits = Array(repeating: zero, count: length)
    for place in places { bits[Int(place) / inOne] += 1 << UInt8(Int(place) % inOne) }
    return String(decoding: [mark] + bits, as: UTF8.self)
  }

  private static func characters(_ place: UInt16) -> [UInt8] {
    [zero + UInt8(place >> 6), zero + UInt8(place & 63)]
  }

  /// A set of a block's messages.
  struct Places {
    private var words: [UInt64]

    init(_ text: String) {
      words = Array(repeating: 0, count: SearchBlock.mostMessages / 64)
      guard text.utf8.first != SearchBlock.mark else {
        readBits(text.utf8.dropFirst())
        return
      }
      var upper: UInt8?
      for character in text.utf8 {
        guard let word = upper else {
          upper = (character &- SearchBlock.zero) & 63
          continue
        }
        words[Int(word)] |= 1 << UInt64((character &- SearchBlock.zero) & 63)
        upper = nil
      }
    }

    private mutating func readBits(_ text: String.UTF8View.SubSequence) {
      for (index, character) in text.prefix(SearchBlock.mostMessages / inOne + 1).enumerated() {
        let bits = (character &- SearchBlock.zero) & 63
        for bit in 0..<inOne where bits & (1 << UInt8(bit)) != 0 {
          let place = index * inOne + bit
          if place < SearchBlock.mostMessages { words[place / 64] |= 1 << UInt64(place % 64) }
        }
      }
    }

    mutating func formIntersection(_ other: Self) {
      for index in words.indices { words[index] &= other.words[index] }
    }

    var isEmpty: Bool { words.allSatisfy { $0 == 0 } }

    /// In their order.
    func positions(of all: [Int64]) -> [Int64] {
      let places = all.indices.prefix(SearchBlock.mostMessages)
      return places.filter { words[$0 / 64] & (1 << UInt64($0 % 64)) != 0 }.map { all[$0] }
    }
  }
}
