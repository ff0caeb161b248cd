// SPDX-License-Identifier: MIT

import ArgumentParser
import JSON
import UntrustedText

/// The command line in the parser's order: users may also type global options before the command, and former names of commands.
struct TypedCommand {
  /// Present names of commands by their former names, which no help shows. `outbox list`, and `outbox` alone, is `upstream pending`.
  private static let former = ["outgoing": "sent", "outbox": "upstream"]
  /// What is no command of this program, and how it is done. Most are words of the other clients' command lines.
  private static let elsewhere = [
    "reload": "`sudo systemctl reload meshpost` makes the gateway read its configuration again",
    "version": "`meshpost --version` shows it",
    "msg": "`meshpost send NAME TEXT` sends a message",
    "chan": "`meshpost send '#CHANNEL' TEXT` sends to a channel; `meshpost channels` lists them",
    "recv": "`meshpost messages` lists what arrived, and `meshpost messages --follow` what arrives",
    "infos": "`meshpost radio info` shows the radio, `meshpost status` the gateway",
    "get": "`meshpost radio info` shows the radio's settings",
    "set": "`meshpost radio set KEY=VALUE` changes the radio's settings",
    "documents get": "`meshpost documents KEY` shows a document",
  ]
  private static let flags = ["--json", "--utc"]
  private static let valued = ["--host", "--socket"]

  /// Arguments for the parser, with the command first.
  let arguments: [String]
  /// The recognised commands, and the first unknown word after them.
  private let known: [String]
  private let unknown: String?
  private let group: any ParsableCommand.Type

  init(_ given: [String]) {
    // The other clients' way to ask for the version.
    let typed = given == ["-v"] || given == ["-V"] ? ["--version"] : given
    var (words, moved, rest): ([String], [String], ArraySlice<String>) = ([], [], typed[...])
    var command: any ParsableCommand.Type = Meshpost.self
    var isOutbox = false
    while var word = rest.first {
      if words.isEmpty, let present = Self.former[word] {
        isOutbox = word == "outbox"
        word = present
      } else if isOutbox, words.count == 1, word == "list" {
        word = "pending"
      }
      if Self.flags.contains(word) {
        moved.append(word)
      } else if Self.valued.contains(word), rest.count > 1 {
        moved += rest.prefix(2)
        rest = rest.dropFirst()
      } else if Self.valued.contains(where: { word.begins(with: "\($0)=") }) {
        moved.append(word)
      } else if let next = command.configuration.subcommands.first(where: { Self.names($0).contains(word) }) {
        command = next
        words.append(word)
      } else {
        break
      }
      rest = rest.dropFirst()
    }
    if isOutbox, words.count == 1, rest.first.map({ $0.begins(with: "-") }) ?? true {
      words.append("pending")
      command = UpstreamCommand.Pending.self
    }
    let isGroup = !command.configuration.subcommands.isEmpty
    // They show help, and take no options for a gateway. `web` is a group that does something by itself.
    let doesNothing = command.configuration.defaultSubcommand == nil && command != WebCommand.self
    let isBare = rest.isEmpty && doesNothing
    let isHelp = isGroup && (isBare || rest.first == "help")
    unknown = rest.first.flatMap { isGroup && !$0.begins(with: "-") && $0 != "help" ? $0 : nil }
    (known, group) = (words, command)
    // Everything after `--` is an argument.
    let end = rest.firstIndex(of: "--") ?? rest.endIndex
    arguments = words + Array(rest[..<end]) + (isHelp ? [] : moved) + Array(rest[end...])
  }

  private static func names(_ command: any ParsableCommand.Type) -> [String] {
    [command._commandName] + command.configuration.aliases
  }

  /// The message for an unknown command, with similar commands; `nil` if the command is known.
  var remedy: String? {
    guard let unknown else { return nil }
    let typed = (known + [unknown]).joined(separator: " ")
    if let way = Self.elsewhere[typed] { return "unknown command '\(typed)'. \(way)" }
    let place = known.isEmpty ? "meshpost" : "meshpost " + known.joined(separator: " ")
    let guesses = guesses(unknown).prefix(3).map { "'\($0)'" }
    guard !guesses.isEmpty else { return "unknown command '\(typed)'. See `\(place) --help`" }
    return "unknown command '\(typed)'. Did you mean \(guesses.joined(separator: " or "))?"
  }

  /// The arguments with `--limit=-1` for `--limit -1`, whose value the parser takes for another option; `nil`: its `message` is about something else.
  func joined(_ message: String) -> [String]? {
    let end = arguments.firstIndex { $0.isExactly("--") } ?? arguments.endIndex
    let place = arguments[..<end].indices.dropLast().first { place in
      Self.isBelowZero(arguments[place + 1]) && message.mentions("Missing value for '\(arguments[place]) ")
    }
    guard let place else { return nil }
    let joined = "\(arguments[place])=\(arguments[place + 1])"
    return Array(arguments[..<place]) + [joined] + Array(arguments[(place + 2)...])
  }

  private static func isBelowZero(_ text: String) -> Bool {
    let digits = text.utf8.dropFirst()
    return text.begins(with: "-") && !digits.isEmpty && digits.allSatisfy { (0x30...0x39).contains($0) }
  }

  /// The message for `help` of an unknown command, which the parser would answer with the help of all.
  var helpRemedy: String? {
    arguments.first == "help" ? TypedCommand(Array(arguments.dropFirst())).remedy : nil
  }

  /// The message for `--host` before or after a command that works on its own machine; `nil`: it is no such command, or has no host.
  var hostRemedy: String? {
    guard Self.local.contains(known),
      arguments.contains(where: { $0.isExactly("--host") || $0.begins(with: "--host=") })
    else { return nil }
    let command = "meshpost " + known.joined(separator: " ")
    let there = (known == ["setup"] ? "sudo " : "") + command
    return "`\(command)` works on the machine that it runs on, without --host: `ssh -t HOST \(there)`"
  }

  private static let local = [["setup"], ["run"], ["radio", "probe"]]

  /// The message for an option with the long dash that text programs and pages make of two hyphens; `nil`: there is none. The parser takes it for a
  /// word of the text, which would be sent with it.
  var dashRemedy: String? {
    for word in arguments.prefix(while: { !$0.isExactly("--") }) {
      let scalars = word.unicodeScalars
      let name = scalars.drop { Self.longDashes.contains($0) }.prefix { $0 != "=" }
      guard let first = scalars.first, Self.longDashes.contains(first), let letter = name.first, letter.isASCII,
        Self.options.contains(String(name))
      else { continue }
      return
        "'\(word)' begins with a long dash; an option begins with two hyphens: --\(String(name)). After `--` it is text"
    }
    return nil
  }

  private static let longDashes: Set<Unicode.Scalar> = [
    "\u{2010}", "\u{2012}", "\u{2013}", "\u{2014}", "\u{2015}", "\u{2212}",
  ]

  /// The long names of the options of all commands.
  private static var options: Set<String> {
    // `try?`: without the parser's own description there is nothing to compare with.
    guard let help = (try? JSONValue(parsing: Meshpost._dumpHelp()))?["command"] else { return [] }
    var (names, rest): (Set<String>, [JSONValue]) = ([], [help])
    while let command = rest.popLast() {
      rest += command["subcommands"]?.array ?? []
      let all = (command["arguments"]?.array ?? []).flatMap { $0["names"]?.array ?? [] }
      names.formUnion(all.filter { $0["kind"]?.string == "long" }.compactMap { $0["name"]?.string })
    }
    return names
  }

  /// Commands of the same group with a similar spelling or the same beginning; otherwise commands of that name in other groups.
  private func guesses(_ word: String) -> [String] {
    let names = group.configuration.subcommands.filter { $0.configuration.shouldDisplay }.flatMap { Self.names($0) }
    var found = NearWords.near(word, among: names)
    if found.isEmpty, word.utf8.count > 1 { found = names.filter { $0.begins(with: word) } }
    if !found.isEmpty { return found.map { (known + [$0]).joined(separator: " ") } }
    return Meshpost.configuration.subcommands.flatMap { outer in
      outer.configuration.subcommands.flatMap { Self.names($0) }.filter { $0 == word }
        .map { "\(outer._commandName) \($0)" }
    }
  }
}
