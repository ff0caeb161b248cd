// SPDX-License-Identifier: MIT

import Console

/// Looks of what has a meaning.
enum TerminalColour {
  static func bad(_ text: String) -> Styled { Styled(text, .bad) }

  /// A state's word in the colour of what it means.
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
