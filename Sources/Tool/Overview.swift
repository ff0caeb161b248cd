// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import JSON

/// `meshpost` without a command: a summary, and common commands.
struct OverviewCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "overview", abstract: "Show a summary and common commands; the default without a command.")
  @OptionGroup var connection: Connection

  private static let newest = 5

  func run() throws {
    let client = ControlClient(connection)
    let status = try client.get("/v1/status")
    if connection.json { return print(status.text) }
    print(lines: Self.summary(status.value))
    var messages: [Styled] = []
    try client.rows("/v1/messages?direction=both&limit=\(Self.newest)") { messages.append("  \(Show.message($0))") }
    print(lines: ["", "newest messages"] + (messages.isEmpty ? ["  none yet"] : messages) + [""])
    print(lines: Self.hints(status.value))
  }

  private static func summary(_ status: JSONValue) -> [Styled] {
    let radio = status["radio"] ?? .null
    let name = Show.clean(radio["identity"]?["name"]?.string)
    let isUp = radio["state"]?.string == "up"
    let states: Styled =
      "\(TerminalColour.state(radio["state"]?.string ?? "?")), \(TerminalColour.state(status["sync"]?["state"]?.string ?? "?"))"
    var lines: [Styled] = ["radio     \(name.isEmpty ? "" : "\(name), ")\(states)"]
    if !isUp, let error = radio["error"]?.string { lines.append("          \(error)") }
    if !isUp, let remedy = radio["remedy"]?.string { lines.append("          \(remedy)") }
    let store = status["store"] ?? .null
    let trouble = store["error"]?.string.map { ": \($0)" } ?? ""
    lines.append(
      "store     \(store["messages"]?.integer ?? 0) messages, \(store["contacts"]?.integer ?? 0) nodes\(trouble)")
    for upstream in status["upstreams"]?.array ?? [] {
      let pending = upstream["pending"]?.integer ?? 0
      let waiting = pending == 0 ? "up to date" : "\(pending) events pending"
      let reason = upstream["reason"]?.string.map { ": \(Show.clean($0))" } ?? ""
      lines.append(
        "\((upstream["name"]?.string ?? "?").padding(10))\(TerminalColour.state(upstream["state"]?.string ?? "?")), \(waiting)\(reason)"
      )
    }
    for alert in status["alerts"]?.array ?? [] { lines.append("alert     \(Show.alert(alert))") }
    if (status["upstreams"]?.array ?? []).isEmpty { lines.append("upstreams none: messages stay here") }
    return lines
  }

  private static func hints(_ status: JSONValue) -> [Styled] {
    let isWell =
      status["radio"]?["state"]?.string == "up" && status["store"]?["error"] == nil
      && (status["upstreams"]?.array ?? []).allSatisfy {
        ["idle", "sending", "paused"].contains($0["state"]?.string ?? "")
      }
    var hints = isWell ? [] : [("meshpost doctor", "find problems and remedies")]
    if let advert = status["radio"]?["advert"], advert["at"] == nil {
      hints.append(("meshpost radio advert", "announce this radio to its neighbours"))
    }
    hints += [
      ("meshpost messages --follow", "follow messages"),
      ("meshpost send NAME TEXT", "send to a node, a room or a #channel"),
      ("meshpost search WORDS", "find a message"), ("meshpost contacts", "list known nodes"),
      ("meshpost status", "show the full status"), ("meshpost --help", "list all commands"),
    ]
    return ["commands"] + hints.map { "  \($0.0.padding(30))\($0.1)" }
  }
}
