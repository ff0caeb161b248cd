// SPDX-License-Identifier: MIT

import ArgumentParser
import Glibc
import Release

/// `meshpost`: what an operator does.
@main
struct Meshpost: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost", abstract: "Look at, and steer, a Meshpost gateway.",
    discussion: "Talks to the daemon's control socket. Exit codes are those of sysexits.h.", version: Release.version,
    subcommands: [
      SetupCommand.self, RunCommand.self,
      OverviewCommand.self, StatusCommand.self, TopCommand.self, ChatCommand.self, SendCommand.self, ReactCommand.self,
      OutgoingCommand.self,
      RetryCommand.self,
      CancelCommand.self, MessagesCommand.self, SearchCommand.self, ExportCommand.self, MapCommand.self,
      ChartCommand.self,
      ContactsCommand.self, ContactCommand.self, ChannelsCommand.self,
      ChannelCommand.self, RoomCommand.self, NodeCommand.self, JournalCommand.self, OutboxCommand.self,
      UpstreamCommand.self, DocumentsCommand.self, SyncCommand.self, RadioCommand.self, DoctorCommand.self,
      ReportCommand.self,
      CaptureCommand.self, BackupCommand.self, ConnectCommand.self, GenerateCommand.self,
    ], defaultSubcommand: OverviewCommand.self)
}

struct Connection: ParsableArguments {
  @Option(help: "The daemon's control socket (or $MESHPOST_SOCKET).")
  var socket = getenv("MESHPOST_SOCKET").map { String(cString: $0) } ?? Self.usualSocket

  /// The system's; without one, that of `meshpost run`.
  private static var usualSocket: String {
    let system = "/run/meshpost/control.sock"
    return access(system, F_OK) == 0 ? system : RunCommand.Places.runningSocket ?? system
  }

  @Option(
    help: ArgumentHelp(
      "Another machine's gateway, through ssh (or $MESHPOST_HOST): ssh://[user@]host[:port].", valueName: "url"))
  var host: String?

  /// Where the gateway is; `nil`: on this machine.
  var place: String? { host ?? getenv("MESHPOST_HOST").map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 } }
  var isHere: Bool { place == nil }

  @Flag(help: "Print JSON as the control socket gives it.") var json = false
  @Flag(help: "Show times in UTC instead of local time.") var utc = false
}

extension Connection {
  func validate() throws {
    guard let place, SSHAddress(place) == nil else { return }
    throw ValidationError("--host: \(place) is no ssh://[user@]host[:port]")
  }
}

struct StatusCommand: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "status", abstract: "How the gateway is.")
  @OptionGroup var connection: Connection

  func run() throws {
    let status = try ControlClient(connection).get("/v1/status")
    if connection.json { return print(status.text) }
    Show.status(status.value)
  }
}

struct ContactsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "contacts", abstract: "Nodes that are known.")
  @OptionGroup var connection: Connection
  @Flag(help: "Only those in the radio's table.") var onRadio = false

  func run() throws {
    try ControlClient(connection).lines("/v1/contacts\(onRadio ? "?on_radio=1" : "")", Show.contact)
  }
}

struct ChannelsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "channels", abstract: "The radio's channels.")
  @OptionGroup var connection: Connection

  func run() throws { try ControlClient(connection).lines("/v1/channels", Show.channel) }
}

struct JournalCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "journal", abstract: "Everything that is forwarded, in order.")
  @OptionGroup var connection: Connection
  @Option(help: "How many.") var limit = 20
  @Option(help: "Those after this seq.") var after: Int64?
  @Flag(help: "Go on with what comes.") var follow = false

  func run() throws {
    var target = "/v1/journal?limit=\(limit)"
    if let after { target += "&after=\(after)" }
    if follow { target += "&follow=1" }
    try ControlClient(connection).lines(target, Show.event)
  }
}

struct OutboxCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "outbox", abstract: "What upstreams have not had, and what they refused.",
    subcommands: [List.self, Dead.self, Retry.self, Drop.self, Resume.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Upstreams and dead letters.")
    @OptionGroup var connection: Connection

    func run() throws {
      let outbox = try ControlClient(connection).get("/v1/outbox")
      if connection.json { return print(outbox.text) }
      Show.outbox(outbox.value)
    }
  }

  struct Dead: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Dead letters: what upstreams refused, and their words.")
    @OptionGroup var connection: Connection

    func run() throws {
      let outbox = try ControlClient(connection).get("/v1/outbox")
      if connection.json { return print(outbox.text) }
      for letter in outbox.value["dead_letters"]?.array ?? [] { Show.deadLetter(letter) }
    }
  }

  struct Retry: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Send dead letters again.")
    @OptionGroup var connection: Connection
    @Argument(help: "Of this upstream only.", completion: Completing.upstreams) var upstream: String?

    func run() throws {
      let query = upstream.map { "?upstream=\(ControlClient.escape($0))" } ?? ""
      let answer = try ControlClient(connection).post("/v1/outbox/retry\(query)")
      print(connection.json ? answer.text : "\(answer.value["retried"]?.integer ?? 0) dead letters are sent again")
    }
  }

  struct Drop: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Give up an upstream's dead letters.")
    @OptionGroup var connection: Connection
    @Argument(help: "Of this upstream.", completion: Completing.upstreams) var upstream: String

    func run() throws {
      let target = "/v1/outbox/drop?upstream=\(ControlClient.escape(upstream))"
      let answer = try ControlClient(connection).post(target)
      print(connection.json ? answer.text : "\(answer.value["dropped"]?.integer ?? 0) dead letters are given up")
    }
  }

  struct Resume: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Let waiting and stopped upstreams try at once, with their token files read anew.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).post("/v1/outbox/resume")
      print(connection.json ? answer.text : "upstreams try now; see `meshpost status`")
    }
  }
}

struct SyncCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "sync", abstract: "How far the gateway is with the radio; start over if asked.")
  @OptionGroup var connection: Connection
  @Flag(help: "Sync now.") var now = false
  @Flag(help: "Sync now, with the whole contact list.") var full = false
  @Flag(help: "Go on with what changes.") var follow = false

  func run() throws {
    let client = ControlClient(connection)
    if now || full { _ = try client.post("/v1/sync\(full ? "?full=1" : "")") }
    if follow { return try client.lines("/v1/sync?follow=1", Show.syncLine) }
    let state = try client.get("/v1/sync")
    if connection.json { return print(state.text) }
    Show.sync(state.value)
  }
}
