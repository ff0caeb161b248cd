// SPDX-License-Identifier: MIT

import Glibc
import UntrustedText

/// What a user has typed: the program's arguments, and lines of standard input. Swift's own `CommandLine.arguments` and `readLine` put U+FFFD in the
/// place of bytes that are not UTF-8, and it would be sent or kept.
public enum TypedText {
  /// The first argument that is not UTF-8; `nil`: all are.
  public static func brokenArgument() -> BrokenText? {
    for number in 0..<Int(CommandLine.argc) {
      guard let argument = CommandLine.unsafeArgv[number] else { continue }
      var bytes: [UInt8] = []
      while argument[bytes.count] != 0 { bytes.append(UInt8(bitPattern: argument[bytes.count])) }
      if let broken = BrokenText(bytes, from: "argument \(number)") { return broken }
    }
    return nil
  }

  /// The next line of standard input, without its end; `nil` at the end of input. It reads byte by byte: what follows is left to the next reader.
  public static func line() throws -> String? {
    var bytes: [UInt8] = []
    var byte: UInt8 = 0
    while true {
      let count = read(0, &byte, 1)
      if count < 0, errno == EINTR { continue }
      if count <= 0 { return bytes.isEmpty ? nil : try text(bytes) }
      if byte == 10 { return try text(bytes) }
      bytes.append(byte)
    }
  }

  /// A line's bytes; it may have come with the line end of Windows.
  static func text(_ bytes: [UInt8]) throws -> String {
    if let broken = BrokenText(bytes, from: "the typed line") { throw broken }
    return String(decoding: bytes.last == 13 ? bytes.dropLast() : bytes[...], as: UTF8.self)
  }
}
