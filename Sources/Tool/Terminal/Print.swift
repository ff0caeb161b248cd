// SPDX-License-Identifier: MIT

import Console
import JSON

/// Replaces Swift's `print` in this program: prints one clean line. See `Console`.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Console.line(text: items.map { "\($0)" }.joined(separator: separator), end: terminator)
}

/// Prints one styled line.
func print(styled line: Styled) { Console.line(line) }

/// Lines, each cleaned separately.
func print(lines: [Styled]) { for line in lines { Console.line(line) } }

/// Prints one line of JSON.
func print(json value: JSONValue) { Console.json(value.text) }
