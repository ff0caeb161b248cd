// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import JSON

struct DeleteCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "delete", abstract: "Delete messages for good, here and at the hubs.",
    discussion: """
      Texts, names and ways of the messages leave the database and its search. Hubs delete what they have of them from \
      this gateway when they get the event `deletion`. What cannot be taken back: what brokers, webhooks and hooks have \
      got, backups and exports, and what other nodes, gateways and the radio itself have heard.
      """,
    subcommands: [Message.self, Conversation.self])

  struct Message: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Delete single messages, at most 100 at once.")
    @OptionGroup var connection: Connection
    @Argument(
      help: """
        The numbers of received messages, and the ids of sent ones. received:12 or sent:12 if 12 is both.
        """)
    var ids: [String]
    @Flag(help: "Do not prompt for confirmation.") var yes = false

    func run() throws {
      try Deleting.run(["ids": .array(ids.map { .string($0) })], yes, connection)
    }
  }

  struct Conversation: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Delete all messages of a conversation.",
      discussion: """
        It goes on in the background, also after a restart; meshpost status shows it. Messages that arrive meanwhile \
        stay, and so do those that have not been sent yet when it begins.
        """)
    @OptionGroup var connection: Connection
    @Argument(
      help: "The channel or node, by its whole name or key, or its key in rows, such as channel:DIGEST.",
      completion: Completing.everybody)
    var conversation: String
    @Option(
      help: ArgumentHelp(
        "Only messages that were received or sent before this time, by this gateway's clock: \(TimeArgument.forms).",
        valueName: "time"))
    var before: TimeArgument?
    @Flag(help: "Do not prompt for confirmation.") var yes = false

    func run() throws {
      try Deleting.run(
        ["conversation": .string(conversation), "before": before.map { .integer($0.milliseconds) }], yes, connection)
    }
  }
}

private enum Deleting {
  private static let target = "/v1/messages/delete"

  static func run(_ fields: KeyValuePairs<String, JSONValue?>, _ isConfirmed: Bool, _ connection: Connection) throws {
    let client = ControlClient(connection)
    let wanted = fields.compactMap { name, value in value.map { (name, $0) } }
    if !isConfirmed {
      guard isatty(STDIN_FILENO) != 0 else { throw Failure.say("nothing was deleted: say --yes", EX_USAGE) }
      let found = try client.post(target, body: JSONValue.object(wanted + [("count", .bool(true))]).bytes).value
      guard try Dialogue.yes("Delete \(words(found)) for good?", standard: false) else {
        throw Failure.say("nothing was deleted", EX_TEMPFAIL)
      }
    }
    try client.carryOut(
      .post(target, body: JSONValue.object(wanted).bytes, limit: 120) { found in
        let state = found[Shape.Deletion().conversation] == nil ? "deleted" : "are being deleted"
        print("\(words(found)) \(state) here, and at each hub when it has the event")
        print("not taken back: what brokers, webhooks, hooks, backups and other nodes have")
      })
  }

  /// A conversation with its name: a key may have been typed.
  private static func words(_ found: JSONValue) -> String {
    let row = Shape.Deletion()
    let (received, sent) = (found[row.received] ?? 0, found[row.sent] ?? 0)
    let waiting = found[row.waiting] ?? 0
    let kept = waiting > 0 ? " (\(waiting) not sent yet stay)" : ""
    let place = found[row.conversation].map { key in
      "\(found[row.name].map { "\(Show.clean($0)) " } ?? "")(\(Show.clean(key))): "
    }
    return "\(place ?? "")\(Show.counted(received, "received message")) and \(sent) sent\(kept)"
  }
}
