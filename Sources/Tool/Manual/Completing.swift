// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import JSON
import UntrustedText

/// Names from the gateway for shell completion; none if it does not answer.
enum Completing {
  static let nodes = CompletionKind.custom { _, _, _ in names("/v1/contacts", "name") }
  static let channels = CompletionKind.custom { _, _, _ in names("/v1/channels", "name") }
  static let everybody = CompletionKind.custom { _, _, _ in
    names("/v1/channels", "name") + names("/v1/contacts", "name")
  }
  static let upstreams = CompletionKind.custom { _, _, _ in
    // `try?`: without an answer there are no completions.
    let outbox = (try? client())?.quietly("/v1/outbox")
    return outbox?[Shape.Outbox().upstreams].compactMap { $0[Shape.Upstream().name] } ?? []
  }

  private static func client() throws -> ControlClient { ControlClient(try Connection.parse([])) }

  private static func names(_ target: String, _ field: String) -> [String] {
    // `try?`: nothing to complete with.
    ((try? client())?.quietRows(target) ?? []).compactMap { $0[field]?.string }.filter { !$0.isEmpty }.map(Show.clean)
  }

  private static let request = "--generate-completion-script"

  /// Prints the completion script for a shell, on request. It also offers global options before the command.
  static func script(_ typed: [String]) -> String? {
    guard let first = typed.first, first.begins(with: request) else { return nil }
    let words = first.pieces(at: "=", most: 2) + typed.dropFirst()
    guard words[0].isExactly(request), words.count <= 2 else { return nil }
    let shell = words.count == 2 ? CompletionShell(rawValue: words[1]) : CompletionShell.autodetected()
    return shell.map { Root.completionScript(for: $0) }
  }

  /// `meshpost` with global options before the command: `TypedCommand` moves them behind it.
  private struct Root: ParsableCommand {
    static let configuration = Meshpost.configuration
    @OptionGroup var connection: Connection
  }
}
