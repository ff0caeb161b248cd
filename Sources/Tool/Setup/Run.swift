// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import JSON
import Transport
import UntrustedText

/// A temporary gateway without configuration and privileges, for a radio on a laptop.
struct RunCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run", abstract: "Run a gateway in the foreground, and show messages as they arrive.",
    discussion: """
      Finds the radio among the serial devices (or uses --link), stores data in ~/.local/state/meshpost, and stops on \
      Ctrl-C. Other commands work with it from another terminal. Uses the configuration in \
      ~/.config/meshpost/meshpostd.toml if it exists. Where the package is installed, its gateway has the radio: use that, \
      or stop it first. For a permanent gateway, use `meshpost setup`.
      """)

  @Option(help: "The radio's link: serial:…, ble:…, tcp:…. Default: the radio on USB.") var link: String?
  @Option(help: "Forward to this server: the URL of a hub or an MQTT broker.") var upstream: String?
  @Option(help: "The file with its bearer token.", completion: .file()) var tokenFile: String?
  @Option(help: "Use this configuration file.", completion: .file()) var config: String?
  @Flag(help: "Do not advertise the radio. By default an advert is sent once to direct neighbours.") var noAdvert =
    false
  @Flag(help: "Show only the gateway's log, not messages.") var quiet = false

  func run() throws {
    if let link { _ = try Self.checked(link) }
    if link == nil, config == nil { try Self.checkSystemGateway() }
    if let host = Connection.hostOfEnvironment {
      Console.error("this gateway runs on this machine; other commands use that of MESHPOST_HOST, \(host)")
    }
    let places = try Places.make()
    let own = config ?? places.ownConfiguration
    if let own, link != nil || upstream != nil || tokenFile != nil || noAdvert {
      throw ValidationError(
        "\(own) is used as it is: --link, --upstream, --token-file and --no-advert would count for nothing")
    }
    let file = try own ?? written(places)
    try check(file)
    if own == nil {
      let isAlone = access(Connection.systemSocket, F_OK) != 0
      print(
        "storing data in \(places.state); other commands "
          + (isAlone ? "find this gateway automatically" : "reach this gateway with --socket \(places.socket)"))
    }
    let gateway = try ChildProgram([ChildProgram.daemon, "--config", file])
    let reader = quiet || own != nil ? nil : follow(places.socket)
    // Blocks the signals only after the start: the child must not ignore them.
    let code = gateway.wait(handing: [SIGINT, SIGTERM, SIGHUP])
    reader?.send(SIGTERM)
    throw ExitCode(code)
  }

  /// The package's gateway uses a radio on USB when it finds one, and two programs cannot share a radio.
  private static func checkSystemGateway() throws {
    let socket = Connection.systemSocket
    let status = Connection.here(socket).flatMap { ControlClient($0).quietly("/v1/status") }
    // A user without access to the socket still sees that the gateway runs.
    guard status != nil || (access(socket, W_OK) != 0 && errno == EACCES) else { return }
    let radio = status?[Shape.Status().radio]?[Shape.LinkState().link] ?? "serial:"
    guard radio.begins(with: "serial:") || radio.begins(with: "auto:") else { return }
    throw Failure.say(
      "the gateway of this machine is running, and has the radio on USB: use it (`meshpost messages --follow`), stop it "
        + "(`sudo systemctl stop meshpost`), or name another radio with --link", EX_UNAVAILABLE)
  }

  private static func checked(_ link: String) throws -> LinkAddress {
    do { return try LinkAddress(parsing: link) } catch { throw ValidationError("--link: \(error)") }
  }

  private func written(_ places: Places) throws -> String {
    var text = """
      # Written by `meshpost run`, overwritten each time. To use your own, create \(places.configurationFolder)/meshpostd.toml.
      [radio]
      link = \(Setup.quoted(link ?? "auto:"))
      advert_when_new = \(!noAdvert)
      [store]
      location = \(Setup.quoted(places.state + "/gateway.db"))
      [control]
      socket = \(Setup.quoted(places.socket))

      """
    if let upstream {
      // Without a slash it would be the name of a credential.
      let token = tokenFile.map { !$0.has("/") && access($0, F_OK) == 0 ? Folder.resolved($0) : $0 }
      text += Setup.Upstream(name: "upstream", url: upstream, tokenFile: token).toml
    }
    let file = places.state + "/run.toml"
    try OutputFile.write(text, to: file, isSecret: true)
    return file
  }

  /// In place of a configuration that it refuses, the gateway would start with that of an earlier run: its radio, and its
  /// server.
  private func check(_ file: String) throws {
    let mistakes = try ConfigurationCheck(file).mistakes
    guard !mistakes.isEmpty else { return }
    for mistake in mistakes {
      let place = mistake.line > 0 ? "\(file): line \(mistake.line)" : file
      Console.error("meshpost: \(option(of: mistake) ?? place): \(mistake.words)")
    }
    throw ExitCode(config == nil && mistakes.allSatisfy { option(of: $0) != nil } ? EX_USAGE : EX_CONFIG)
  }

  /// The option that a mistake in the written file comes from.
  private func option(of mistake: ConfigurationCheck.Remark) -> String? {
    guard let upstream, mistake.key.begins(with: "upstream.") else { return nil }
    return "--upstream \(upstream)"
  }

  private func follow(_ socket: String) -> ChildProgram? {
    // There is nothing to follow until the socket exists.
    let script = """
      unset MESHPOST_HOST; while [ ! -S "$1" ]; do sleep 0.2; done; exec "$0" messages --follow --limit 5 --socket "$1"
      """
    // `try?`: without the stream it shows no messages; the error is already printed.
    return try? ChildProgram(["/bin/sh", "-c", script, Folder.resolved("/proc/self/exe"), socket])
  }

  /// Folders of a user's own gateway (XDG Base Directory Specification).
  struct Places {
    let state: String
    let socket: String
    let configurationFolder: String

    static func make() throws -> Places {
      let state = folder("XDG_STATE_HOME", or: ".local/state") + "/meshpost"
      let runtime = runtimeFolder ?? state
      for folder in [state, runtime] { try Folder.make(folder) }
      return Places(
        state: state, socket: runtime + "/control.sock",
        configurationFolder: folder("XDG_CONFIG_HOME", or: ".config") + "/meshpost")
    }

    var ownConfiguration: String? {
      let file = configurationFolder + "/meshpostd.toml"
      return access(file, R_OK) == 0 ? file : nil
    }

    private static func folder(_ variable: String, or standard: String) -> String {
      location(variable) ?? home + "/" + standard
    }

    private static var runtimeFolder: String? { location("XDG_RUNTIME_DIR").map { $0 + "/meshpost" } }

    private static func location(_ variable: String) -> String? {
      getenv(variable).map { String(cString: $0) }.flatMap { $0.hasPrefix("/") ? $0 : nil }
    }

    private static var home: String {
      location("HOME") ?? getpwuid(getuid()).flatMap { $0.pointee.pw_dir }.map { String(cString: $0) } ?? "/"
    }

    /// The control socket of a user's own gateway, if it exists. The system's socket takes precedence.
    static var runningSocket: String? {
      let candidates = [runtimeFolder, folder("XDG_STATE_HOME", or: ".local/state") + "/meshpost"].compactMap { $0 }
      return candidates.map { $0 + "/control.sock" }.first { access($0, F_OK) == 0 }
    }
  }
}
