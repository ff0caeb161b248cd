// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import JSON
import Timing

struct TopCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "top", abstract: "Watch the gateway: link, upstreams, new messages, and nodes as they are heard.",
    discussion: """
      A full-screen display for 40 columns or more. q quits, Space refreshes now, Tab switches between messages and nodes \
      if there is no room for both.
      """)
  @OptionGroup var connection: Connection
  @Option(help: ArgumentHelp("Refresh interval: \(DurationArgument.forms).", valueName: "time"))
  var interval = DurationArgument(seconds: 2)

  func run() throws {
    guard (1...3600).contains(interval.seconds) else { throw ValidationError("--interval: 1s to 1h") }
    let loop = EventLoop()
    guard let terminal = Terminal(on: loop) else {
      throw Failure.say("not a terminal; use `meshpost status`", EX_USAGE)
    }
    // Sends a first request before the full screen, so that errors are printed as usual.
    let first = try ControlClient(connection).get("/v1/status").value
    let line = try GatewayLine(connection, on: loop)
    let screen = TopScreen(TopView(status: first), line, terminal, loop, interval: .seconds(interval.seconds))
    do {
      try terminal.run({ Terminal.Picture(lines: screen.view.lines($0)) }, screen.run)
    } catch is GatewayLine.Lost {}  // as is said below
    if let trouble = line.trouble { throw Failure.say(trouble, EX_UNAVAILABLE) }
  }
}

/// Polls the daemon, follows its messages, and reads keys, until one of these tasks ends.
private final class TopScreen {
  /// Nodes change rarely.
  private static let nodesEvery = 5
  /// Each poll queries the radio over its link.
  private static let radioEvery: Duration = .seconds(60)

  let view: TopView
  private let line: GatewayLine
  private let terminal: Terminal
  private let loop: EventLoop
  private let interval: Duration
  private let now = Waiter()

  init(_ view: TopView, _ line: GatewayLine, _ terminal: Terminal, _ loop: EventLoop, interval: Duration) {
    self.view = view
    self.line = line
    self.terminal = terminal
    self.loop = loop
    self.interval = interval
  }

  func run() async throws { try await loop.race(keys, poll, follow) }

  private func keys() async throws {
    while let key = try await terminal.key() {
      switch key {
      case .character("q"), .escape, .control("c"): return
      case .character(" "): now.resume()
      case .tab:
        view.showsNodes.toggle()
        terminal.refresh()
      default: break
      }
    }
  }

  private func poll() async throws {
    var rounds = 0
    var radioDue: Duration = .zero
    while true {
      let next = loop.now + interval
      if let status = try await rows("/v1/status") { view.status = status.first ?? .null }
      if rounds % Self.nodesEvery == 0, let nodes = try await rows("/v1/contacts?heard=50") { view.nodes = nodes }
      if interval * rounds >= radioDue {
        radioDue = interval * rounds + Self.radioEvery
        if let radio = try await rows("/v1/radio") { view.radio = radio.first ?? .null }
      }
      rounds += 1
      try await now.wait(until: next, on: loop)
    }
  }

  private func rows(_ target: String) async throws -> [JSONValue]? {
    let rows = try await line.rows(target)
    view.trouble = line.trouble
    terminal.refresh()
    return rows
  }

  private func follow() async throws {
    while true {
      try await line.follow("/v1/messages?follow=1&direction=both&limit=200", pause: interval) { [self] message in
        guard message.missed == nil else { return }
        view.add(message)
        terminal.refresh()
      }
      view.messages = []
    }
  }
}
