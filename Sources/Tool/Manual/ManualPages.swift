// SPDX-License-Identifier: MIT

import ArgumentParser
import JSON
import Release

/// Man pages (section 1), one for each top-level command and one for all, in man(7)'s macros.
struct ManualPages {
  private let root: JSONValue
  private let commands: [JSONValue]

  init() throws {
    root = try JSONValue(parsing: Meshpost._dumpHelp())["command"] ?? .null
    commands = Self.subcommands(root)
  }

  private static func subcommands(_ command: JSONValue) -> [JSONValue] {
    (command["subcommands"]?.array ?? []).filter { child in
      child["shouldDisplay"]?.bool != false && child["commandName"]?.string != "help"
    }
  }

  private static func name(_ command: JSONValue) -> String { command["commandName"]?.string ?? "" }

  var names: [String] { ["meshpost"] + commands.map { "meshpost-\(Self.name($0))" } }

  func page(_ name: String) -> String? {
    if name == "meshpost" { return overview() }
    guard let command = commands.first(where: { "meshpost-\(Self.name($0))" == name }) else { return nil }
    return page(of: command)
  }

  // MARK: Pages

  private func overview() -> String {
    var text = head("meshpost", root["abstract"]?.string ?? "")
    text += ".SH SYNOPSIS\n.B meshpost\n.I COMMAND\n.RI [ ARGUMENTS ]\n"
    text += ".SH DESCRIPTION\n" + paragraphs(root["discussion"]?.string)
    text += ".PP\nWithout a command, shows a summary and common commands.\n.SH COMMANDS\n"
    for command in commands {
      text += ".TP\n.BR meshpost\\-\(escape(Self.name(command))) (1)\n\(escape(command["abstract"]?.string ?? ""))\n"
    }
    text += ".SH ENVIRONMENT\n"
    for (name, meaning) in Self.variables { text += ".TP\n.B \(name)\n\(escape(meaning))\n" }
    return text + exitStatus + footer
  }

  private static let variables = [
    ("MESHPOST_SOCKET", "The default of --socket."),
    ("MESHPOST_HOST", "The default of --host. With it, meshpost setup refuses to begin."),
    ("MESHPOST_SSH", "The ssh program for --host, with options."),
    ("MESHPOST_REMOTE", "The meshpost program on the remote machine, for --host."),
    ("NO_COLOR", "If set, disables colours."),
  ]

  /// A command with subcommands also acts by itself if it has options of its own.
  private static func hasOptions(_ command: JSONValue) -> Bool {
    (command["arguments"]?.array ?? []).contains { argument in
      let names = (argument["names"]?.array ?? []).compactMap { $0["name"]?.string }
      return argument["shouldDisplay"]?.bool != false && !names.contains("help") && !names.contains("version")
    }
  }

  private func page(of command: JSONValue) -> String {
    let name = Self.name(command)
    var text = head("meshpost-\(name)", command["abstract"]?.string ?? "")
    let leaves = Self.subcommands(command)
    text += ".SH SYNOPSIS\n"
    let isCommand = leaves.isEmpty || Self.hasOptions(command)
    for (words, leaf) in (isCommand ? [([name], command)] : []) + leaves.map({ ([name, Self.name($0)], $0) }) {
      text += synopsis(words, leaf)
    }
    text += ".SH DESCRIPTION\n" + paragraphs(command["abstract"]?.string) + paragraphs(command["discussion"]?.string)
    if isCommand {
      text += ".SH OPTIONS\n" + options(command) + json(name)
    }
    for leaf in leaves {
      text += ".SH \(escape("\(name) \(Self.name(leaf))".uppercased()))\n"
      text += paragraphs(leaf["abstract"]?.string) + paragraphs(leaf["discussion"]?.string) + options(leaf)
      text += json("\(name) \(Self.name(leaf))")
    }
    return text + examples([name] + leaves.map { "\(name) \(Self.name($0))" }) + exitStatus + footer
  }

  private func examples(_ commands: [String]) -> String {
    let all = commands.flatMap { Examples.all[$0] ?? [] }
    guard !all.isEmpty else { return "" }
    // A plain quote would be a typographic one.
    let lines = all.map { "# \(escape($0.meaning))\n\(escape($0.line).replacing("'", with: "\\(aq"))\n" }
    return ".SH EXAMPLES\n.nf\n" + lines.joined(separator: "\n") + ".fi\n"
  }

  private func head(_ name: String, _ abstract: String) -> String {
    """
    .\\" Made by `make manual` from the command's help: edit that instead.
    .TH \(escape(name.uppercased())) 1 "" "Meshpost \(Release.version)" "Meshpost"
    .SH NAME
    \(escape(name)) \\- \(escape(abstract))

    """
  }

  private func synopsis(_ words: [String], _ command: JSONValue) -> String {
    var text = ".PP\n.B meshpost \(escape(words.joined(separator: " ")))\n"
    for argument in command["arguments"]?.array ?? [] where argument["kind"]?.string == "positional" {
      let value = (argument["valueName"]?.string ?? "").uppercased()
      let many = argument["isRepeating"]?.bool == true ? " ..." : ""
      text +=
        argument["isOptional"]?.bool == true ? ".RI [ \(escape(value)) ]\(many)\n" : ".I \(escape(value))\(many)\n"
    }
    return text + ".RI [ OPTIONS ]\n"
  }

  private func options(_ command: JSONValue) -> String {
    var text = ""
    for argument in command["arguments"]?.array ?? [] where argument["shouldDisplay"]?.bool != false {
      let value = escape((argument["valueName"]?.string ?? "").uppercased())
      let names = (argument["names"]?.array ?? []).map { name in
        (name["kind"]?.string == "short" ? "-" : "--") + (name["name"]?.string ?? "")
      }
      text += ".TP\n"
      if argument["kind"]?.string == "positional" {
        text += ".I \(value)\n"
      } else {
        let isFlag = argument["kind"]?.string == "flag"
        text += ".B \(escape(names.joined(separator: ", ")))\(isFlag ? "" : " \\fI\(value)\\fP")\n"
      }
      let fallback = argument["defaultValue"]?.string.map { " Default: \($0)." } ?? ""
      text += "\(escape((argument["abstract"]?.string ?? "") + fallback))\n"
    }
    return text
  }

  private func json(_ command: String) -> String {
    guard let answer = Shapes.commands[command], let name = answer.name else { return "" }
    let rows = answer.kind == Answer.lines ? ", one object a line" : ""
    var text = ".PP\nWith \\fB\\-\\-json\\fP\(rows):\n.nf\n"
    for shape in ShapeReference.family(name) {
      text += "\n\\fI\(escape(shape))\\fP\n"
      for field in ShapeReference.shapes[shape] ?? [] {
        text +=
          "  \(escape(field.name)) (\(escape(field.type)))\(field.summary.isEmpty ? "" : " \(escape(field.summary))")\n"
      }
    }
    return text + ".fi\n"
  }

  private var exitStatus: String {
    """
    .SH EXIT STATUS
    0: success. 1: \\fBmeshpost doctor\\fP found a failure. Other codes follow \\fBsysexits.h\\fP(3head): 64 usage error, 65 text too
    long, 67 no such node, channel, message or other thing, 68 \\fB\\-\\-host\\fP cannot be reached, 69 the daemon, the radio or a node does not
    answer, 70 cancelled, 73 a file exists already, 74 a file or the output cannot be written, 75 try again later, 76 refused by the radio.

    """
  }

  private var footer: String {
    ".SH SEE ALSO\n.BR meshpost (1),\n.BR meshpostd (8)\n"
  }

  // MARK: Text

  private func paragraphs(_ text: String?) -> String {
    guard let text, !text.isEmpty else { return "" }
    let parts = text.split(separator: "\n\n").filter { !$0.hasPrefix(Examples.heading) }
    return parts.map { ".PP\n\(escape(String($0)))\n" }.joined()
  }

  /// roff treats a backslash, a leading dot or quote, and a hyphen specially.
  private func escape(_ text: String) -> String {
    text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
      let escaped = line.replacing("\\", with: "\\e").replacing("-", with: "\\-")
      return escaped.hasPrefix(".") || escaped.hasPrefix("'") ? "\\&" + escaped : String(escaped)
    }.joined(separator: "\n")
  }
}
