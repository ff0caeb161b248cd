// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Escaping
import Glibc
import JSON

struct ContactCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "contact", abstract: "Change the radio's contacts, hand cards around.",
    subcommands: [Add.self, Remove.self, Export.self, Import.self, Share.self, PathCommand.self])

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Put a node into the radio's contacts: one that was heard, or one by its key.")
    @OptionGroup var connection: Connection
    @Argument(help: "A node that is known, or a key of 64 hex digits.") var node: String
    @Option(help: "With a key: its name.") var name: String?
    @Option(help: "With a key: chat, repeater, room or sensor.") var type = "chat"

    func run() throws {
      let body = JSONWriter.object { json in
        guard let name else { return json.field("contact", node) }
        json.field("key", node)
        json.field("name", name)
        json.field("type", type)
      }
      try Asking.done("/v1/contacts/add", body, "\(node) is in the radio's contacts", connection)
    }
  }

  struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Take a node out of the radio's contacts.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    func run() throws {
      let target = "/v1/contacts/remove?contact=\(ControlClient.escape(node))"
      try Asking.done(target, [], "\(node) is removed from the radio", connection)
    }
  }

  struct Export: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "A node's card as a link; without a node the radio's own.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String?

    func run() throws {
      let query = node.map { "?contact=\(ControlClient.escape($0))" } ?? ""
      let answer = try ControlClient(connection).get("/v1/contacts/export\(query)")
      print(connection.json ? answer.text : answer.value["link"]?.string ?? "")
    }
  }

  struct Import: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Take in a meshcore:// link of a node.")
    @OptionGroup var connection: Connection
    @Argument(help: "The link.") var link: String

    func run() throws {
      let body = JSONWriter.object { $0.field("link", link) }
      let answer = try ControlClient(connection).post("/v1/contacts/import", body: body)
      print(connection.json ? answer.text : "\(answer.value["key"]?.string ?? "?") is in the radio's contacts")
    }
  }

  struct Share: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Send a node's advert on to direct neighbours.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    func run() throws {
      let target = "/v1/contacts/share?contact=\(ControlClient.escape(node))"
      try Asking.done(target, [], "the advert of \(node) is on the air", connection)
    }
  }

  struct PathCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "path", abstract: "Show, set, reset or discover the path to a node.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Option(help: "Set it: hex, the beginning of each repeater's key.") var set: String?
    @Option(help: "Bytes of each repeater's key in --set, 1 to 3.") var hashBytes = 1
    @Flag(help: "Forget it: the next message is flooded.") var reset = false
    @Flag(help: "Ask the node for one.") var discover = false

    func run() throws {
      let body = JSONWriter.object { json in
        json.field("contact", node)
        json.field("path", set)
        if set != nil { json.field("hash_bytes", hashBytes) }
        json.field("reset", reset)
        json.field("discover", discover)
      }
      let answer = try ControlClient(connection).post("/v1/contacts/path", body: body, limit: 90)
      print(connection.json ? answer.text : Show.path(answer.value))
    }
  }
}

struct ChannelCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "channel", abstract: "Join and leave channels.",
    subcommands: [Add.self, Remove.self, RegionCommand.self, Relay.self])

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Join a channel: #name, a name with its secret, or a meshcore:// link.",
      discussion: "Upper and lower case differ: #Test and #test are two channels.")
    @OptionGroup var connection: Connection
    @Argument(help: "#name, a name, or a link.") var channel: String
    @Option(help: "A private channel's secret, 32 hex digits; `-`: asked for.") var secret: String?
    @Option(help: "The region that messages to it go to; `*`: none. Without it a link's, or the radio's default.")
    var region: String?
    @Flag(help: "Make a new private channel, and print its link once.") var new = false

    func run() throws {
      let fresh = new ? (0..<16).map { _ in UInt8.random(in: .min ... .max) } : nil
      let key = fresh.map(Hexadecimal.string) ?? (secret == "-" ? Asking.hidden("secret: ") : secret)
      let body = JSONWriter.object { json in
        json.field("channel", channel)
        json.field("secret", key)
        json.field("region", region)
      }
      let answer = try ControlClient(connection).post("/v1/channels/add", body: body)
      let scope = answer.value["region"]?.string
      let link = fresh.map {
        "meshcore://channel/add?name=\(ControlClient.escape(channel))&secret=\(Hexadecimal.string($0))"
          + (scope.map { "&region_scope=\(ControlClient.escape($0))" } ?? "")
      }
      guard !connection.json else {
        let fields = (answer.value.fields ?? []) + (link.map { [("link", .string($0))] } ?? [])
        return print(json: .object(fields))
      }
      let place = scope.map { ", and what is sent there goes to \(Show.region($0))" } ?? ""
      print("channel \(channel) is in slot \(answer.value["slot"]?.integer ?? 0)\(place)")
      if let link { print(link) }
    }
  }

  struct RegionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "region", abstract: "Say into which region messages to a channel go.",
      discussion: """
        Repeaters pass on what is sent to a region that they carry; many refuse what is sent to none. The radio's own default: \
        meshpost radio set flood-scope=NAME.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The channel.", completion: Completing.channels) var channel: String
    @Argument(help: "A region's name; `*`: none; `default`: as the radio's default says.") var region: String

    func run() throws {
      let body = JSONWriter.object { json in
        json.field("channel", channel)
        json.field("region", region == "default" ? nil : region)
      }
      let answer = try ControlClient(connection).post("/v1/channels/region", body: body)
      guard !connection.json else { return print(answer.text) }
      let place = answer.value["region"]?.string.map(Show.region) ?? "where the radio's default says"
      print("what is sent to \(channel) goes to \(place)")
    }
  }

  struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Leave a channel: its slot becomes free.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.channels) var channel: String

    func run() throws {
      let target = "/v1/channels/remove?channel=\(ControlClient.escape(channel))"
      try Asking.done(target, [], "\(channel) is removed", connection)
    }
  }
}

struct NodeCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "node", abstract: "Ask repeaters, rooms, sensors and companions.",
    subcommands: [
      Login.self, Logout.self, Status.self, TelemetryCommand.self, NeighboursCommand.self, Trace.self, CLI.self,
      Readings.self, Alias.self, Note.self, Tag.self,
    ])

  struct Login: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Log in; the password is asked for (or read from standard input) and kept for later requests.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Flag(help: "Use the password that is stored.") var stored = false
    @Flag(help: "A room: to read is enough, and the password is kept for that.") var readOnly = false

    func run() throws { try NodeAsking.logIn(node, stored: stored, isReadOnly: readOnly, connection) }
  }

  struct Logout: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Forget a node's password here.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    func run() throws { try NodeAsking.ask("logout", node, connection, show: { _ in ["the password is forgotten"] }) }
  }

  struct Status: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "How a repeater or room is.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    func run() throws { try NodeAsking.ask("status", node, connection, show: Show.fields) }
  }

  struct TelemetryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "telemetry", abstract: "A node's sensors; `self` is the radio itself.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    func run() throws { try NodeAsking.ask("telemetry", node, connection, show: Show.telemetry) }
  }

  struct NeighboursCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "neighbours", abstract: "Repeaters that a repeater hears.", aliases: ["neighbors"])
    @OptionGroup var connection: Connection
    @Argument(help: "The repeater.", completion: Completing.nodes) var node: String

    func run() throws { try NodeAsking.ask("neighbours", node, connection, show: Show.neighbours) }
  }

  struct Trace: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "How strongly each hop on the way to a node and back hears the one before.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Option(help: "Another round trip: hex, the beginning of each repeater's key, ending with one that we hear.")
    var path: String?

    func run() throws {
      try NodeAsking.ask("trace", node, connection, more: { $0.field("path", path) }, show: Show.trace)
    }
  }

  struct CLI: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "cli", abstract: "A command to a repeater's, room's or sensor's own command line, as admin.",
      discussion: "Some commands have no reply (reboot, poweroff): then exit code 69 says that none came.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "The command; after `--` words may begin with a dash.") var command: [String]

    func run() throws {
      let text = command.joined(separator: " ")
      try NodeAsking.ask("cli", node, connection, more: { $0.field("command", text) }) {
        [Styled(($0["reply"]?.string ?? "").lines.joined(separator: " | "))]
      }
    }
  }

  struct Readings: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "What nodes told of themselves, newest last.")
    @OptionGroup var connection: Connection
    @Argument(help: "Of this node only.", completion: Completing.nodes) var node: String?
    @Option(help: "How many.") var limit = 20
    @OptionGroup var radio: RadioChoice

    func run() throws {
      let query = node.map { "&node=\(ControlClient.escape($0))" } ?? ""
      try ControlClient(connection).lines("/v1/readings?limit=\(limit)\(query)\(radio.query)", Show.reading)
    }
  }
}

enum NodeAsking {
  /// Answers come over the air, perhaps after a login: that takes up to a few minutes.
  static let patience = 260

  @discardableResult
  static func ask(
    _ verb: String, _ node: String, _ connection: Connection, more: (inout JSONWriter) -> Void = { _ in },
    show: (JSONValue) -> [Styled]
  ) throws -> JSONValue {
    let body = JSONWriter.object { json in
      json.field("node", node)
      more(&json)
    }
    let answer = try ControlClient(connection).post("/v1/node/\(verb)", body: body, limit: patience)
    if connection.json { print(answer.text) } else { print(lines: show(answer.value)) }
    return answer.value
  }

  /// `isReadOnly`: a room in which nothing can be posted is what is wanted.
  static func logIn(_ node: String, stored: Bool, isReadOnly: Bool, _ connection: Connection) throws {
    let password = stored ? nil : Asking.hidden("password of \(node): ") ?? ""
    let answer = try ask(
      "login", node, connection,
      more: { json in
        json.field("password", password)
        if isReadOnly { json.field("read_only", true) }
      }
    ) { answer in
      guard answer["read_only"]?.bool == true else {
        return ["logged in to \(node)\(answer["admin"]?.bool == true ? " as admin" : "")"]
      }
      let kept = isReadOnly || stored || password == "" ? "" : ". It is not kept; --read-only keeps it, to read"
      let meaning = "posts will be ignored. That is what it says to a wrong password, too"
      return ["\(node) lets us in read only: \(meaning)\(kept)"]
    }
    if answer["read_only"]?.bool == true, !isReadOnly, password != "" { throw ExitCode(EX_NOPERM) }
  }
}

enum Asking {
  static func done(_ target: String, _ body: [UInt8], _ words: String, _ connection: Connection) throws {
    let answer = try ControlClient(connection).post(target, body: body)
    print(connection.json ? answer.text : words)
  }

  /// Typed in without an echo, or the first line of standard input.
  static func hidden(_ prompt: String) -> String? {
    guard isatty(0) != 0 else { return readLine() }
    return getpass(Visible.line(prompt)).map { String(cString: $0) }
  }
}

enum Hexadecimal {
  static func string(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}
