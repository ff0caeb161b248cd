// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import Release
import UntrustedText

/// `meshpost`: the operator's command line.
@main
struct Meshpost: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost", abstract: "Inspect and control a Meshpost gateway.",
    discussion: """
      Talks to the daemon's control socket. The global options (--host, --socket, --json, --utc) may also precede the \
      command: meshpost --host ssh://pi@hilltop status. Exit codes follow sysexits.h.
      """, version: Release.version,
    groupedSubcommands: [
      CommandGroup(
        name: "Setup and overview",
        subcommands: [SetupCommand.self, RunCommand.self, OverviewCommand.self, DoctorCommand.self]),
      CommandGroup(
        name: "Message",
        subcommands: [
          MessagesCommand.self, ConversationsCommand.self, SendCommand.self, ChatCommand.self, SearchCommand.self,
          ReactCommand.self, SentCommand.self, RetryCommand.self, CancelCommand.self, RoomCommand.self,
          LevelCommand.self, BlockCommand.self, DeleteCommand.self,
        ]),
      CommandGroup(
        name: "Mesh",
        subcommands: [
          ContactsCommand.self, ContactCommand.self, ChannelsCommand.self, ChannelCommand.self, NodeCommand.self,
        ]),
      CommandGroup(
        name: "Gateway and radio",
        subcommands: [
          StatusCommand.self, TopCommand.self, AirtimeCommand.self, WebCommand.self, RadioCommand.self,
          SyncCommand.self,
          UpstreamCommand.self, AlertsCommand.self, JournalCommand.self, DocumentsCommand.self,
        ]),
      CommandGroup(
        name: "Export and backup",
        subcommands: [
          ExportCommand.self, MapCommand.self, ChartCommand.self, BackupCommand.self, CaptureCommand.self,
          ReportCommand.self,
        ]),
      CommandGroup(name: "Other", subcommands: [ConnectCommand.self, GenerateCommand.self]),
    ], defaultSubcommand: OverviewCommand.self)

  static func main() {
    let given = Array(CommandLine.arguments.dropFirst())
    if let script = Completing.script(given) { return Console.page(script) }
    if let broken = TypedText.brokenArgument() { leave(broken) }
    let typed = TypedCommand(given)
    if let remedy = typed.helpRemedy ?? typed.dashRemedy { leave(Failure.say(remedy, EX_USAGE)) }
    var command: any ParsableCommand
    do {
      command = try parsed(typed)
    } catch {
      if exitCode(for: error) == .validationFailure, let remedy = typed.remedy ?? typed.hostRemedy {
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

  /// The option of a number below zero says its range, which the parser does not.
  private static func parsed(_ typed: TypedCommand) throws -> any ParsableCommand {
    do {
      return try parseAsRoot(typed.arguments)
    } catch {
      guard let joined = typed.joined(fullMessage(for: error)) else { throw error }
      return try parseAsRoot(joined)
    }
  }

  /// Prints the message of an error, or the requested help, and exits.
  private static func leave(_ error: any Error) -> Never {
    if let broken = error as? BrokenText { leave(Failure.say("\(broken)", EX_DATAERR)) }
    let (code, message) = (exitCode(for: error), fullMessage(for: error))
    if !message.isEmpty { code.isSuccess ? Console.page(message) : Console.errorPage(message) }
    exit(withError: code)
  }
}

struct Connection: ParsableArguments {
  @Option(help: "The daemon's control socket (or $MESHPOST_SOCKET).")
  var socket = getenv("MESHPOST_SOCKET").map { String(cString: $0) } ?? Self.usualSocket

  /// The socket of the package's gateway.
  static let systemSocket = "/run/meshpost/control.sock"

  /// The system's socket if there is one, otherwise the socket of `meshpost run`.
  private static var usualSocket: String {
    access(systemSocket, F_OK) == 0 ? systemSocket : RunCommand.Places.runningSocket ?? systemSocket
  }

  @Option(
    help: ArgumentHelp(
      "Use a gateway on another machine over ssh (or $MESHPOST_HOST): ssh://[user@]host[:port].", valueName: "url"))
  var host: String?

  /// The gateway's machine; `nil` or empty: this machine.
  var place: String? {
    guard let host else { return Self.hostOfEnvironment }
    return host.isEmpty ? nil : host
  }

  /// $MESHPOST_HOST; `nil`: it is not set, or empty.
  static var hostOfEnvironment: String? {
    getenv("MESHPOST_HOST").map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
  }
  var isHere: Bool { place == nil }

  @Flag(help: "Print the JSON of the control socket.") var json = false
  @Flag(help: "Show times in UTC instead of local time.") var utc = false
}

extension Connection {
  /// This machine's gateway, regardless of $MESHPOST_HOST; without `socket`, the default one.
  static func here(_ socket: String? = nil) -> Connection? {
    // `try?`: these arguments are always valid.
    try? parse(["--host", ""] + (socket.map { ["--socket", $0] } ?? []))
  }

  func validate() throws {
    guard let place, SSHAddress(place) == nil else { return }
    throw ValidationError("--host: \(place) is not of the form ssh://[user@]host[:port]")
  }
}

struct StatusCommand: ExchangeCommand {
  static let configuration = CommandConfiguration(commandName: "status", abstract: "Show the gateway's status.")
  @OptionGroup var connection: Connection
  var exchange: Exchange { .get("/v1/status", Show.status) }
}

struct ContactsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "contacts", abstract: "List known nodes.")
  @OptionGroup var connection: Connection
  @Flag(help: "Only nodes in the radio's contact table.") var onRadio = false
  @OptionGroup var radio: RadioChoice

  func run() throws {
    let target = radio.target("/v1/contacts?on_radio=\(onRadio ? 1 : 0)")
    try ControlClient(connection).lines(target, Show.contact).tell("nodes", radio, connection)
  }
}

struct ChannelsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "channels", abstract: "List the radio's channels.")
  @OptionGroup var connection: Connection

  func run() throws { try ControlClient(connection).lines("/v1/channels", Show.channel) }
}

struct JournalCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "journal", abstract: "List the journal: the events that are forwarded, in order.")
  @OptionGroup var connection: Connection
  @Option(help: "Maximum number of events.") var limit = 20
  @Option(help: "Only events after this sequence number.") var after: Int64?
  @Flag(help: "Keep printing new events.") var follow = false

  func validate() throws { try RowLimit.check(limit, allowsNone: follow) }

  func run() throws {
    let parameters: KeyValuePairs = ["after": after.map { "\($0)" }, "follow": follow ? "1" : nil]
    try ControlClient(connection).lines("/v1/journal?limit=\(limit)".with(parameters), Show.event)
  }
}

struct SyncCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "sync", abstract: "Show the sync state of the radio, or resync the radio.")
  @OptionGroup var connection: Connection
  @Flag(help: "Sync now.") var now = false
  @Flag(help: "Sync now, including the whole contact list.") var full = false
  @Flag(help: "Keep printing changes.") var follow = false

  func run() throws {
    let client = ControlClient(connection)
    if now || full { _ = try client.post("/v1/sync\(full ? "?full=1" : "")") }
    if follow {
      try client.lines("/v1/sync?follow=1", Show.syncLine)
    } else {
      try client.carryOut(.get("/v1/sync", Show.sync))
    }
  }
}
