// SPDX-License-Identifier: MIT

/// A text as received. Its bytes are kept, because they may be cut within a character or not be UTF-8 at all.
///
/// Gateways pass texts on unchanged; only people see `string`, in which invalid parts are U+FFFD.
public struct Text: Hashable, Sendable, ExpressibleByStringLiteral, CustomStringConvertible {
  public var bytes: [UInt8]

  public init(bytes: [UInt8]) { self.bytes = bytes }
  public init(_ string: String) { bytes = Array(string.utf8) }
  public init(stringLiteral value: String) { self.init(value) }

  public var string: String { String(decoding: bytes, as: UTF8.self) }
  public var isEmpty: Bool { bytes.isEmpty }
  public var description: String { string }

  /// The text up to the first NUL, which ends the firmware's C strings.
  public var beforeNul: Text { Text(bytes: Array(bytes.prefix { $0 != 0 })) }
}
