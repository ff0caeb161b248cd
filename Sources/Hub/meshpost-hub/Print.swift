// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc

/// Replaces Swift's `print` in this program: prints one clean line. See `Console`.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Console.line(text: items.map { "\($0)" }.joined(separator: separator), end: terminator)
}

/// Prints an error, a line for each of its lines. The caller throws the result, which has the exit code: EX_DATAERR by default.
func failure(_ words: String, _ code: Int32 = 65) -> ExitCode {
  for line in words.split(whereSeparator: \.isNewline) { Console.error("error: \(line)") }
  return ExitCode(code)
}

/// Asks at the terminal whether to delete something. Returns only after a yes.
func ask(_ question: String) throws {
  Console.line(text: "\(question) [y/N] ", end: "")
  guard try TypedText.line()?.lowercased() == "y" else {
    Console.error("nothing was deleted")
    throw ExitCode(1)
  }
}
