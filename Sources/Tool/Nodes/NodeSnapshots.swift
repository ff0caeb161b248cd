// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import HTTP
import JSON
import UntrustedText

extension NodeCommand {
  struct Snapshot: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Ask a repeater, room or sensor for all its settings, as admin, and keep them.",
      discussion: """
        It asks in the air time for background work, which takes minutes. What the node has told is kept, even if not all of it came \
        (exit code 75): another snapshot within an hour asks only for the rest. The gateway keeps 16 snapshots of each node. It asks for no password and no key.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Flag(help: "Show the newest stored snapshot, without asking the node.") var stored = false

    func run() throws {
      if stored {
        guard let newest = try Snapshots.kept(of: node, connection).last else { throw Snapshots.none(of: node) }
        return try show(newest)
      }
      var ending: JSONValue?
      let body = JSONWriter.object { $0.field("node", node) }
      let row = Shape.SnapshotProgress()
      try ControlClient(connection).rows(HTTPRequest("POST", "/v1/node/snapshot", body: body)) { progress in
        if progress[row.snapshot] != nil || progress[row.error] != nil {
          ending = progress
        } else if let words = progress[row.waits] {
          Console.error("waiting: \(words)")
        } else if !connection.json {
          let value = progress[row.value].map { Visible.line($0) } ?? "(the node does not know it)"
          print("\(progress[row.done] ?? 0)/\(progress[row.of] ?? 0)  \(progress[row.setting] ?? "?") = \(value)")
        }
      }
      guard let snapshot = ending?[row.snapshot] else {
        throw Failure.say(ending?[row.error] ?? "the gateway has ended it", EX_UNAVAILABLE)
      }
      if connection.json { print(json: snapshot) }
      let missing = snapshot[Shape.Snapshot().missing]
      guard !missing.isEmpty else {
        if !connection.json { print("all settings are kept: meshpost node diff shows what changes") }
        return
      }
      let why = snapshot[Shape.Snapshot().trouble].map { ": \($0)" } ?? ""
      Console.error(
        "\(missing.count) settings are missing (\(missing.joined(separator: ", ")))\(why). The others are kept")
      throw ExitCode(EX_TEMPFAIL)
    }

    private func show(_ snapshot: JSONValue) throws {
      if connection.json { return print(json: snapshot) }
      let row = Shape.Snapshot()
      print("\(snapshot[row.name] ?? node), \(Show.time(snapshot[row.at]))")
      for (name, value) in snapshot[row.settings]?.fields ?? [] { print("\(name) = \(value.string ?? "")") }
      let (unknown, missing) = (snapshot[row.unknown], snapshot[row.missing])
      if !unknown.isEmpty { print("the node does not know: \(unknown.joined(separator: ", "))") }
      if !missing.isEmpty { print("missing: \(missing.joined(separator: ", "))") }
    }
  }

  struct Diff: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Show what has changed in a node's settings between its newest snapshot and an earlier one.",
      discussion: "The exit code is 1 if something has changed. What one of the two lacks is not compared.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "How many snapshots before the newest, 1 to 15.") var earlier = 1

    func validate() throws {
      guard (1...15).contains(earlier) else { throw ValidationError("EARLIER: 1 to 15") }
    }

    func run() throws {
      let kept = try Snapshots.kept(of: node, connection)
      guard let newer = kept.last else { throw Snapshots.none(of: node) }
      guard kept.count > earlier else {
        throw Failure.say("only \(kept.count) snapshot\(kept.count == 1 ? " is" : "s are") kept of \(node)", EX_NOINPUT)
      }
      let older = kept[kept.count - 1 - earlier]
      let row = Shape.Snapshot()
      let changes = SettingsChange.between(older[row.settings], newer[row.settings])
      if connection.json {
        print(json: SettingsChange.json(changes, older[row.at], newer[row.at]))
      } else {
        print("\(newer[row.name] ?? node), \(Show.time(older[row.at])) to \(Show.time(newer[row.at]))")
        for change in changes { print("\(change.setting): \(change.before) -> \(change.after)") }
        if changes.isEmpty { print("nothing has changed") }
      }
      if !changes.isEmpty { throw ExitCode(1) }
    }
  }
}

private enum Snapshots {
  /// Oldest first.
  static func kept(of node: String, _ connection: Connection) throws -> [JSONValue] {
    var rows: [JSONValue] = []
    try ControlClient(connection).rows("/v1/node/snapshots".with(["node": node])) { rows.append($0) }
    return rows
  }

  static func none(of node: String) -> any Error {
    Failure.say("no snapshot of \(node) is kept: meshpost node snapshot takes one", EX_NOINPUT)
  }
}

/// A setting with another value than before.
struct SettingsChange: Equatable {
  var setting: String
  var before: String
  var after: String

  /// In the order of the newer ones. What one of the two lacks is not compared: it may not have been told.
  static func between(_ older: JSONValue?, _ newer: JSONValue?) -> [SettingsChange] {
    (newer?.fields ?? []).compactMap { name, value in
      guard let after = value.string, let before = older?[name]?.string, !before.isExactly(after) else { return nil }
      return SettingsChange(setting: name, before: before, after: after)
    }
  }

  static func json(_ changes: [SettingsChange], _ older: Int64?, _ newer: Int64?) -> JSONValue {
    let row = Shape.SnapshotDiff()
    let change = Shape.SettingsChange()
    let rows = changes.map { one in
      JSONValue.object([
        (change.setting.name.description, .string(one.setting)), (change.before.name.description, .string(one.before)),
        (change.after.name.description, .string(one.after)),
      ])
    }
    return .object([
      (row.earlierAt.name.description, .integer(older ?? 0)), (row.newerAt.name.description, .integer(newer ?? 0)),
      (row.changes.name.description, .array(rows)),
    ])
  }
}
