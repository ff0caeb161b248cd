// SPDX-License-Identifier: MIT

import Console

/// Colours by meaning.
enum TerminalColour {
  static func bad(_ text: String) -> Styled { Styled(text, .bad) }

  /// A state in the colour of its meaning.
  static func state(_ word: String) -> Styled { Styled(word, style(word)) }

  private static func style(_ word: String) -> Styled.Style {
    switch word {
    case "up", "synced", "idle", "sending", "ok  ": .good
    case "down", "failed", "stopped", "FAIL": .bad
    case "waiting", "paused", "syncing", "connecting", "handshaking", "WARN": .warning
    default: .plain
    }
  }
}
