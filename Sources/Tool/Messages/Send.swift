// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import JSON

struct SendCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "send", abstract: "Send a message to a node, a room or a channel.",
    discussion: Examples.of(
      "send",
      after: """
        TO is a name or a unique prefix of one, a key or a prefix of one, or a #channel. The message is queued, and sent \
        when the radio and the air time limit allow it. Exit codes with --wait: 0 delivered (on a channel: sent), 75 not \
        acknowledged (yet) or expired, 76 refused by the radio, 77 the room allows only reading, 70 cancelled.
        """))
  @OptionGroup var connection: Connection
  @Argument(help: "The recipient.", completion: Completing.everybody) var to: String
  @Argument(help: "The text; `-` reads it from standard input. After `--`, words may begin with a dash.") var text:
    [String]
  @Flag(
    help:
      "Wait until it is delivered, has failed, or is held because the recipient does not acknowledge it; with --expires, until it has ended."
  ) var wait = false
  @Flag(help: "Split a text that is too long into numbered parts.") var split = false
  @Option(help: "An id of your choice: sending the same id again does not send a second message.") var id: String?
  @OptionGroup var lifetime: LifetimeOption
  @Option(help: "interactive, relayed or bulk.") var priority = "interactive"
  @Option(
    help: ArgumentHelp(
      "Send to this region, or `none`, or the radio's `default`. Otherwise to the region of the recipient or channel.",
      valueName: "name"))
  var region: String?

  func run() throws {
    let message = text == ["-"] ? try Self.standardInput() : text.joined(separator: " ")
    try Sending.send(message, to: to, id: id, connection, wait: wait, lifetime) { json in
      json.field("priority", priority)
      json.field("split", split)
      json.field("region", region)
    }
  }

  private static func standardInput() throws -> String {
    guard var bytes = InputFile.rest(of: 0) else { throw Failure.file("standard input") }
    if bytes.last == 10 { bytes.removeLast() }
    return try InputFile.string(bytes, from: "standard input")
  }
}

/// Of `send` and `room post`.
struct LifetimeOption: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Stop trying after this time: \(DurationArgument.forms) (default: `messaging.lifetime_h`, a day).",
      valueName: "time"))
  var expires: DurationArgument?
}

struct ReactCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "react", abstract: "Send a reaction, in the format of MeshCore One.")
  @OptionGroup var connection: Connection
  @Argument(help: "The number of a message (see `meshpost messages --json`), or the id of a sent message.")
  var message: String
  @Argument(help: "One emoji.") var emoji: String
  @Flag(help: "Wait until it is delivered, has failed, or is held for its recipient.") var wait = false

  func run() throws {
    let body = JSONWriter.object { json in
      if let number = Int64(message) { json.field("message", number) } else { json.field("outgoing", message) }
      json.field("emoji", emoji)
      Sending.writeOrigin(to: &json)
    }
    let answer = try ControlClient(connection).post("/v1/react", body: body, remedy: "see `meshpost sent`")
    try Sending.accepted(answer, connection, wait: wait)
  }
}

struct SentCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "sent",
    abstract: "List sent and waiting messages with their states; adopt or cancel messages held for another radio.",
    discussion: """
      Messages queued for a radio other than the attached one are held until that radio is back. Alternatively, the attached \
      radio can send them (adopt), or they can be cancelled (cancel).
      """,
    subcommands: [List.self, Adopt.self, Cancel.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "List sent and waiting messages, newest last, and all messages held for another radio.")
    @OptionGroup var connection: Connection
    @OptionGroup var radio: RadioChoice
    @Option(help: "Maximum number of messages.") var limit = 20
    @Flag(help: "Show by which repeaters each message was heard again.") var heard = false

    func validate() throws { try RowLimit.check(limit) }

    func run() throws {
      var held = 0
      var hints: [String] = []
      let target = radio.target("/v1/outgoing?limit=\(limit)&upstreams=1").with(["ways": heard ? "1" : nil])
      try ControlClient(connection).lines(target, details: Show.ways) { message in
        let row = Shape.Outgoing()
        if message[row.heldFor] != nil { held += 1 }
        if message[row.state] == "held_for_recipient" || message[row.state] == "failed",
          let hint = Show.hint(of: message), !hints.contains(hint)
        {
          hints.append(hint)
        }
        return Show.outgoing(message)
      }
      guard !connection.json else { return }
      for hint in hints { print(lines: ["", Styled(hint)]) }
      guard held > 0 else { return }
      OtherRadios.note(
        "\(held) held for another radio: meshpost sent adopt ID (or --all) sends them with this radio, meshpost sent cancel ID "
          + "(or --all) cancels them")
    }
  }
}

struct RetryCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "retry", abstract: "Retry a failed message, or try one now that is held for its recipient.")
  @OptionGroup var connection: Connection
  @Argument(help: "The message's id.") var id: String
  @Flag(help: "Wait until it is delivered, has failed, or is held for its recipient.") var wait = false

  func run() throws { try Sending.act("retry", id, connection, wait: wait) }
}

struct CancelCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cancel", abstract: "Cancel a message: no further attempts. A transmission in progress is not aborted."
  )
  @OptionGroup var connection: Connection
  @Argument(help: "The message's id.") var id: String

  func run() throws { try Sending.act("cancel", id, connection, wait: false) }
}

struct RoomCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "room", abstract: "Log in to rooms, post and read.", subcommands: [Login.self, Post.self, Read.self])

  struct Login: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Log in to a room and stay logged in, also across restarts: its posts are received from then on.")
    @OptionGroup var connection: Connection
    @Argument(help: "The room.", completion: Completing.nodes) var room: String
    @Flag(help: "Use the stored password.") var stored = false
    @Flag(help: "Accept read-only access, and keep the password for it.") var readOnly = false

    func run() throws { try NodeAsking.logIn(room, stored: stored, isReadOnly: readOnly, connection) }
  }

  struct Post: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Post in a room.")
    @OptionGroup var connection: Connection
    @Argument(help: "The room.", completion: Completing.nodes) var room: String
    @Argument(help: "The text.") var text: [String]
    @Flag(help: "Wait for the room's acknowledgement.") var wait = false
    @OptionGroup var lifetime: LifetimeOption

    func run() throws {
      let node = try ControlClient(connection).get("/v1/resolve".with(["name": room])).value
      guard let key = node[Shape.Contact().key], node[Shape.Contact().type] == "room" else {
        throw Failure.say("\(room) is no room: meshpost send writes to nodes and channels", EX_USAGE)
      }
      try Sending.send(text.joined(separator: " "), to: key, connection, wait: wait, lifetime)
    }
  }

  struct Read: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List the posts of a room, newest last.")
    @OptionGroup var connection: Connection
    @Argument(help: "The room.", completion: Completing.nodes) var room: String
    @Option(help: "Maximum number of posts.") var limit = 20

    func validate() throws { try RowLimit.check(limit) }

    func run() throws {
      let target = "/v1/messages?limit=\(limit)&direction=both".with(["with": room])
      try ControlClient(connection).lines(target, Show.message)
    }
  }
}

/// Shared by `send`, `react`, `room post` and `retry`.
enum Sending {
  /// A message or a reaction from a hook's program belongs to the hook: hooks get no events of it.
  static func writeOrigin(to json: inout JSONWriter) {
    json.field("origin", getenv("MESHPOST_HOOK").map { String(cString: $0) })
  }

  /// `id`: of the user's choice, otherwise one of ours, by which a request without an answer can be repeated. `more`: further fields of the request.
  static func send(
    _ text: String, to recipient: String, id: String? = nil, _ connection: Connection, wait: Bool,
    _ lifetime: LifetimeOption, more: (inout JSONWriter) -> Void = { _ in }
  ) throws {
    let id = id ?? String(UInt64.random(in: .min ... .max), radix: 16)
    let body = JSONWriter.object { json in
      json.field("id", id)
      json.field("to", recipient)
      json.field("text", text)
      json.field("expires_s", lifetime.expires?.seconds)
      writeOrigin(to: &json)
      // So is its region that of the message that the hook got.
      json.field("answers", getenv("MESHPOST_MESSAGE").flatMap { Int64(String(cString: $0)) })
      more(&json)
    }
    let remedy = "see `meshpost sent`; `meshpost send --id \(id)` with the same text sends it only if it is not there"
    let answer = try ControlClient(connection).post("/v1/send", body: body, remedy: remedy)
    try accepted(answer, connection, wait: wait, toEnd: lifetime.expires != nil)
  }

  /// Prints the ids of accepted messages, or follows the messages until they have ended, or are held for their recipient (unless `toEnd`).
  static func accepted(
    _ answer: ControlClient.Answer, _ connection: Connection, wait: Bool, toEnd: Bool = false
  ) throws {
    let (messages, row) = (answer.value[Shape.Accepted().messages], Shape.Outgoing())
    guard wait else {
      if connection.json { return print(answer.text) }
      for message in messages { print("\(message[row.id] ?? "") \(message[row.state] ?? "?")") }
      return
    }
    let ended = try messages.map { try follow($0[row.id] ?? "", connection, toEnd: toEnd) }
    if connection.json { print(json: .object([("messages", .array(ended))])) }
    try leave(ended, connection)
  }

  static func act(_ verb: String, _ id: String, _ connection: Connection, wait: Bool) throws {
    let client = ControlClient(connection)
    let answer = try client.post("/v1/outgoing/\(verb)".with(["id": id]))
    guard wait else { return connection.json ? print(answer.text) : print(styled: Show.outgoing(answer.value)) }
    let ended = try follow(id, connection, toEnd: false)
    if connection.json { print(json: ended) }
    try leave([ended], connection)
  }

  /// Follows a message until it has ended, or is held for its recipient; without `--json` prints each state.
  private static func follow(_ id: String, _ connection: Connection, toEnd: Bool) throws -> JSONValue {
    var last = JSONValue.null
    while true {
      let ending = Ending(seconds: nil)
      do {
        try ControlClient(connection).rows("/v1/outgoing?follow=1".with(["id": id]), until: ending) { message in
          guard message != last else { return }
          last = message
          if !connection.json { print(styled: Show.outgoing(message, at: Int64(time(nil)) * 1000)) }
          if !toEnd, isHeld(message) { ending.end() }
        }
        return last
      } catch let code as ExitCode where code.rawValue == EX_UNAVAILABLE {
        // The daemon has the message on its disk, and sends it when it is back.
        OtherRadios.note("the message \(id) is on the gateway's disk; waiting for the gateway")
        guard isBack(connection) else { throw code }
      }
    }
  }

  /// How long `--wait` waits for a gateway that has ended, in seconds.
  private static let patience = 600

  private static func isBack(_ connection: Connection) -> Bool {
    for _ in 0..<patience {
      sleep(1)
      if ControlClient(connection).quietly("/v1/status") != nil { return true }
    }
    return false
  }

  private static func isHeld(_ message: JSONValue) -> Bool { message[Shape.Outgoing().state] == "held_for_recipient" }

  /// Exits with the worst exit code of all messages.
  private static func leave(_ ended: [JSONValue], _ connection: Connection) throws {
    if !connection.json {
      for hint in Set(ended.filter { code($0) != 0 }.compactMap { Show.hint(of: $0) }) { print(hint) }
    }
    let worst = ended.map(code).max() ?? 0
    if worst != 0 { throw ExitCode(worst) }
  }

  private static func code(_ message: JSONValue) -> Int32 {
    switch (message[Shape.Outgoing().state], message[Shape.Outgoing().reason]) {
    case ("delivered", _), ("sent", _): 0
    case (_, "cancelled"): EX_SOFTWARE
    case (_, "refused"), (_, "unknown_to_radio"), (_, "region_unknown"): EX_PROTOCOL
    case (_, "read_only"): EX_NOPERM
    default: EX_TEMPFAIL
    }
  }
}
