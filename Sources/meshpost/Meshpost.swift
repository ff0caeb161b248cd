// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import Release

/// `meshpost`: what an operator does.
@main
struct Meshpost: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost", abstract: "Look at, and steer, a Meshpost gateway.",
    discussion: """
      Talks to the daemon's control socket. Options that every command has (--host, --socket, --json, --utc) may stand before \
      the command, too: meshpost --host ssh://pi@hilltop status. Exit codes are those of sysexits.h.
      """, version: Release.version,
    groupedSubcommands: [
      CommandGroup(
        name: "First", subcommands: [SetupCommand.self, RunCommand.self, OverviewCommand.self, DoctorCommand.self]),
      CommandGroup(
        name: "Message",
        subcommands: [
          MessagesCommand.self, SendCommand.self, ChatCommand.self, SearchCommand.self, ReactCommand.self,
          OutgoingCommand.self, RetryCommand.self, CancelCommand.self, RoomCommand.self,
        ]),
      CommandGroup(
        name: "Mesh",
        subcommands: [
          ContactsCommand.self, ContactCommand.self, ChannelsCommand.self, ChannelCommand.self, NodeCommand.self,
        ]),
      CommandGroup(
        name: "Gateway and radio",
        subcommands: [
          StatusCommand.self, TopCommand.self, RadioCommand.self, SyncCommand.self, UpstreamCommand.self,
          OutboxCommand.self, JournalCommand.self, DocumentsCommand.self,
        ]),
      CommandGroup(
        name: "File and picture",
        subcommands: [
          ExportCommand.self, MapCommand.self, ChartCommand.self, BackupCommand.self, CaptureCommand.self,
          ReportCommand.self,
        ]),
      CommandGroup(name: "Program", subcommands: [ConnectCommand.self, GenerateCommand.self]),
    ], defaultSubcommand: OverviewCommand.self)

  static func main() {
    let given = Array(CommandLine.arguments.dropFirst())
    if let script = Completing.script(given) { return Console.page(script) }
    let typed = TypedCommand(given)
    var command: any ParsableCommand
    do {
      command = try parseAsRoot(typed.arguments)
    } catch {
      if exitCode(for: error) == .validationFailure, let remedy = typed.remedy {
        leave(Failure.say(remedy, EX_USAGE))
      }
      leave(error)
    }
    do {
      try command.run()
    } catch {
      leave(error)
    }
  }

  /// Says what is to be said of it, and ends the program.
  private static func leave(_ error: any Error) -> Never {
    let (code, words) = (exitCode(for: error), fullMessage(for: error))
    if !words.isEmpty { code.isSuccess ? Console.page(words) : Console.errorPage(words) }
    exit(withError: code)
  }
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

  /// Where the gateway is; `nil`: on this machine, which an empty text says, too.
  var place: String? {
    (host ?? getenv("MESHPOST_HOST").map { String(cString: $0) }).flatMap { $0.isEmpty ? nil : $0 }
  }
  var isHere: Bool { place == nil }

  @Flag(help: "Print JSON as the control socket gives it.") var json = false
  @Flag(help: "Show times in UTC instead of local time.") var utc = false
}

extension Connection {
  /// This machine's gateway, whatever $MESHPOST_HOST says; without a socket, the one that is usual.
  static func here(_ socket: String? = nil) -> Connection? {
    // `try?`: there is nothing wrong with these arguments.
    try? parse(["--host", ""] + (socket.map { ["--socket", $0] } ?? []))
  }

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
  @OptionGroup var radio: RadioChoice

  func run() throws {
    let target = "/v1/contacts?on_radio=\(onRadio ? 1 : 0)\(radio.query)"
    try ControlClient(connection).lines(target, Show.contact).tell("nodes", radio, connection)
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
    if follow {
      try client.lines("/v1/sync?follow=1", Show.syncLine)
      return
    }
    let state = try client.get("/v1/sync")
    if connection.json { return print(state.text) }
    Show.sync(state.value)
  }
}
