// SPDX-License-Identifier: MIT

import ArgumentParser

/// Where a new upstream starts in the journal.
enum UpstreamStart {
  static let help = "now, or start to send what is stored already, too"

  static func check(_ start: String) throws {
    guard ["now", "start"].contains(start) else { throw ValidationError("--from \(start): now, or start") }
  }

  /// A hub is to show what its gateway knows. Most nodes were heard before it was added, and are told again only when they are heard.
  static func ask(_ name: String) throws -> String {
    let question = "Send \(name) what is stored here already, too (messages, nodes)?"
    return try Dialogue.yes(question, standard: true) ? "start" : "now"
  }
}
