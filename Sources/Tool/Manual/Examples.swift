// SPDX-License-Identifier: MIT

/// Command lines in the help and the man page of the most used commands. Tests parse them all, and type them as they are printed (Tests/printed).
enum Examples {
  struct Example {
    let line: String
    let meaning: String

    init(_ line: String, _ meaning: String) { (self.line, self.meaning) = (line, meaning) }
  }

  /// By the command's words. A line fits into a terminal of 80 columns.
  static let all: [String: [Example]] = [
    "setup": [
      Example("sudo meshpost setup", "the first time: it asks"),
      Example(
        "sudo meshpost setup --unattended --upstream URL --token-file FILE", "from a script: forward to a hub, too"),
    ],
    "send": [
      Example("meshpost send Birch 'is the hut open?' --wait", "wait until Birch has it"),
      Example("meshpost send '#hilltop' 'good morning'", "to a channel"),
      Example("date | meshpost send Birch -", "what another program prints"),
    ],
    "messages": [
      Example("meshpost messages --follow", "the newest, and then each that arrives"),
      Example("meshpost messages --with Birch --since 2d", "a conversation of two days"),
      Example("meshpost messages --channel '#hilltop'", "a channel"),
    ],
    "upstream add": [
      Example("meshpost upstream add field URL --token-file FILE --from start", "with what is stored already"),
      Example("meshpost upstream test field", "whether it answers, and accepts this gateway"),
      Example("meshpost upstream remove field", "it gets nothing any more"),
    ],
    "upstream test": [
      Example("meshpost upstream test hub", "whether it answers, and accepts this gateway"),
      Example("meshpost upstream test hook/ping", "run a hook's program with an event of kind test"),
      Example("meshpost upstream retry hook/ping", "then run it for the events that it failed for"),
    ],
    "node": [
      Example("meshpost node login Ridge", "asks for the password, once"),
      Example("meshpost node status Ridge", "its battery, air time and counters"),
      Example("meshpost node cli Ridge get radio", "a command of its own"),
    ],
  ]

  /// The paragraph of a discussion that has them, which a man page has in a section of its own.
  static let heading = "Examples:"

  /// The discussion of a command: the text, and the command's examples.
  static func of(_ command: String, after text: String = "") -> String {
    let lines = (all[command] ?? []).map { "  # \($0.meaning)\n  \($0.line)" }
    return (text.isEmpty ? "" : text + "\n\n") + ([heading] + lines).joined(separator: "\n")
  }
}
