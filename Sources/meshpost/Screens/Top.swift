// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP
import JSON

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
    // Ask the daemon once before switching to the full screen, so that errors are printed as usual.
    let first = try ControlClient(connection).get("/v1/status").value
    let view = TopView(status: first)
    let feed = try TopFeed(connection, view, loop, interval: .seconds(interval.seconds)) { terminal.refresh() }
    terminal.draw = { view.lines($0) }
    terminal.onKey = { key in
      switch key {
      case .character("q"), .escape, .control("c"): loop.stop()
      case .character(" "): feed.look()
      case .tab:
        view.showsNodes.toggle()
        terminal.refresh()
      default: break
      }
    }
    feed.start()
    terminal.run()
    if let trouble = feed.trouble { throw Failure.say(trouble, EX_UNAVAILABLE) }
  }
}

/// Polls the daemon, and follows its messages.
final class TopFeed {
  /// Nodes change rarely.
  private static let nodesEvery = 5
  /// Each poll queries the radio over its link.
  private static let radioEvery: Duration = .seconds(60)

  private let view: TopView
  private let loop: EventLoop
  private let interval: Duration
  private let changed: () -> Void
  private let line: GatewayLine
  private var rounds = 0
  private var radioDue: Duration = .zero
  private var timer: LoopTimer?
  var trouble: String? { line.trouble }

  init(
    _ connection: Connection, _ view: TopView, _ loop: EventLoop, interval: Duration, _ changed: @escaping () -> Void
  ) throws {
    self.view = view
    self.loop = loop
    self.interval = interval
    self.changed = changed
    line = try GatewayLine(connection, most: 8, on: loop)
    line.onAnswer = { [weak self] in self?.answered() }
  }

  private func answered() {
    view.trouble = trouble
    changed()
  }

  func start() {
    look()
    follow()
  }

  func look() {
    timer?.cancel()
    line.rows("/v1/status") { [view] in view.status = $0.first ?? .null }
    if rounds % Self.nodesEvery == 0 {
      line.rows("/v1/contacts?heard=50") { [view] in view.nodes = $0 }
    }
    if interval * rounds >= radioDue {
      line.rows("/v1/radio") { [view] in view.radio = $0.first ?? .null }
      radioDue = interval * rounds + Self.radioEvery
    }
    rounds += 1
    timer = loop.schedule(after: interval) { [weak self] in self?.look() }
  }

  private func follow() {
    line.follow("/v1/messages?follow=1&direction=both&limit=200", pause: interval) { [weak self] message in
      self?.view.add(message)
      self?.changed()
    } again: { [weak self] in
      self?.view.messages = []
      self?.follow()
    }
  }
}
