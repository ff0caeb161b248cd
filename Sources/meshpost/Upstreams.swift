// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import JSON

struct UpstreamCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "upstream", abstract: "Look at servers upstream, add and remove them, pause them, try them.",
    subcommands: [List.self, Add.self, Remove.self, Pause.self, Resume.self, Test.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "What each has had, and what it waits for.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/outbox")
      if connection.json { return print(answer.text) }
      for upstream in answer.value["upstreams"]?.array ?? [] { Show.upstream(upstream) }
    }
  }

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Forward to one more server, from now on, or from the beginning of the journal.",
      discussion: """
        It is kept beside the database, and stays until it is removed. Keys are those of [[upstream]] in \
        deploy/meshpostd.toml. Secrets are named by file: the daemon must be able to read it.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "A name of its own.") var name: String
    @Argument(help: "Its address.") var url: String
    @Option(help: "hub, webhook or mqtt; without it mqtt or hub, as the address says.") var kind: String?
    @Option(help: "The file that holds a bearer token.") var tokenFile: String?
    @Option(help: "now, or start: with what the journal has already.") var from = "now"
    @Option(help: "Another key and its value: JSON, or else a text.") var set: [String] = []

    func run() throws {
      let isBroker = ["mqtt:", "mqtts:", "ws:", "wss:"].contains { url.hasPrefix($0) }
      var fields: [(String, JSONValue)] = [
        ("name", .string(name)), ("kind", .string(kind ?? (isBroker ? "mqtt" : "hub"))), ("url", .string(url)),
        ("from", .string(from)),
      ]
      if let tokenFile { fields.append(("token_file", .string(tokenFile))) }
      for setting in set {
        let parts = setting.split(separator: "=", maxSplits: 1).map(String.init)
        guard parts.count == 2 else { throw ValidationError("--set: key=value is wanted") }
        // `try?`: what is no JSON is a text.
        fields.append((parts[0], (try? JSONValue(parsing: parts[1])) ?? .string(parts[1])))
      }
      var body = JSONWriter()
      body.value(.object(fields))
      let answer = try ControlClient(connection).post("/v1/upstreams/add", body: body.bytes)
      for words in answer.value["warnings"]?.array ?? [] {
        FileHandle.standardError.write(Data("warning: \(words.string ?? "")\n".utf8))
      }
      print(connection.json ? answer.text : "\(name) is added; see `meshpost upstream list`")
    }
  }

  struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Forward nothing more to a server that was added so; what was kept for it is freed.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws {
      let target = "/v1/upstreams/remove?upstream=\(ControlClient.escape(upstream))"
      try Asking.done(target, [], "\(upstream) is removed", connection)
    }
  }

  struct Pause: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Send it nothing until it is resumed, also after a restart. Nothing is lost.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws { try UpstreamCommand.act("pause", upstream, connection) }
  }

  struct Resume: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Go on, and try at once.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws { try UpstreamCommand.act("resume", upstream, connection) }
  }

  struct Test: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Is it there, and does it take us? A webhook gets an event of kind `test`.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws {
      let target = "/v1/upstreams/test?upstream=\(ControlClient.escape(upstream))"
      let answer = try ControlClient(connection).post(target, limit: 660)
      print(connection.json ? answer.text : "\(upstream) is there, and takes us")
    }
  }

  fileprivate static func act(_ verb: String, _ upstream: String, _ connection: Connection) throws {
    let target = "/v1/upstreams/\(verb)?upstream=\(ControlClient.escape(upstream))"
    let answer = try ControlClient(connection).post(target)
    if connection.json { return print(answer.text) }
    Show.upstream(answer.value)
  }
}
