// SPDX-License-Identifier: MIT

extension UInt8 {
  /// Whether the byte is a letter or a digit of ASCII, of which names in addresses, files and protocols consist.
  public var isLetterOrDigit: Bool { (0x30...0x39).contains(self) || (0x61...0x7A).contains(self | 0x20) }
}
