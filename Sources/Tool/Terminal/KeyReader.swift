// SPDX-License-Identifier: MIT

/// Decodes keys from the bytes of a terminal (ECMA-48, with the additions of xterm and its relatives).
enum KeyReader {
  /// The next key and its length in bytes; without a key, the caller ignores the bytes. `nil`: it needs more bytes.
  static func next(_ bytes: [UInt8]) -> (key: Terminal.Key?, count: Int)? {
    guard let first = bytes.first else { return nil }
    switch first {
    case 0x1B: return escape(bytes)
    case 0x0D, 0x0A: return (.enter, 1)
    case 0x7F, 0x08: return (.backspace, 1)
    case 0x09: return (.tab, 1)
    case 0x00...0x1F: return (.control(Character(Unicode.Scalar(first + 0x60))), 1)
    default: return character(bytes)
    }
  }

  private static func escape(_ bytes: [UInt8]) -> (key: Terminal.Key?, count: Int)? {
    guard bytes.count > 1 else { return nil }
    guard bytes[1] == UInt8(ascii: "[") || bytes[1] == UInt8(ascii: "O") else { return (.escape, 1) }
    guard let end = bytes.dropFirst(2).firstIndex(where: { (0x40...0x7E).contains($0) }) else {
      return bytes.count > 16 ? (nil, bytes.count) : nil
    }
    let number = String(decoding: bytes[2..<end].prefix { $0 != UInt8(ascii: ";") }, as: UTF8.self)
    let plain: [UInt8: Terminal.Key] = [
      UInt8(ascii: "A"): .up, UInt8(ascii: "B"): .down, UInt8(ascii: "C"): .right, UInt8(ascii: "D"): .left,
      UInt8(ascii: "H"): .home, UInt8(ascii: "F"): .end,
    ]
    let tilde: [String: Terminal.Key] = [
      "1": .home, "3": .delete, "4": .end, "5": .pageUp, "6": .pageDown, "7": .home, "8": .end,
    ]
    if bytes[end] == UInt8(ascii: "n") { return (.drawn, end + 1) }
    return (bytes[end] == UInt8(ascii: "~") ? tilde[number] : plain[bytes[end]], end + 1)
  }

  private static func character(_ bytes: [UInt8]) -> (key: Terminal.Key?, count: Int)? {
    let count = bytes[0] < 0x80 ? 1 : bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : bytes[0] >= 0xC0 ? 2 : 1
    guard bytes.count >= count else { return nil }
    let text = String(validating: bytes.prefix(count), as: UTF8.self)
    return (text?.first.map { .character($0) }, count)
  }
}
