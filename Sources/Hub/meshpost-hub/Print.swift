// SPDX-License-Identifier: MIT

import ArgumentParser
import Console

/// Replaces Swift's `print` in this program: prints one clean line. See `Console`.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Console.line(text: items.map { "\($0)" }.joined(separator: separator), end: terminator)
}

/// Prints an error. Throw the result, which has its exit code: EX_DATAERR unless another is given.
func failure(_ words: String, _ code: Int32 = 65) -> ExitCode {
  Console.error("error: \(words)")
  return ExitCode(code)
}
