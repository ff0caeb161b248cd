// SPDX-License-Identifier: MIT

import Companion

/// Marks a command to a node's command line, so that its reply is told apart from others: late ones, and those to commands of other programs.
///
///     command   Qz|get tx
///     reply     Qz|> 22
///
/// Repeaters, rooms and sensors return the two characters and the sign, in every firmware since 1.0 (`strlen(command) > 4 && command[2] == '|'`), and
/// pyMC_Repeater does, too. Nothing else in a reply says what it answers.
struct CommandMark: Equatable, Sendable {
  /// The bytes that it adds to a command.
  static let length = 3
  private static let sign = UInt8(ascii: "|")
  private static let characters = Array("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789".utf8)
  /// A shorter command would not be read as a marked one.
  private static let shortest = 2

  private let bytes: [UInt8]

  /// The second character follows from the first and both ends, so that the next run knows the replies to commands of
  /// this one. The same mark comes again after 62 commands.
  init(number: Int, to node: KeyPrefix, by own: KeyPrefix?) {
    let first = Self.characters[Int(number.magnitude % UInt(Self.characters.count))]
    bytes = [first, Self.second(after: first, node, own), Self.sign]
  }

  private static func second(after first: UInt8, _ node: KeyPrefix, _ own: KeyPrefix?) -> UInt8 {
    // FNV-1a: nobody has to be kept from making a mark.
    let hash = (node.bytes + (own?.bytes ?? []) + [first]).reduce(UInt32(2_166_136_261)) {
      ($0 ^ UInt32($1)) &* 16_777_619
    }
    return characters[Int(hash % UInt32(characters.count))]
  }

  /// Whether the text is a reply to a command with such a mark. Another program's mark is taken for one in 62 cases.
  static func isOwn(_ text: Text, of node: KeyPrefix, to own: KeyPrefix?) -> Bool {
    guard let first = text.bytes.first, characters.contains(first) else { return false }
    return text.bytes.starts(with: [first, second(after: first, node, own), sign])
  }

  /// Firmware skips blanks before a mark, and none behind it.
  func marked(_ command: Text) -> Text {
    var command = Array(command.bytes.drop { $0 == 0x20 })
    while command.count < Self.shortest { command.append(0x20) }
    return Text(bytes: bytes + command)
  }

  /// The reply without the mark; `nil`: it answers another command.
  func reply(in text: Text) -> Text? {
    text.bytes.starts(with: bytes) ? Text(bytes: Array(text.bytes.dropFirst(Self.length))) : nil
  }
}
