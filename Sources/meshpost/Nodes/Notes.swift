// SPDX-License-Identifier: MIT

import ArgumentParser
import JSON

/// What is noted of nodes: shared with the hub, where both may edit.
extension NodeCommand {
  struct Alias: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Give a node a name of your own; without one, take it away.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "1 to 64 bytes.") var alias: String?

    func run() throws { try NodeCommand.note("alias", node, alias.map { .string($0) }, connection) }
  }

  struct Note: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Note something of a node; without a text, take it away.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "1 to 1000 bytes.") var text: String?

    func run() throws { try NodeCommand.note("note", node, text.map { .string($0) }, connection) }
  }

  struct Tag: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Tag a node; these take the place of what it had. Without any, take them away.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "At most 16, of 1 to 32 bytes each.") var tags: [String] = []

    func run() throws {
      try NodeCommand.note("tags", node, tags.isEmpty ? nil : .array(tags.map { .string($0) }), connection)
    }
  }

  fileprivate static func note(
    _ field: String, _ node: String, _ value: JSONValue?, _ connection: Connection
  ) throws {
    let body = JSONWriter.object { json in
      json.field("node", node)
      if let value { json.field("value", value) }
    }
    let done = value == nil ? "removed" : "noted"
    try Asking.done("/v1/node/\(field)", body, "\(field) of \(node): \(done)", connection)
  }
}

struct DocumentsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "documents", abstract: "What is noted of nodes and channels, and settings from afar.",
    discussion: "They are edited here and at the hub; the last writer wins. See docs/documents.md.",
    subcommands: [List.self, Set.self, Delete.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "All, or those whose key begins so.")
    @OptionGroup var connection: Connection
    @Argument(help: "The beginning of a key, such as node/ or settings/.") var prefix = ""

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/documents?prefix=\(ControlClient.escape(prefix))")
      if connection.json { return print(answer.text) }
      for document in answer.value["documents"]?.array ?? [] {
        var value = JSONWriter()
        value.value(document["value"] ?? .null)
        print(Show.clean("\(document["key"]?.string ?? "?")  \(value.string)"))
      }
    }
  }

  struct Set: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Write one.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its key.") var key: String
    @Argument(help: "JSON; what is none is taken for a text.") var value: String

    func run() throws {
      // `try?`: what is no JSON is a text.
      let given = (try? JSONValue(parsing: value)) ?? .string(value)
      let body = JSONWriter.object { json in
        json.field("key", key)
        json.field("value", given)
      }
      try Asking.done("/v1/documents", body, "\(key) is written", connection)
    }
  }

  struct Delete: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Delete one.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its key.") var key: String

    func run() throws {
      try Asking.done("/v1/documents", JSONWriter.object { $0.field("key", key) }, "\(key) is deleted", connection)
    }
  }
}

extension ChannelCommand {
  struct Relay: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Exchange a channel's messages with other gateways, by the hub: on, off, or as configured.",
      discussion: "Needs relay.messages_from_hub in the configuration.")

    enum Choice: String, ExpressibleByArgument { case on, off, configured }

    @OptionGroup var connection: Connection
    @Argument(help: "The channel.") var channel: String
    @Argument(help: "on, off or configured.") var choice: Choice

    func run() throws {
      let body = JSONWriter.object { json in
        json.field("channel", channel)
        if choice != .configured { json.field("value", choice == .on) }
      }
      try Asking.done("/v1/channels/relay", body, "\(channel): \(choice.rawValue)", connection)
    }
  }
}
