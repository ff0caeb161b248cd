// SPDX-License-Identifier: MIT

import ArgumentParser
import Companion
import Console
import ControlShapes
import Glibc
import JSON
import UntrustedText

struct ContactCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "contact", abstract: "Manage the radio's contacts: add, remove, exchange cards, set paths.",
    subcommands: [
      Add.self, Remove.self, Export.self, Import.self, Share.self, Favourite.self, Commands.self,
      PathCommand.self,
    ])

  struct Add: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Add a node to the radio's contacts, by name if it was heard, or by key.")
    @OptionGroup var connection: Connection
    @Argument(help: "A known node, or a key of 64 hex digits.") var node: String
    @Option(help: "The name, with a key.") var name: String?
    @Option(help: "The type, with a key: chat, repeater, room or sensor.") var type = "chat"

    var exchange: Exchange {
      let body = JSONWriter.object { json in
        guard let name else { return json.field("contact", node) }
        json.field("key", node)
        json.field("name", name)
        json.field("type", type)
      }
      return .post("/v1/contacts/add", body: body, done: "added \(node) to the radio's contacts")
    }
  }

  struct Remove: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Remove a node from the radio's contacts.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    var exchange: Exchange {
      .post("/v1/contacts/remove".with(["contact": node]), done: "removed \(node) from the radio")
    }
  }

  struct Export: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Print a node's card as a link; without a node, the radio's own.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String?

    var exchange: Exchange {
      .get("/v1/contacts/export".with(["contact": node])) { print($0[Shape.Link().link] ?? "") }
    }
  }

  struct Import: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Import a node from a meshcore:// link.")
    @OptionGroup var connection: Connection
    @Argument(help: "The link.") var link: String

    var exchange: Exchange {
      .post("/v1/contacts/import", body: JSONWriter.object { $0.field("link", link) }) {
        print("added \($0[Shape.Key().key] ?? "?") to the radio's contacts")
      }
    }
  }

  struct Share: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Share a node's advert with direct neighbours.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String

    var exchange: Exchange { .post("/v1/contacts/share".with(["contact": node]), done: "sent the advert of \(node)") }
  }

  struct Favourite: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Mark a node as a favourite, or not: a full radio never drops favourites.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "on or off.") var state: State = .on

    enum State: String, ExpressibleByArgument, CaseIterable { case on, off }

    var exchange: Exchange {
      .post(
        "/v1/contacts/favourite", body: .object(["contact": .string(node), "favourite": .bool(state == .on)]),
        done: "\(node) is \(state == .on ? "a favourite" : "no favourite")")
    }
  }

  struct Commands: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Let a node run any command on the radio over the mesh, or not (firmware from 1.18 on).",
      discussion: "The person who has the node can then reboot the radio, change its settings and read its secrets.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "on or off.") var state: Favourite.State

    var exchange: Exchange {
      .post(
        "/v1/contacts/commands", body: .object(["contact": .string(node), "may_command": .bool(state == .on)]),
        done: "\(node) \(state == .on ? "may run any command" : "may run no commands") on the radio")
    }
  }

  struct PathCommand: ExchangeCommand {
    static let configuration = CommandConfiguration(
      commandName: "path", abstract: "Show, set, reset or discover the path to a node.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Option(help: "Set the path: hex, a prefix of each repeater's key.") var set: String?
    @Option(help: "Length of each key prefix in --set, in bytes, 1 to 3.") var hashBytes = 1
    @Flag(help: "Forget the path: the next message is flooded.") var reset = false
    @Flag(help: "Ask the node for a path.") var discover = false
    @Flag(help: "Show the way of the node's last advert to this radio.") var advert = false

    func validate() throws {
      let isInvalid = !(1...3).contains(hashBytes) || set == nil && hashBytes != 1
      if isInvalid { throw ValidationError("--hash-bytes: 1 to 3, with --set") }
    }

    var exchange: Exchange {
      let body: [UInt8] = .object([
        "contact": .string(node), "path": set.map(JSONValue.string),
        "hash_bytes": set == nil ? nil : .integer(Int64(hashBytes)), "reset": .bool(reset), "discover": .bool(discover),
        "advert": .bool(advert),
      ])
      return .post("/v1/contacts/path", body: body, limit: 90) { print(Show.path($0)) }
    }
  }
}

struct ChannelCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "channel", abstract: "Join, leave and configure channels; send data of programs.",
    subcommands: [Add.self, Remove.self, RegionCommand.self, Relay.self, DataCommand.self])

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Join a channel: #name, a name with its secret, or a meshcore:// link.",
      discussion: "Names are case sensitive: #Test and #test are two channels.")
    @OptionGroup var connection: Connection
    @Argument(help: "#name, a name, or a link.") var channel: String
    @Option(help: "A private channel's secret, 32 hex digits; `-` prompts for it.") var secret: String?
    @Option(help: "The region for messages to the channel; `*` is none. Default: the link's, else the radio's default.")
    var region: String?
    @Flag(help: "Create a private channel, and print its link once.") var new = false

    func validate() throws {
      guard new, secret != nil || channel.begins(with: "meshcore:") else { return }
      throw ValidationError("--new makes a secret of its own: give a name alone")
    }

    func run() throws {
      let fresh = new ? (0..<16).map { _ in UInt8.random(in: .min ... .max) } : nil
      let key = try fresh.map { Hex.string($0) } ?? (secret == "-" ? HiddenPrompt.line("secret: ") : secret)
      let body: [UInt8] = .object([
        "channel": .string(channel), "secret": key.map(JSONValue.string), "region": region.map(JSONValue.string),
      ])
      let answer = try ControlClient(connection).post("/v1/channels/add", body: body)
      let scope = answer.value[Shape.Channel().region]
      let link = fresh.map {
        "meshcore://channel/add".with(["name": channel, "secret": Hex.string($0), "region_scope": scope])
      }
      guard !connection.json else {
        let fields = (answer.value.fields ?? []) + (link.map { [("link", .string($0))] } ?? [])
        return print(json: .object(fields))
      }
      let place = scope.map { "; messages go to \(Show.region($0))" } ?? ""
      print("channel \(channel) is in slot \(answer.value[Shape.Channel().slot] ?? 0)\(place)")
      if let link { print(link) }
    }
  }

  struct RegionCommand: ExchangeCommand {
    static let configuration = CommandConfiguration(
      commandName: "region", abstract: "Set the region for messages to a channel.",
      discussion: """
        Repeaters forward messages of the regions that they carry; many do not forward messages without a region. To set the \
        radio's default: meshpost radio set flood-scope=NAME.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The channel.", completion: Completing.channels) var channel: String
    @Argument(help: "A region's name; `*` for none; `default` for the radio's default.") var region: String

    var exchange: Exchange {
      let wanted: JSONValue? = region == "default" ? nil : .string(region)
      return .post("/v1/channels/region", body: .object(["channel": .string(channel), "region": wanted])) { answer in
        let place = answer[Shape.Channel().region].map(Show.region) ?? "the radio's default region"
        print("messages to \(channel) go to \(place)")
      }
    }
  }

  struct Remove: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Leave a channel and free its slot.")
    @OptionGroup var connection: Connection
    @Argument(help: "The channel's name.", completion: Completing.channels) var channel: String

    var exchange: Exchange { .post("/v1/channels/remove".with(["channel": channel]), done: "removed \(channel)") }
  }
}

struct NodeCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "node", abstract: "Query and administer repeaters, rooms, sensors and companions.",
    discussion: Examples.of("node"),
    subcommands: [
      Login.self, Logout.self, Status.self, TelemetryCommand.self, NeighboursCommand.self, NodeRegion.self,
      NodeRegions.self, Trace.self, CLI.self, Clock.self, Snapshot.self, Diff.self, Access.self, Readings.self,
      Alias.self, Note.self, Tag.self,
    ])

  struct Login: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Log in. Prompts for the password (or reads it from standard input), and stores it for later requests.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Flag(help: "Use the stored password.") var stored = false
    @Flag(help: "For a room: accept read-only access, and keep the password for it.") var readOnly = false

    func run() throws { try NodeAsking.logIn(node, stored: stored, isReadOnly: readOnly, connection) }
  }

  struct Logout: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Forget a node's stored password.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    var exchange: Exchange { .asking("logout", node) { _ in ["password removed"] } }
  }

  struct Status: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Show the status of a repeater or room.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    var exchange: Exchange { .asking("status", node, Show.fields) }
  }

  struct TelemetryCommand: ExchangeCommand {
    static let configuration = CommandConfiguration(
      commandName: "telemetry", abstract: "Show a node's telemetry; `self` is the attached radio.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    var exchange: Exchange { .asking("telemetry", node, Show.telemetry) }
  }

  struct NeighboursCommand: ExchangeCommand {
    static let configuration = CommandConfiguration(
      commandName: "neighbours", abstract: "List the repeaters that a repeater hears.", aliases: ["neighbors"])
    @OptionGroup var connection: Connection
    @Argument(help: "The repeater.", completion: Completing.nodes) var node: String
    var exchange: Exchange { .asking("neighbours", node, Show.neighbours) }
  }

  struct Trace: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Measure the signal of each hop to a node and back.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Option(
      help: "A different round trip: hex, a prefix of each repeater's key, ending with one that this radio hears.")
    var path: String?
    var exchange: Exchange { .asking("trace", node, more: { $0.field("path", path) }, Show.trace) }
  }

  struct CLI: ExchangeCommand {
    static let configuration = CommandConfiguration(
      commandName: "cli", abstract: "Run a command on the command line of a repeater, room or sensor, as admin.",
      discussion: "Some commands send no reply (reboot, poweroff): the exit code is then 69.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "The command; after `--`, words may begin with a dash.") var command: [String]

    var exchange: Exchange {
      let text = command.joined(separator: " ")
      return .asking("cli", node, more: { $0.field("command", text) }) { answer in
        let reply = Styled((answer[Shape.Reply().reply] ?? "").lines.joined(separator: " | "))
        return [reply] + (answer[Shape.Reply().warning].map { [Styled($0)] } ?? [])
      }
    }
  }

  struct Clock: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Compare the clock of a repeater, room or sensor with the gateway's, or set it.",
      discussion: """
        Set by the gateway's clock, which has to be synchronised, and never ahead of true time: firmware sets a clock forwards only. \
        The exit code is 75 if the clock is still wrong.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The node; not needed with --clock-is-right alone.", completion: Completing.nodes) var node: String?
    @Flag(help: "Set it, as admin.") var set = false
    @Flag(help: "With --set: start the node anew if its clock is ahead (clkreboot).") var reboot = false
    @Flag(
      help:
        "Confirm that the gateway's own clock is right after it was set: the gateway judges and sets other clocks again."
    )
    var clockIsRight = false

    func validate() throws {
      if node == nil, set || reboot || !clockIsRight { throw ValidationError("expected a node") }
    }

    func run() throws {
      let body = JSONWriter.object { json in
        json.field("node", node)
        if set { json.field("set", true) }
        if reboot { json.field("reboot", true) }
        if clockIsRight { json.field("clock_is_right", true) }
      }
      let row = Shape.NodeClock()
      let answer = try ControlClient(connection).carryOut(
        .post("/v1/node/clock", body: body, limit: 900) { answer in
          if clockIsRight, !set {
            return print("the gateway trusts its own clock: it judges and sets the clocks of nodes again")
          }
          let offset = answer[row.offsetS] ?? 0
          let exact = "within \(answer[row.withinS] ?? 0) s"
          let words = answer[row.result] == "right" || offset == 0 ? "right" : Show.clockOffset(offset)
          let more =
            answer[row.result] == "ahead" ? ". Firmware sets no clock back: --set --reboot starts the node anew" : ""
          print("the clock of \(node ?? "") is \(words), \(exact)\(more)")
        })
      if ["ahead", "wrong"].contains(answer[row.result]) { throw ExitCode(EX_TEMPFAIL) }
    }
  }

  struct Access: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "List who may log in to a repeater or room without a password, as its admin.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    var exchange: Exchange { .asking("access", node, Show.access) }
  }

  struct Readings: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List readings of nodes, newest last.")
    @OptionGroup var connection: Connection
    @Argument(help: "Only this node's readings.", completion: Completing.nodes) var node: String?
    @Option(help: "Maximum number of readings.") var limit = 20
    @OptionGroup var radio: RadioChoice

    func validate() throws { try RowLimit.check(limit) }

    func run() throws {
      let target = radio.target("/v1/readings?limit=\(limit)".with(["node": node]))
      try ControlClient(connection).lines(target, Show.reading)
    }
  }
}

extension Exchange {
  /// A question to a node. Answers come over the air, sometimes after a login of a few minutes.
  static func asking(
    _ verb: String, _ node: String, more: (inout JSONWriter) -> Void = { _ in },
    _ show: @escaping (JSONValue) -> [Styled]
  ) -> Exchange {
    let body = JSONWriter.object { json in
      json.field("node", node)
      more(&json)
    }
    return .post("/v1/node/\(verb)", body: body, limit: 260) { print(lines: show($0)) }
  }
}

enum NodeAsking {
  /// `isReadOnly`: accepts a room that does not allow posts.
  static func logIn(_ node: String, stored: Bool, isReadOnly: Bool, _ connection: Connection) throws {
    let password = try stored ? nil : HiddenPrompt.line("password of \(node): ") ?? ""
    let login = Exchange.asking(
      "login", node,
      more: { json in
        json.field("password", password)
        if isReadOnly { json.field("read_only", true) }
      }
    ) { answer in
      guard answer[Shape.Login().readOnly] == true else {
        return ["logged in to \(node)\(answer[Shape.Login().admin] == true ? " as admin" : "")"]
      }
      let kept = isReadOnly || stored || password == "" ? "" : ". The password is not stored; --read-only stores it"
      let meaning = "posts will be ignored. A room answers the same to a wrong password"
      return ["\(node) allows only reading: \(meaning)\(kept)"]
    }
    let answer = try ControlClient(connection).carryOut(login)
    if answer[Shape.Login().readOnly] == true, !isReadOnly, password != "" { throw ExitCode(EX_NOPERM) }
  }
}
