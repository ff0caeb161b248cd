// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import JSON

/// Aliases, notes and tags of nodes. The gateway and the hub share them, and both may edit.
extension NodeCommand {
  struct Alias: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Set or remove a node's alias.")
    @OptionGroup var connection: Connection
    @OptionGroup var removal: Removal
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "1 to 64 bytes.") var alias: String?
    func validate() throws { try removal.check("ALIAS", isGiven: alias != nil) }
    var exchange: Exchange { .noting("alias", node, alias.map { .string($0) }) }
  }

  struct Note: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Set or remove a node's note.")
    @OptionGroup var connection: Connection
    @OptionGroup var removal: Removal
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "1 to 1000 bytes.") var text: String?
    func validate() throws { try removal.check("TEXT", isGiven: text != nil) }
    var exchange: Exchange { .noting("note", node, text.map { .string($0) }) }
  }

  struct Tag: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Replace or remove a node's tags.")
    @OptionGroup var connection: Connection
    @OptionGroup var removal: Removal
    @Argument(help: "The node.", completion: Completing.nodes) var node: String
    @Argument(help: "At most 16, of 1 to 32 bytes each.") var tags: [String] = []
    func validate() throws {
      try removal.check("TAGS", isGiven: !tags.isEmpty)
      try GivenOnce.check(tags, "TAGS")
    }
    var exchange: Exchange { .noting("tags", node, tags.isEmpty ? nil : .array(tags.map { .string($0) })) }
  }
}

/// Somebody who only looks, or whose variable is empty, removes nothing.
struct Removal: ParsableArguments {
  @Flag(name: .customLong("remove"), help: "Remove what is there.") var isWanted = false

  func check(_ name: String, isGiven: Bool) throws {
    guard isGiven == isWanted else { return }
    throw ValidationError(isGiven ? "Give \(name) or --remove, not both." : "Give \(name), or --remove.")
  }
}

extension Exchange {
  fileprivate static func noting(_ field: String, _ node: String, _ value: JSONValue?) -> Exchange {
    let done = "\(field) of \(node): \(value == nil ? "removed" : "set")"
    return .post("/v1/node/\(field)", body: .object(["node": .string(node), "value": value]), done: done)
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
    /// A gateway has ten, of 1,000 documents.
    private static let mostPages = 100

    func run() throws {
      let client = ControlClient(connection)
      var (documents, page): ([JSONValue], String?) = ([], "")
      for _ in 0..<Self.mostPages where page != nil {
        let parameters: KeyValuePairs = ["prefix": prefix, "after": page == "" ? nil : page]
        let answer = try client.get("/v1/documents".with(parameters)).value
        documents += answer[Shape.Documents().documents]
        page = answer[Shape.Documents().next]
      }
      if connection.json { return print(json: .object([("documents", .array(documents))])) }
      if documents.isEmpty { print("there is no document") }
      for document in documents {
        let value = document[Shape.Document().value] ?? .null
        print(Show.clean("\(document[Shape.Document().key] ?? "?")  \(value.text)"))
      }
    }
  }

  struct Set: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Write a document.")
    @OptionGroup var connection: Connection
    @Argument(help: "The document's key.") var key: String
    @Argument(help: "A JSON value; anything else is stored as a string.") var value: String

    var exchange: Exchange {
      // `try?`: anything that is not JSON is a string.
      let given = (try? JSONValue(parsing: value)) ?? .string(value)
      let body: [UInt8] = .object(["key": .string(key), "value": given])
      return .post("/v1/documents", body: body, done: "\(given == .null ? "deleted" : "stored") \(key)")
    }
  }

  struct Delete: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Delete a document.")
    @OptionGroup var connection: Connection
    @Argument(help: "The document's key.") var key: String

    var exchange: Exchange {
      .post("/v1/documents", body: JSONWriter.object { $0.field("key", key) }, done: "deleted \(key)")
    }
  }
}

extension ChannelCommand {
  struct Relay: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Exchange a channel's messages with other gateways through the hub: on, off, or as configured.",
      discussion: "Needs relay.messages_from_hub in the configuration.")

    enum Choice: String, ExpressibleByArgument { case on, off, configured }

    @OptionGroup var connection: Connection
    @Argument(help: "The channel.") var channel: String
    @Argument(help: "on, off or configured.") var choice: Choice

    var exchange: Exchange {
      let value: JSONValue? = choice == .configured ? nil : .bool(choice == .on)
      let body: [UInt8] = .object(["channel": .string(channel), "value": value])
      return .post("/v1/channels/relay", body: body, done: "\(channel): \(choice.rawValue)")
    }
  }
}
