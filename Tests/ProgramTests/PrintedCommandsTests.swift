// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import TestSupport
import Testing

@testable import meshpost

/// Parses every command of `meshpost` that the documents print with the command's own parser.
@Suite struct PrintedCommands {
  private struct Printed: CustomTestStringConvertible {
    let place: String
    let words: [String]
    /// In a sentence, a command may lack its required arguments.
    let isInSentence: Bool

    var testDescription: String { "\(place): meshpost \(words.joined(separator: " "))" }
  }

  /// Printed texts that are no command lines, each with its reason.
  private static let exceptions: [String: String] = [:]

  private static func files() throws -> [String] {
    let root = Checkout.folder
    var files = ["README.md", "hardware/README.md"]
    for folder in ["docs", "deploy"] {
      let names = try FileManager.default.contentsOfDirectory(atPath: root.appending(path: folder).path())
      files += names.filter { $0.hasSuffix(".md") || $0.hasSuffix(".toml") }.map { "\(folder)/\($0)" }
    }
    return files.sorted()
  }

  private static func printed() throws -> [Printed] {
    var found: [Printed] = []
    for file in try files() {
      let text = try String(contentsOf: Checkout.folder.appending(path: file), encoding: .utf8)
      var saysPrompt = false
      for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
        let place = "\(file):\(number + 1)"
        if !line.hasPrefix("    ") { saysPrompt = false }
        if line.hasPrefix("    $ ") { saysPrompt = true }
        if line.hasPrefix("    "), file.hasSuffix(".md") {
          // Lines under a prompt are output.
          if saysPrompt, !line.hasPrefix("    $ ") { continue }
          let command = line.drop { $0 == " " || $0 == "$" }
          if let typed = typed(String(command)) {
            found.append(Printed(place: place, words: typed, isInSentence: false))
          }
        } else {
          for (count, span) in line.split(separator: "`", omittingEmptySubsequences: false).enumerated()
          where count % 2 == 1 {
            if let typed = typed(String(span)) { found.append(Printed(place: place, words: typed, isInSentence: true)) }
          }
        }
      }
    }
    return found
  }

  /// The arguments as a shell would pass them, without the program; `nil`: the line calls another program.
  private static func typed(_ line: String) -> [String]? {
    var words: [String] = []
    var word: String?
    var quote: Character?
    for character in line {
      if let open = quote {
        if character == open { quote = nil } else { word = (word ?? "") + String(character) }
      } else if character == "'" || character == "\"" {
        (quote, word) = (character, word ?? "")
      } else if character == " " {
        if let done = word { words.append(done) }
        word = nil
      } else if character == ";" || (word == nil && "|>&#".contains(character)) {
        break  // another command or a comment follows
      } else {
        word = (word ?? "") + String(character)
      }
    }
    if let word { words.append(word) }
    // Words before the program: `sudo`, and variables.
    while let first = words.first, first == "sudo" || first.hasPrefix("MESHPOST_") { words.removeFirst() }
    guard let program = words.first, program == "meshpost" || program.hasSuffix("/meshpost") else { return nil }
    return Array(words.dropFirst())
  }

  @Test func `the program parses every command that the documents print`() throws {
    let printed = try Self.printed()
    #expect(printed.count > 150, "\(printed.count)")
    for command in printed where Self.exceptions[command.words.joined(separator: " ")] == nil {
      let typed = TypedCommand(command.words)
      do {
        _ = try Meshpost.parseAsRoot(typed.arguments)
      } catch {
        let isNamed = command.isInSentence && typed.remedy == nil && !command.words.contains { $0.hasPrefix("-") }
        let wanted = Meshpost.exitCode(for: error) != .validationFailure
        #expect(wanted || isNamed, "\(command.testDescription)\n\(Meshpost.fullMessage(for: error))")
      }
    }
  }

  @Test func `each command parses its examples, and its help and man page show them`() throws {
    let pages = try ManualPages()
    #expect(Examples.all.count >= 5)
    for (command, examples) in Examples.all {
      let words = command.split(separator: " ").map(String.init)
      var help = ""
      do {
        var command = try Meshpost.parseAsRoot(words + ["--help"])
        try command.run()
      } catch {
        help = Meshpost.fullMessage(for: error)
      }
      let roff = try #require(pages.page("meshpost-\(words[0])"))
      let page = roff.replacing("\\-", with: "-").replacing("\\(aq", with: "'")
      #expect(page.contains(".SH EXAMPLES") && !page.contains(Examples.heading), "\(command)")
      for example in examples {
        // Help is wrapped at 80 columns, and two stand before it.
        #expect(example.line.utf8.count <= 77 && example.meaning.utf8.count <= 75, "\(example.line)")
        #expect(help.contains("\n  # \(example.meaning)\n  \(example.line)"), "\(help)")
        #expect(page.contains("# \(example.meaning)\n\(example.line)\n"), "\(page)")
        let last = example.line.split(separator: "|").last?.drop { $0 == " " } ?? ""
        let typed = try #require(Self.typed(String(last)), "\(example.line)")
        #expect(typed.first == words[0], "\(example.line) is an example of \(command)")
        #expect(throws: Never.self) { _ = try Meshpost.parseAsRoot(TypedCommand(typed).arguments) }
      }
    }
  }

  @Test(arguments: [
    (["--host", "ssh://a", "status"], ["status", "--host", "ssh://a"]), (["--json"], ["--json"]),
    (["--json", "node", "--utc", "status", "x"], ["node", "status", "x", "--json", "--utc"]),
    (["--socket=/s", "send", "x", "--", "--json"], ["send", "x", "--socket=/s", "--", "--json"]),
    (["--host"], ["--host"]), (["--help"], ["--help"]), (["send", "x", "--json"], ["send", "x", "--json"]),
    (["--json", "export"], ["export"]), (["--socket", "/s", "help", "send"], ["help", "send"]),
    (["--json", "upstream"], ["upstream", "--json"]), (["--json", "send", "help"], ["send", "help", "--json"]),
    (["web", "--host", "ssh://a"], ["web", "--host", "ssh://a"]), (["-v"], ["--version"]),
  ]) func `options that every command has may stand before it`(_ typed: [String], _ wanted: [String]) {
    #expect(TypedCommand(typed).arguments == wanted)
  }

  @Test(arguments: [
    ("staus", "'status'"), ("mesages", "'messages'"), ("sned", "'send'"), ("node staus", "'node status'"),
    ("login", "'room login' or 'node login'"), ("conta", "'contact'"), ("mess", "'messages'"),
    ("--json staus", "'status'"),
  ]) func `a mistyped command gets a suggestion`(_ typed: String, _ meant: String) throws {
    let remedy = try #require(TypedCommand(typed.split(separator: " ").map(String.init)).remedy)
    #expect(remedy.hasSuffix("Did you mean \(meant)?"), "\(remedy)")
  }

  @Test(arguments: [
    (["auto-add", "none"], "expected auto-add=none."), (["auto-add"], "expected KEY=VALUE."),
    (["auto-add", ""], "the value is empty."),
  ])
  func `a setting without its value is refused with the form, and with what lists the values`(
    _ settings: [String], _ form: String
  ) throws {
    let command = try #require(try Meshpost.parseAsRoot(["radio", "set"] + settings) as? RadioCommand.Set)
    #expect {
      _ = try command.exchange
    } throws: {
      let words = Meshpost.fullMessage(for: $0)
      return words.contains("auto-add: \(form)") && words.contains("meshpost radio set")
    }
  }

  @Test(arguments: [
    "messages --limit 0", "messages --limit=-1", "messages --follow --limit=-1", "search --limit 0 x",
    "sent --limit 0", "journal --limit 0", "room read r --limit 0", "node readings --limit 0", "alerts --limit 1001",
    "alerts --limit 0", "export messages --limit 0", "export readings --limit 0",
  ]) func `a command for no row at all is refused, with what is allowed`(_ typed: String) {
    #expect {
      _ = try Meshpost.parseAsRoot(typed.split(separator: " ").map(String.init))
    } throws: {
      let isRefused = Meshpost.exitCode(for: $0) == .validationFailure
      return isRefused && Meshpost.fullMessage(for: $0).contains("is not allowed: ")
    }
  }

  @Test func `a time until which nothing can be is refused`() throws {
    let times = (early: "2026-11-20Z", late: "2026-11-21Z")
    for command in [["messages"], ["search", "x"], ["export", "messages"]] {
      #expect {
        _ = try Meshpost.parseAsRoot(command + ["--since", times.late, "--until", times.early])
      } throws: {
        Meshpost.fullMessage(for: $0).contains("--since is later than --until")
      }
      _ = try Meshpost.parseAsRoot(command + ["--since", times.early, "--until", times.late])
    }
  }

  @Test(arguments: ["--hash-bytes 2", "--set ab --hash-bytes 0", "--set ab --hash-bytes 4", "--reset --hash-bytes 3"])
  func `the length of hashes is one that there is, and is for a path that is set`(_ typed: String) throws {
    let words = typed.split(separator: " ").map(String.init)
    #expect(throws: (any Error).self) { _ = try Meshpost.parseAsRoot(["contact", "path", "r1"] + words) }
    _ = try Meshpost.parseAsRoot(["contact", "path", "r1", "--set", "abcd", "--hash-bytes", "2"])
  }

  @Test func `a name that is given twice is refused, for only one of its values would count`() throws {
    let setting = try #require(try Meshpost.parseAsRoot(["radio", "set", "name=A", "name=B"]) as? RadioCommand.Set)
    #expect {
      _ = try setting.exchange
    } throws: {
      Meshpost.fullMessage(for: $0).contains("name is given twice")
    }
    #expect {
      _ = try Meshpost.parseAsRoot(["node", "tag", "r1", "pond", "tree", "pond"])
    } throws: {
      Meshpost.fullMessage(for: $0).contains("pond is given twice")
    }
    #expect(throws: Never.self) { try GivenOnce.check(["a", "b", "A", "\u{E4}", "a\u{308}"], "--set") }
  }

  @Test(arguments: ["messages --follow --limit 0", "journal --follow --limit 0", "alerts --limit 1000"])
  func `what is new can be followed without what was`(_ typed: String) throws {
    _ = try Meshpost.parseAsRoot(typed.split(separator: " ").map(String.init))
  }

  @Test func `an export offers the formats that it has`() {
    #expect {
      _ = try Meshpost.parseAsRoot(["export", "messages", "--format", "gpx"])
    } throws: {
      let words = Meshpost.fullMessage(for: $0)
      return words.contains("one of 'jsonl' and 'csv'.")
    }
  }

  @Test func `a reload, which is no command, gets the one that does it`() {
    for typed in [["reload"], ["--json", "reload"]] {
      #expect(TypedCommand(typed).remedy?.contains("sudo systemctl reload meshpost") == true, "\(typed)")
    }
    for typed in ["version", "msg", "chan", "recv", "infos", "get", "set"] {
      #expect(TypedCommand([typed]).remedy?.contains(". `meshpost ") == true, "\(typed)")
    }
    #expect(TypedCommand(["radio", "reload"]).remedy?.contains("systemctl") == false)
    #expect(TypedCommand(["documents", "get", "x"]).remedy?.contains("`meshpost documents KEY`") == true)
  }

  @Test(arguments: ["messages --limit -1", "--json messages --limit -1 --sent", "search x --limit -20"])
  func `a number below zero is refused by its option, with the range`(_ line: String) throws {
    func refusal(_ arguments: [String]) -> String {
      do {
        _ = try Meshpost.parseAsRoot(arguments)
        return ""
      } catch {
        return Meshpost.fullMessage(for: error)
      }
    }
    let typed = TypedCommand(line.split(separator: " ").map(String.init))
    let joined = try #require(typed.joined(refusal(typed.arguments)))
    let words = refusal(joined)
    #expect(words.contains("--limit: -") && words.contains("1 or more"), "\(words)")
    #expect(typed.joined("Missing value for '--other <other>'") == nil)
  }

  @Test func `help of a mistyped command gets a suggestion, and not the help of all`() {
    #expect(TypedCommand(["help", "stauts"]).helpRemedy?.hasSuffix("Did you mean 'status'?") == true)
    #expect(TypedCommand(["help", "node", "staus"]).helpRemedy?.hasSuffix("Did you mean 'node status'?") == true)
    for known in [["help"], ["help", "send"], ["help", "node", "status"], ["send", "help"]] {
      #expect(TypedCommand(known).helpRemedy == nil, "\(known)")
    }
  }

  @Test func `a command that works on its own machine says how it is run on another`() {
    for typed in [
      ["--host", "ssh://pi@hilltop", "setup"], ["run", "--host=ssh://a"], ["radio", "probe", "--host", "x"],
    ] {
      #expect(TypedCommand(typed).hostRemedy?.contains("`ssh -t HOST ") == true, "\(typed)")
      #expect(throws: (any Error).self) { _ = try Meshpost.parseAsRoot(TypedCommand(typed).arguments) }
    }
    for typed in [["setup", "--name", "x"], ["--host", "ssh://a", "status"], ["--host", "ssh://a", "radio", "info"]] {
      #expect(TypedCommand(typed).hostRemedy == nil, "\(typed)")
    }
  }

  @Test func `an option with a long dash is refused and not sent, and a text with one is sent`() throws {
    for typed in [
      ["send", "r1", "hello", "–wait"], ["node", "cli", "r1", "ver", "—json"], ["send", "r1", "x", "–id=7"],
    ] {
      let remedy = try #require(TypedCommand(typed).dashRemedy, "\(typed)")
      #expect(remedy.contains(": --") && remedy.contains("After `--`"), "\(remedy)")
    }
    for text in [["–", "wait"], ["–hello"], ["hello –wait"], ["--", "–wait"], ["–5", "°C"], ["—"], ["wait"]] {
      #expect(TypedCommand(["send", "r1"] + text).dashRemedy == nil, "\(text)")
    }
  }

  @Test(arguments: ["status", "documents node/", "--help", "help send", "node", "", "--version"])
  func `a command that is not mistyped gets no suggestion`(_ typed: String) {
    let command = TypedCommand(typed.split(separator: " ").map(String.init))
    // The prefix of a document's key is checked only when the parser refuses it.
    #expect(command.remedy == nil || typed == "documents node/")
  }
}
