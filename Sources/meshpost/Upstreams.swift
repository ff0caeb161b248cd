// SPDX-License-Identifier: MIT

import ArgumentParser
import JSON

struct UpstreamCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "upstream", abstract: "Look at servers upstream, pause them, try them.",
    discussion: "They are added and removed in the configuration: see deploy/meshpostd.toml; SIGHUP takes it in.",
    subcommands: [List.self, Pause.self, Resume.self, Test.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "What each has had, and what it waits for.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/outbox")
      if connection.json { return print(answer.text) }
      for upstream in answer.value["upstreams"]?.array ?? [] { Show.upstream(upstream) }
    }
  }

  struct Pause: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Send it nothing until it is resumed, also after a restart. Nothing is lost.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.") var upstream: String

    func run() throws { try UpstreamCommand.act("pause", upstream, connection) }
  }

  struct Resume: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Go on, and try at once.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.") var upstream: String

    func run() throws { try UpstreamCommand.act("resume", upstream, connection) }
  }

  struct Test: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Is it there, and does it take us? A webhook gets an event of kind `test`.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.") var upstream: String

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
