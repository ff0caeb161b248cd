// SPDX-License-Identifier: MIT

import Companion
import UntrustedText

/// `@[Name]` in a text mentions the node with that name (docs/protocol/app-conventions.md § 3).
public enum Mention {
  /// The greatest number of reported names in a text.
  public static let most = 8

  /// Each name once, in order. Names with `]` cannot be mentioned.
  public static func names(in text: Text) -> [String] {
    var names: [String] = []
    var rest = text.bytes[...]
    while names.count < most, let at = rest.firstIndex(of: UInt8(ascii: "@")) {
      rest = rest[(at + 1)...]
      guard rest.first == UInt8(ascii: "["), let end = rest.firstIndex(of: UInt8(ascii: "]")) else { continue }
      let name = String(decoding: rest[(rest.startIndex + 1)..<end], as: UTF8.self)
      if !name.isEmpty, !names.contains(where: { $0.isExactly(name) }) { names.append(name) }
      rest = rest[(end + 1)...]
    }
    return names
  }
}
