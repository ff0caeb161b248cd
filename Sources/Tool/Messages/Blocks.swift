// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import JSON

struct BlockCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "block", abstract: "Block senders whose messages concern nobody here.",
    discussion: """
      Messages of a blocked sender are received, forwarded to hubs and found as before, but they are not counted as \
      unread, pages hide them, and hooks, webhooks and Home Assistant do not get them.
      """,
    subcommands: [List.self, Add.self, Remove.self], defaultSubcommand: List.self)

  /// A sender, as a request names it.
  struct Sender: ParsableArguments {
    @Argument(
      help: "The node, or at least 8 digits of its key; with --channel a name.", completion: Completing.nodes)
    var whom: String
    @Option(
      help: "Only this name, on this channel: messages on channels tell no key.", completion: Completing.channels)
    var channel: String?

    var body: [UInt8] { .object(["whom": .string(whom), "channel": channel.map(JSONValue.string)]) }
    var place: String { channel.map { " on \($0)" } ?? "" }
  }

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List blocked senders.")
    @OptionGroup var connection: Connection

    func run() throws { try ControlClient(connection).lines("/v1/blocks", Show.block) }
  }

  struct Add: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Block a node, or a name on a channel.",
      discussion: """
        A node is blocked by its key, under any name: its direct messages and its posts in rooms. Rooms tell only 4 \
        bytes of an author's key, so another key with the same 4 bytes is blocked there, too. Channels tell only a \
        name, which anybody can take or change: there, block the name.
        """)
    @OptionGroup var connection: Connection
    @OptionGroup var sender: Sender

    var exchange: Exchange {
      .post("/v1/blocks/add", body: sender.body, done: "\(sender.whom) is blocked\(sender.place)")
    }
  }

  struct Remove: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Unblock a node, or a name on a channel.")
    @OptionGroup var connection: Connection
    @OptionGroup var sender: Sender

    var exchange: Exchange {
      .post("/v1/blocks/remove", body: sender.body, done: "\(sender.whom) is no longer blocked\(sender.place)")
    }
  }
}

struct LevelCommand: ExchangeCommand {
  static let configuration = CommandConfiguration(
    commandName: "level", abstract: "Set which messages of a conversation concern anybody here.",
    discussion: """
      Other messages are received, forwarded to hubs and found as before, but they are not counted as unread, and \
      hooks, webhooks and Home Assistant do not get them.
      """)
  @OptionGroup var connection: Connection
  @Argument(help: "The channel or node.", completion: Completing.everybody) var conversation: String
  @Argument(
    help: """
      all; mentions: those that mention the radio's name; direct: those that begin with a mention of it; none. A \
      direct message passes all but none.
      """)
  var level: Level

  enum Level: String, ExpressibleByArgument, CaseIterable { case all, mentions, direct, none }

  var exchange: Exchange {
    .post(
      "/v1/conversations/level",
      body: .object(["conversation": .string(conversation), "level": .string(level.rawValue)]),
      done: "\(conversation): \(level.rawValue)")
  }
}

extension Show {
  static func block(_ block: JSONValue) -> Styled {
    let row = Shape.Block()
    guard let channel = block[row.channelName] ?? block[row.channel] else {
      return "\(clean(block[row.key]).padding(66))\(clean(block[row.name]))"
    }
    return "\(clean(block[row.name])) on \(clean(channel))"
  }
}
