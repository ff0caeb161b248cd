// SPDX-License-Identifier: MIT

import Glibc
import UntrustedText

/// The only output to a terminal, which cleans all text.
///
/// Texts come over the air, from servers, from a gateway that may lie. On the way to a pipe they are cleaned as well: there may be a
/// pager behind it, or a log.
public enum Console {
  /// Whether standard output is a terminal.
  public static let isTerminal = isatty(1) == 1

  /// Colours only on a terminal, and unless disabled (no-color.org).
  private static let hasColours =
    isTerminal && getenv("NO_COLOR") == nil && getenv("TERM").map { String(cString: $0) != "dumb" } ?? false

  /// One line on standard output, whatever line breaks are in its texts.
  public static func line(_ line: Styled, end: String = "\n") {
    let text = line.pieces.map { piece in
      let text = Visible.line(piece.text)
      return hasColours && piece.style != .plain ? "\u{1B}[\(piece.style.rawValue)m\(text)\u{1B}[0m" : text
    }
    put(text.joined() + end)
  }

  public static func line(text: String, end: String = "\n") { put(Visible.line(text) + end) }

  /// Several lines of our own making, such as a manual page.
  public static func page(_ text: String, end: String = "\n") { put(Visible.page(text) + end) }

  /// One line of JSON; invisible characters are escaped.
  public static func json(_ text: String) { put(Visible.json(text) + "\n") }

  /// One line on standard error.
  public static func error(_ words: String) { putError(Visible.line(words) + "\n") }

  /// Several lines of our own making on standard error, such as how a command is used.
  public static func errorPage(_ text: String) { putError(Visible.page(text) + "\n") }

  /// Clean text.
  static func putError(_ text: String) {
    let bytes = Array(text.utf8)
    _ = Glibc.write(2, bytes, bytes.count)  // nowhere is left to report that it failed
  }

  private static func put(_ text: String) { Swift.print(text, terminator: "") }
}
