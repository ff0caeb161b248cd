// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP
import PageServer

struct WebCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "web", abstract: "Open the gateway's pages in a browser on this machine.",
    discussion: """
      Serves the pages on 127.0.0.1 until Ctrl-C, and talks to the gateway's control socket: with --host through ssh, so that \
      nothing listens on the gateway. The address that is printed signs one browser in.
      """, subcommands: [Password.self])
  @OptionGroup var connection: Connection
  @Option(help: ArgumentHelp("The port on 127.0.0.1; 0: a free one.", valueName: "port")) var port: UInt16 = 0
  @Flag(help: "Open the address with xdg-open.") var open = false
  @Option(help: ArgumentHelp("The folder with the pages.", valueName: "folder")) var pages: String?
  @Option(
    help: ArgumentHelp(
      "A server of map tiles, e.g. https://tiles.example.org/{z}/{x}/{y}.png, which the browser then asks for them.",
      valueName: "url")) var tiles: String?
  @Option(help: ArgumentHelp("Whose map it is, shown on it.", valueName: "words")) var tilesCredit: String?

  func run() throws {
    guard let files = (pages ?? Self.usualFolder).flatMap({ PageFiles(folder: $0) }) else {
      throw Failure.say("no pages in \(pages ?? Self.installed): the package meshpost contains them", EX_UNAVAILABLE)
    }
    let tiles = try tileServer()
    // Sends a first request, so that errors are printed as usual.
    _ = try ControlClient(connection).get("/v1/status")
    let loop = EventLoop()
    let gateway = GatewayPass(connection, on: loop)
    let secret = OneTimeSecret()
    var web: WebServer?
    let server: HTTPServer
    do {
      server = try HTTPServer(loopbackPort: port, on: loop) { request, responder in
        await web?.answer(request, responder)
      }
    } catch {
      throw Failure.say("port \(port): \(error.message)", EX_UNAVAILABLE)
    }
    web = WebServer(
      files: files, guardian: WebGuard(names: []), access: secret, cookie: "meshpost_\(server.port)", on: loop,
      pass: gateway.pass)
    web?.tiles = tiles
    let address = "http://127.0.0.1:\(server.port)/#secret="
    secret.used = { print("Signed in. For another browser: \(address)\(secret.value)") }
    print("Open \(address)\(secret.value)")
    // `try?`: it says why; the address is printed.
    if open { _ = try? ChildProgram(["xdg-open", address + secret.value]) }
    let signals = Signals([SIGINT, SIGTERM], on: loop) { _ in loop.stop() }
    loop.run()
    server.stop()
    withExtendedLifetime(signals) {}
  }

  private func tileServer() throws -> TileServer? {
    guard let tiles else { return nil }
    do {
      return try TileServer(tiles, credit: tilesCredit)
    } catch {
      throw Failure.say("--tiles: \(error.message)", EX_USAGE)
    }
  }

  private static let installed = "/usr/share/meshpost/pages"

  /// The package's pages. A program in a checkout uses the pages of the checkout, even if the package is installed.
  private static var usualFolder: String? {
    var folder = Folder.resolved("/proc/self/exe")
    while let slash = folder.lastIndex(of: "/") {
      folder = String(folder[..<slash])
      let pages = "\(folder)/Sources/Pages"
      if access("\(pages)/index.html", R_OK) == 0 { return pages }
    }
    return access("\(installed)/index.html", R_OK) == 0 ? installed : nil
  }
}

/// The secret in the printed address. It signs in once; then another secret replaces it.
private final class OneTimeSecret: WebAccess {
  let way = "secret"
  /// Wrong guesses cause no pause: otherwise another user of this machine could lock the operator out.
  let isGuessable = false
  private(set) var value = WebSessions.token()
  /// Called after a sign-in, with the next secret in `value`.
  var used: () -> Void = {}

  /// A session cookie: the session ends with this program anyway.
  let cookieSeconds: Int? = nil

  func isRight(_ given: String) async throws(WebGuard.Refusal) -> Bool { WebSessions.isSame(given, value) }
  func refused(from address: String) {}
  func keep(_ sessions: WebSessions) {}

  func signedIn(from address: String) {
    value = WebSessions.token()
    used()
  }
}
