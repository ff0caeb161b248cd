// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
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
    let (row, link) = (Shape.Status(), Shape.LinkState())
    let radio = status[row.radio] ?? .null
    let name = Show.clean(radio[link.identity]?["name"]?.string)
    let isUp = radio[link.state] == "up"
    let states: Styled =
      "\(TerminalColour.state(radio[link.state] ?? "?")), \(TerminalColour.state(status[row.sync]?[Shape.SyncState().state] ?? "?"))"
    var lines: [Styled] = ["radio     \(name.isEmpty ? "" : "\(name), ")\(states)"]
    if !isUp, let error = radio[link.error] { lines.append("          \(error)") }
    if !isUp, let remedy = radio[link.remedy] { lines.append("          \(remedy)") }
    let store = status[row.store] ?? .null
    let trouble = store[Shape.Store().error].map { ": \($0)" } ?? ""
    let messages = Show.counted(store[Shape.Store().messages] ?? 0, "message")
    let nodes = Show.counted(store[Shape.Store().contacts] ?? 0, "node")
    lines.append("store     \(messages), \(nodes)\(trouble)")
    for upstream in status[row.upstreams] {
      let pending = upstream[Shape.Upstream().pending] ?? 0
      let waiting = pending == 0 ? "up to date" : "\(Show.counted(pending, "event")) pending"
      let reason = upstream[Shape.Upstream().reason].map { ": \(Show.clean($0))" } ?? ""
      lines.append(
        "\((upstream[Shape.Upstream().name] ?? "?").padding(10))\(TerminalColour.state(upstream[Shape.Upstream().state] ?? "?")), \(waiting)\(reason)"
      )
    }
    for alert in status[row.alerts] { lines.append("alert     \(Show.alert(alert))") }
    if status[row.upstreams].isEmpty { lines.append("upstreams none: messages stay here") }
    return lines
  }

  private static func hints(_ status: JSONValue) -> [Styled] {
    let row = Shape.Status()
    let isWell =
      status[row.radio]?[Shape.LinkState().state] == "up" && status[row.store]?[Shape.Store().error] == nil
      && status[row.upstreams].allSatisfy {
        ["idle", "sending", "paused"].contains($0[Shape.Upstream().state] ?? "")
      }
    var hints = isWell ? [] : [("meshpost doctor", "find problems and remedies")]
    if let advert = status[row.radio]?[Shape.LinkState().advert], advert[Shape.Advert().at] == nil {
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
