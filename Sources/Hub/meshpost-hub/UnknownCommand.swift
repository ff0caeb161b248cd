// SPDX-License-Identifier: MIT

import ArgumentParser
import UntrustedText

/// The answer to a command that this program does not have. Its parser takes it for an argument, and `help` of it for `help`.
enum UnknownCommand {
  /// The message, with near commands; `nil`: the command is known.
  static func remedy(_ typed: [String]) -> String? {
    var command: any ParsableCommand.Type = MeshpostHub.self
    var known: [String] = []
    for word in typed.first == "help" ? typed.dropFirst() : typed[...] {
      let commands = command.configuration.subcommands
      guard !commands.isEmpty, !word.begins(with: "-"), word != "help" else { return nil }
      guard let next = commands.first(where: { $0._commandName.isExactly(word) }) else {
        return words(for: word, after: known, NearWords.near(word, among: commands.map { $0._commandName }))
      }
      known.append(word)
      command = next
    }
    return nil
  }

  /// The arguments in the parser's order: people may also type `--config FILE` before the command, or within it, where the parser would take it for
  /// an option of the group's default command.
  static func inOrder(_ typed: [String]) -> [String] {
    var command: any ParsableCommand.Type = MeshpostHub.self
    var (words, moved, rest): ([String], [String], ArraySlice<String>) = ([], [], typed[...])
    while let word = rest.first {
      if word.isExactly("--config"), rest.count > 1 {
        moved += rest.prefix(2)
        rest = rest.dropFirst(2)
      } else if word.begins(with: "--config=") {
        moved.append(word)
        rest = rest.dropFirst()
      } else if let next = command.configuration.subcommands.first(where: { $0._commandName.isExactly(word) }) {
        command = next
        words.append(word)
        rest = rest.dropFirst()
      } else {
        break
      }
    }
    // Everything after `--` is an argument.
    let end = rest.firstIndex(of: "--") ?? rest.endIndex
    return words + Array(rest[..<end]) + moved + Array(rest[end...])
  }

  private static func words(for word: String, after known: [String], _ near: [String]) -> String {
    let place = (["meshpost-hub"] + known).joined(separator: " ")
    let typed = (known + [word]).joined(separator: " ")
    guard !near.isEmpty else { return "unknown command '\(typed)'. See `\(place) --help`" }
    let guesses = near.map { "'" + (known + [$0]).joined(separator: " ") + "'" }
    return "unknown command '\(typed)'. Did you mean \(guesses.joined(separator: " or "))?"
  }
}
