// SPDX-License-Identifier: MIT

/// What an upstream may command and edit, as an argument: words with commas between them, or `none`. The gateway knows
/// the words, and refuses others.
enum UpstreamRights {
  static let help = "send, sync, status, documents, settings, with commas between them; or none"

  static func read(_ text: String) -> [String] {
    text == "none" ? [] : text.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
  }
}
