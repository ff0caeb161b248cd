// SPDX-License-Identifier: MIT

import Console
import JSON

/// Takes the place of Swift's own in this program: one line, cleaned, whatever is in it. See `Console`.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Console.line(text: items.map { "\($0)" }.joined(separator: separator), end: terminator)
}

/// One line with looks.
func print(styled line: Styled) { Console.line(line) }

/// Lines, each cleaned by itself.
func print(lines: [Styled]) { for line in lines { Console.line(line) } }

/// One line of JSON.
func print(json value: JSONValue) { Console.json(value.text) }
