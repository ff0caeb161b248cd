// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import JSON

/// Aliases, notes and tags of nodes. The gateway and the hub share them, and both may edit.
extension NodeCommand {
  struct Alias: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Set a node's alias; without ALIAS, remove it.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "1 to 64 bytes.") var alias: String?

    func run() throws { try NodeCommand.note("alias", node, alias.map { .string($0) }, connection) }
  }

  struct Note: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Set a node's note; without TEXT, remove it.")
    @OptionGroup var connection: Connection
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "1 to 1000 bytes.") var text: String?

    func run() throws { try NodeCommand.note("note", node, text.map { .string($0) }, connection) }
  }

  struct Tag: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Replace a node's tags; without TAGS, remove them.")
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
    let done = value == nil ? "removed" : "set"
    try Asking.done("/v1/node/\(field)", body, "\(field) of \(node): \(done)", connection)
  }
}

struct DocumentsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "documents", abstract: "Manage documents: notes of nodes and channels, and remote settings.",
    discussion: "Documents are edited on the gateway and on the hub; the last writer wins. See docs/documents.md.",
    subcommands: [List.self, Set.self, Delete.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List documents, all or by key prefix.")
    @OptionGroup var connection: Connection
    @Argument(help: "A key prefix, such as node/ or settings/.") var prefix = ""

    func run() throws {
      let client = ControlClient(connection)
      let target = "/v1/documents?prefix=\(ControlClient.escape(prefix))"
      var page: String? = ""
      while let after = page {
        let answer = try client.get(target + (after.isEmpty ? "" : "&after=\(ControlClient.escape(after))"))
        if connection.json { return print(answer.text) }
        for document in answer.value[Shape.Documents().documents] {
          var value = JSONWriter()
          value.value(document[Shape.Document().value] ?? .null)
          print(Show.clean("\(document[Shape.Document().key] ?? "?")  \(value.string)"))
        }
        page = answer.value[Shape.Documents().next]
      }
    }
  }

  struct Set: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Write a document.")
    @OptionGroup var connection: Connection
    @Argument(help: "The document's key.") var key: String
    @Argument(help: "A JSON value; anything else is stored as a string.") var value: String

    func run() throws {
      // `try?`: anything that is not JSON is a string.
      let given = (try? JSONValue(parsing: value)) ?? .string(value)
      let body = JSONWriter.object { json in
        json.field("key", key)
        json.field("value", given)
      }
      try Asking.done("/v1/documents", body, "stored \(key)", connection)
    }
  }

  struct Delete: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Delete a document.")
    @OptionGroup var connection: Connection
    @Argument(help: "The document's key.") var key: String

    func run() throws {
      try Asking.done("/v1/documents", JSONWriter.object { $0.field("key", key) }, "deleted \(key)", connection)
    }
  }
}

extension ChannelCommand {
  struct Relay: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Exchange a channel's messages with other gateways through the hub: on, off, or as configured.",
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
