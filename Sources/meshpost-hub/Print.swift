// SPDX-License-Identifier: MIT

import Console

/// Replaces Swift's `print` in this program: prints one clean line. See `Console`.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Console.line(text: items.map { "\($0)" }.joined(separator: separator), end: terminator)
}
