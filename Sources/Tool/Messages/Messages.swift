// SPDX-License-Identifier: MIT

import ArgumentParser

/// Selects messages of both directions.
struct MessageFilter: ParsableArguments {
  @Option(
    help: "Only messages from this node: direct, posted in a room, or under its name on a channel.",
    completion: Completing.nodes)
  var from: String?
  @Option(
    help: "Only the conversation with this node, in both directions.", completion: Completing.nodes)
  var with: String?
  @Flag(help: "Only received messages.") var received = false
  @Flag(help: "Only sent messages.") var sent = false
  @OptionGroup var radio: RadioChoice
  @Option(help: "Only messages on this channel.", completion: Completing.channels) var channel: String?
  @Option(help: ArgumentHelp("Only messages since this time: \(TimeArgument.forms).", valueName: "time"))
  var since: TimeArgument?
  @Option(help: ArgumentHelp("Only messages until this time: \(TimeArgument.forms).", valueName: "time"))
  var until: TimeArgument?

  func validate() throws {
    guard let since, let until, since.milliseconds > until.milliseconds else { return }
    throw ValidationError("--since is later than --until: no message is between them")
  }

  /// The target of the request with these parameters.
  func target(_ target: String) -> String {
    radio.target(target).with([
      "direction": received == sent ? "both" : sent ? "sent" : "received", "with": with, "from": from,
      "channel": channel, "since": since.map { "\($0.milliseconds)" }, "until": until.map { "\($0.milliseconds)" },
    ])
  }
}

struct MessagesCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "messages", abstract: "List received and sent messages, newest last.",
    discussion: Examples.of("messages"))
  @OptionGroup var connection: Connection
  @OptionGroup var filter: MessageFilter
  @Option(help: "Maximum number of messages.") var limit = 20
  @Option(help: "Only messages after this one: a row's cursor, or a message's number.") var after: String?
  @Flag(help: "Keep printing new messages, and changes of sent messages.") var follow = false
  @Flag(help: "Show by which repeaters each message came, and which passed ours on.") var paths = false

  func validate() throws { try RowLimit.check(limit, allowsNone: follow) }

  func run() throws {
    // Only programs need the state of upstreams.
    let target = filter.target("/v1/messages?limit=\(limit)")
      .with([
        "upstreams": connection.json ? "1" : nil, "after": after, "follow": follow ? "1" : nil,
        "ways": paths ? "1" : nil,
      ])
    try ControlClient(connection).lines(target, details: Show.ways, Show.message)
      .tell("messages", filter.radio, connection)
  }
}

struct ConversationsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "conversations", abstract: "List conversations with what is unread in them, newest first.",
    discussion: """
      A conversation is a channel of the radio, a room, or a node with which messages were exchanged. \
      Messages are read once somebody has seen them in a page; @ marks that an unread one mentions the radio's name. \
      The count begins with the first list, here or in a page: what was stored before counts as read.
      """)
  @OptionGroup var connection: Connection
  @Flag(help: "Only conversations with unread messages.") var unread = false
  @Option(help: "Only data of this radio, by name or key prefix (see meshpost radio list).") var radio: String?

  func run() throws {
    let target = "/v1/conversations".with(["unread": unread ? "1" : nil, "radio": radio])
    try ControlClient(connection).lines(target, Show.conversation)
  }
}

struct SearchCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "search", abstract: "Search received and sent messages, newest last.",
    discussion: """
      Each word must be in the text or in the sender's name, in any order; case and accents are ignored. "two words" \
      in quotes match as a phrase, batter* matches a prefix of at least three letters, and after -- a word preceded \
      by - must not occur: meshpost search -- storm -test
      """)
  @OptionGroup var connection: Connection
  @OptionGroup var filter: MessageFilter
  @Option(help: "Maximum number of messages; the newest are kept.") var limit = 20
  @Argument(help: "The words to search for.") var words: [String]

  func validate() throws { try RowLimit.check(limit) }

  func run() throws {
    // Searches for an argument with spaces as a phrase: the user has quoted it.
    let text = words.map { $0.contains(" ") && !$0.contains("\"") ? "\"\($0)\"" : $0 }.joined(separator: " ")
    let target = filter.target("/v1/messages?limit=\(limit)")
      .with(["q": text, "upstreams": connection.json ? "1" : nil])
    try ControlClient(connection).lines(target, Show.message).tell("messages", filter.radio, connection)
  }
}
