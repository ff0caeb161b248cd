// SPDX-License-Identifier: MIT

import Console

/// Takes the place of Swift's own in this program: one line, cleaned, whatever is in it. See `Console`.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Console.line(text: items.map { "\($0)" }.joined(separator: separator), end: terminator)
}
