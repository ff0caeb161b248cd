// SPDX-License-Identifier: MIT

import ArgumentParser
import Glibc
import Transport

/// A gateway for as long as it is wanted, without a configuration and without rights: a radio on a laptop.
struct RunCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run", abstract: "Run a gateway here and now, and show messages as they come.",
    discussion: """
      Finds the radio among the serial devices (or takes --link), keeps what comes in ~/.local/state/meshpost, and ends \
      with Ctrl-C. In another terminal every other command works with it. A configuration in \
      ~/.config/meshpost/meshpostd.toml is used where there is one. A gateway that is always there: `meshpost setup`.
      """)

  @Option(help: "Where the radio is: serial:…, ble:…, tcp:…; without it the radio on the USB.") var link: String?
  @Option(help: "A server to forward to: the address of a hub or of an MQTT broker.") var upstream: String?
  @Option(help: "The file that holds its bearer token.", completion: .file()) var tokenFile: String?
  @Option(help: "Another configuration.", completion: .file()) var config: String?
  @Flag(help: "Do not advertise the radio. Else it tells its direct neighbours who it is, once.") var noAdvert = false
  @Flag(help: "Show the gateway's log only, not the messages.") var quiet = false

  func run() throws {
    if let link { _ = try Self.checked(link) }
    let places = try Places.make()
    let file = try config ?? places.ownConfiguration ?? written(places)
    let socket = config == nil && places.ownConfiguration == nil ? places.socket : nil
    let gateway = try Self.start(["--config", file])
    let reader = quiet || socket == nil ? nil : follow(socket ?? "")
    // After it was started: it must not ignore them.
    let code = gateway.wait(handing: [SIGINT, SIGTERM, SIGHUP])
    reader?.send(SIGTERM)
    throw ExitCode(code)
  }

  private static func checked(_ link: String) throws -> LinkAddress {
    do { return try LinkAddress(parsing: link) } catch { throw ValidationError("--link: \(error)") }
  }

  private func written(_ places: Places) throws -> String {
    var text = """
      # Written by `meshpost run`, anew each time. Yours would be \(places.configurationFolder)/meshpostd.toml.
      [radio]
      link = \(Setup.quoted(link ?? "auto:"))
      advert_when_new = \(!noAdvert)
      [store]
      location = \(Setup.quoted(places.state + "/gateway.db"))
      [control]
      socket = \(Setup.quoted(places.socket))

      """
    if let upstream {
      text += Setup.Upstream(name: "upstream", url: upstream, tokenFile: tokenFile).toml
    }
    let file = places.state + "/run.toml"
    try OutputFile.write(text, to: file, isSecret: true)
    print("keeping what comes in \(places.state); other commands find this gateway by themselves")
    fflush(nil)
    return file
  }

  private func follow(_ socket: String) -> ChildProgram? {
    // Until it listens there is nothing to follow.
    let script = """
      while [ ! -S "$1" ]; do sleep 0.2; done; exec "$0" messages --follow --limit 5 --socket "$1"
      """
    // `try?`: without it the messages are not shown, and that was said.
    return try? ChildProgram(["/bin/sh", "-c", script, Folder.resolved("/proc/self/exe"), socket])
  }

  /// The daemon beside this program, or the one of the system.
  private static func start(_ arguments: [String]) throws -> ChildProgram {
    let beside = Folder.of(Folder.resolved("/proc/self/exe")) + "/meshpostd"
    return try ChildProgram([access(beside, X_OK) == 0 ? beside : "/usr/bin/meshpostd"] + arguments)
  }

  /// Where a user's own gateway keeps things (XDG Base Directory Specification).
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

    /// The control socket of a user's own gateway, where there is one: of two, the system's counts.
    static var runningSocket: String? {
      let candidates = [runtimeFolder, folder("XDG_STATE_HOME", or: ".local/state") + "/meshpost"].compactMap { $0 }
      return candidates.map { $0 + "/control.sock" }.first { access($0, F_OK) == 0 }
    }
  }
}
