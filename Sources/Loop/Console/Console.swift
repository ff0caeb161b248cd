// SPDX-License-Identifier: MIT

import Glibc
import UntrustedText

/// The only way to the terminal; it cleans all text.
///
/// Texts come over the air and from servers and gateways that may be hostile. Output to a pipe is cleaned, too: a pager
/// or a log may be behind it.
public enum Console {
  public static let isTerminal = isatty(1) == 1

  /// Colours only on a terminal, and unless disabled (no-color.org).
  private static let hasColours =
    isTerminal && getenv("NO_COLOR") == nil && getenv("TERM").map { String(cString: $0) != "dumb" } ?? false

  /// Prints one line on standard output; line breaks in its texts become blanks.
  public static func line(_ line: Styled) {
    let text = line.pieces.map { piece in
      let text = Visible.line(piece.text)
      return hasColours && piece.style != .plain ? "\u{1B}[\(piece.style.rawValue)m\(text)\u{1B}[0m" : text
    }
    put(text.joined() + "\n")
  }

  public static func line(text: String, end: String = "\n") { put(Visible.line(text) + end) }

  /// Prints several lines of the program's own text, such as a manual page.
  public static func page(_ text: String, end: String = "\n") { put(Visible.page(text) + end) }

  /// Prints one line of JSON; invisible characters are escaped.
  public static func json(_ text: String) { put(Visible.json(text) + "\n") }

  /// Prints one line on standard error.
  public static func error(_ words: String) { putError(Visible.line(words) + "\n") }

  /// Prints several lines of the program's own text on standard error, such as a usage text.
  public static func errorPage(_ text: String) { putError(Visible.page(text) + "\n") }

  /// Writes text that is already clean.
  static func putError(_ text: String) {
    let bytes = Array(text.utf8)
    _ = Glibc.write(2, bytes, bytes.count)  // there is no place left to report a failure
  }

  /// Writes at once: what is printed only once, such as a token, must not look printed when it is lost. Ends the program
  /// if it is.
  private static func put(_ text: String) {
    let bytes = Array(text.utf8)
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(1, $0.baseAddress, $0.count) }
      if count > 0 {
        rest = rest.dropFirst(count)
        continue
      }
      switch errno {
      case EINTR: continue
      case EAGAIN:
        var place = pollfd(fd: 1, events: Int16(POLLOUT), revents: 0)
        poll(&place, 1, -1)
      case EPIPE: return  // nobody reads any more
      case let code:
        error("error: standard output: \(String(cString: strerror(code)))")
        exit(EX_IOERR)
      }
    }
  }
}
