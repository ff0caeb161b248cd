// SPDX-License-Identifier: MIT

import Glibc

/// Colours, on a terminal alone, and not where somebody wants none (no-color.org).
enum Paint {
  private static let isOn =
    isatty(1) == 1 && getenv("NO_COLOR") == nil
    && getenv("TERM").map { String(cString: $0) != "dumb" } ?? false

  static func good(_ text: String) -> String { paint(text, "32") }
  static func bad(_ text: String) -> String { paint(text, "31") }
  static func warning(_ text: String) -> String { paint(text, "33") }

  /// A state's word in the colour of what it means.
  static func state(_ word: String) -> String {
    switch word {
    case "up", "synced", "idle", "sending", "ok  ": good(word)
    case "down", "failed", "stopped", "FAIL": bad(word)
    case "waiting", "paused", "syncing", "connecting", "handshaking", "WARN": warning(word)
    default: word
    }
  }

  private static func paint(_ text: String, _ code: String) -> String {
    isOn ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
  }
}
