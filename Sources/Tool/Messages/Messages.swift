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
  @Option(help: ArgumentHelp("Only messages until this time.", valueName: "time")) var until: TimeArgument?

  /// The query for the control socket, each part preceded by `&`.
  var query: String {
    var query = "&direction=\(received == sent ? "both" : sent ? "sent" : "received")\(radio.query)"
    if let with { query += "&with=\(ControlClient.escape(with))" }
    if let from { query += "&from=\(ControlClient.escape(from))" }
    if let channel { query += "&channel=\(ControlClient.escape(channel))" }
    if let since { query += "&since=\(since.milliseconds)" }
    if let until { query += "&until=\(until.milliseconds)" }
    return query
  }
}

struct MessagesCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "messages", abstract: "List received and sent messages, newest last.")
  @OptionGroup var connection: Connection
  @OptionGroup var filter: MessageFilter
  @Option(help: "Maximum number of messages.") var limit = 20
  @Option(help: "Only messages after this one: a row's cursor, or a message's number.") var after: String?
  @Flag(help: "Keep printing new messages, and changes of sent messages.") var follow = false

  func run() throws {
    // Only programs need the state of upstreams.
    var target = "/v1/messages?limit=\(limit)\(filter.query)"
    if connection.json { target += "&upstreams=1" }
    if let after { target += "&after=\(ControlClient.escape(after))" }
    if follow { target += "&follow=1" }
    try ControlClient(connection).lines(target, Show.message).tell("messages", filter.radio, connection)
  }
}

struct SearchCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "search", abstract: "Search received and sent messages, newest last.",
    discussion: """
      A message must contain all words, in any order; case and accents are ignored. "two words" in quotes match as a \
      phrase, batter* matches a prefix of at least three letters, and after -- a word preceded by - must not occur: \
      meshpost search -- storm -test
      """)
  @OptionGroup var connection: Connection
  @OptionGroup var filter: MessageFilter
  @Option(help: "Maximum number of messages; the newest are kept.") var limit = 20
  @Argument(help: "The words to search for.") var words: [String]

  func run() throws {
    // Searches for an argument with spaces as a phrase: the user has quoted it.
    let text = words.map { $0.contains(" ") && !$0.contains("\"") ? "\"\($0)\"" : $0 }.joined(separator: " ")
    var target = "/v1/messages?limit=\(limit)&q=\(ControlClient.escape(text))\(filter.query)"
    if connection.json { target += "&upstreams=1" }
    try ControlClient(connection).lines(target, Show.message).tell("messages", filter.radio, connection)
  }
}
