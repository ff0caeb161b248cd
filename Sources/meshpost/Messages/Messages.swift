// SPDX-License-Identifier: MIT

import ArgumentParser

/// By what messages are chosen, of both directions.
struct MessageFilter: ParsableArguments {
  @Option(
    help: "Those of this node: sent by it, posted by it in a room, or under its name on a channel.",
    completion: Completing.nodes)
  var from: String?
  @Option(
    help: "The conversation with this node: what it said directly, and what it was told.", completion: Completing.nodes)
  var with: String?
  @Flag(help: "Those that came.") var received = false
  @Flag(help: "Ours.") var sent = false
  @OptionGroup var radio: RadioChoice
  @Option(help: "Those on this channel.", completion: Completing.channels) var channel: String?
  @Option(help: ArgumentHelp("Those that came since then: \(TimeArgument.forms).", valueName: "time"))
  var since: TimeArgument?
  @Option(help: ArgumentHelp("Those that came until then.", valueName: "time")) var until: TimeArgument?

  /// As the control socket takes it, each part with an `&` in front.
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
    commandName: "messages", abstract: "Messages of both directions, newest last.")
  @OptionGroup var connection: Connection
  @OptionGroup var filter: MessageFilter
  @Option(help: "How many.") var limit = 20
  @Option(help: "Those after this place: a row's cursor, or a message's number.") var after: String?
  @Flag(help: "Go on with what comes, and with each state of ours.") var follow = false

  func run() throws {
    var target = "/v1/messages?limit=\(limit)\(filter.query)"
    if let after { target += "&after=\(ControlClient.escape(after))" }
    if follow { target += "&follow=1" }
    try ControlClient(connection).lines(target, Show.message).tell("messages", filter.radio, connection)
  }
}

struct SearchCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "search", abstract: "Find messages of both directions by their words, newest last.",
    discussion: """
      All words must be in a message, in any order; upper and lower case and accents do not matter. "two words" in quotes \
      stand together, batter* is a beginning of at least three letters, and after -- a word with - in front must not be \
      in it: meshpost search -- storm -test
      """)
  @OptionGroup var connection: Connection
  @OptionGroup var filter: MessageFilter
  @Option(help: "How many, the newest of all.") var limit = 20
  @Argument(help: "What to look for.") var words: [String]

  func run() throws {
    // What the shell kept together, stays so.
    let text = words.map { $0.contains(" ") && !$0.contains("\"") ? "\"\($0)\"" : $0 }.joined(separator: " ")
    let target = "/v1/messages?limit=\(limit)&q=\(ControlClient.escape(text))\(filter.query)"
    try ControlClient(connection).lines(target, Show.message).tell("messages", filter.radio, connection)
  }
}
