// SPDX-License-Identifier: MIT

import Glibc

/// Prompts on the terminal. At the end of input the default applies.
enum Dialogue {
  static func line(_ question: String, standard: String) -> String {
    print(standard.isEmpty ? "\(question): " : "\(question) [\(standard)]: ", terminator: "")
    fflush(nil)
    let typed = (readLine() ?? "").trimmed
    return typed.isEmpty ? standard : typed
  }

  static func yes(_ question: String, standard: Bool) -> Bool {
    let typed = line("\(question) (y/n)", standard: standard ? "y" : "n")
    return typed.lowercased().hasPrefix("y")
  }

  /// Asks without echo; `nil` for an empty answer.
  static func secret(_ question: String) -> String? {
    let typed = Asking.hidden("\(question): ")?.trimmed ?? ""
    return typed.isEmpty ? nil : typed
  }
}

extension String {
  fileprivate var trimmed: String {
    var text = Substring(self)
    while text.first?.isWhitespace == true { text = text.dropFirst() }
    while text.last?.isWhitespace == true { text = text.dropLast() }
    return String(text)
  }
}
