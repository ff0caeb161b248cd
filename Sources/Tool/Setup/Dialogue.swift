// SPDX-License-Identifier: MIT

import Console
import Glibc
import UntrustedText

/// Prompts on the terminal. The end of input is no answer: it ends the program before anything is written.
enum Dialogue {
  static func line(_ question: String, standard: String) throws -> String {
    print(standard.isEmpty ? "\(question): " : "\(question) [\(standard)]: ", terminator: "")
    guard let typed = try TypedText.line()?.trimmed else { throw ended() }
    return typed.isEmpty ? standard : typed
  }

  /// Asks again after an answer that is neither yes nor no: an address that the user types too early is no "no".
  static func yes(_ question: String, standard: Bool) throws -> Bool {
    try fitting("\(question) (y/n)", standard: standard ? "y" : "n") { typed in
      switch typed.lowercased() {
      case "y", "yes": .fits(true)
      case "n", "no": .fits(false)
      default: .unfit("please answer y or n")
      }
    }
  }

  enum Answer<Value> {
    case fits(Value)
    /// The error, or the expected form.
    case unfit(String)
  }

  private static func ended() -> any Error {
    print("")
    return Failure.say("the input ended; nothing was changed", EX_USAGE)
  }

  /// Most attempts of a question: a program that answers may give the same answer for ever.
  static let tries = 5

  /// Asks again until the answer is valid.
  static func fitting<Value>(
    _ question: String, standard: String = "", _ read: (String) throws -> Answer<Value>
  ) throws -> Value {
    for _ in 0..<tries {
      do {
        switch try read(line(question, standard: standard)) {
        case .fits(let value): return value
        case .unfit(let words): print(words)
        }
      } catch let broken as BrokenText {
        print("\(broken)")
      }
    }
    throw Failure.say("no valid answer; nothing was changed", EX_USAGE)
  }

  /// Asks without echo, again until the answer is valid; `nil`: it is empty. `trouble`: what is wrong with a secret.
  static func secret(_ question: String, _ trouble: (String) -> String?) throws -> String? {
    for _ in 0..<tries {
      guard let typed = try HiddenPrompt.line("\(question): ")?.trimmed else { throw ended() }
      if typed.isEmpty { return nil }
      guard let words = trouble(typed) else { return typed }
      print(words)
    }
    throw Failure.say("no valid answer; nothing was changed", EX_USAGE)
  }
}
