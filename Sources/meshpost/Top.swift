// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP
import JSON

struct TopCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "top", abstract: "Watch the gateway: link, upstreams, messages as they come, nodes as they are heard.",
    discussion: """
      Fills the terminal, from 40 columns on. q ends it, Space asks for everything now, Tab changes between messages and \
      nodes where there is no room for both.
      """)
  @OptionGroup var connection: Connection
  @Option(help: "Seconds between two looks.") var interval = 2

  func run() throws {
    guard (1...3600).contains(interval) else { throw ValidationError("--interval: 1 to 3600") }
    let loop = EventLoop()
    guard let terminal = Terminal(on: loop) else {
      throw Failure.say("this is no terminal; `meshpost status` tells the same once", EX_USAGE)
    }
    // The daemon is asked once before the screen is taken: what is wrong is said as usual.
    let first = try ControlClient(connection).get("/v1/status").value
    let view = TopView(status: first)
    let feed = try TopFeed(connection, view, loop, interval: .seconds(interval)) { terminal.refresh() }
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

/// Asks the daemon again and again, and follows its messages.
final class TopFeed {
  /// Nodes change seldom.
  private static let nodesEvery = 5
  /// Each time the radio itself is asked, over its link.
  private static let radioEvery: Duration = .seconds(60)

  private let connection: Connection
  private let view: TopView
  private let loop: EventLoop
  private let interval: Duration
  private let changed: () -> Void
  private var asking: HTTPClient?
  private var following: HTTPClient?
  private var tunnels: [SSHTunnel] = []
  private var partial: [UInt8] = []
  private var rounds = 0
  private var radioDue: Duration = .zero
  private var waiting: [(String, (JSONValue) -> Void)] = []
  private var timer: LoopTimer?
  private(set) var trouble: String?

  init(
    _ connection: Connection, _ view: TopView, _ loop: EventLoop, interval: Duration, _ changed: @escaping () -> Void
  ) throws {
    self.connection = connection
    self.view = view
    self.loop = loop
    self.interval = interval
    self.changed = changed
    (asking, following) = (try open(), try open())
  }

  private func open() throws -> HTTPClient {
    let (endpoint, tunnel) = try connection.endpoint()
    if let tunnel { tunnels.append(tunnel) }
    return HTTPClient(endpoint, on: loop)
  }

  func start() {
    look()
    follow()
  }

  func look() {
    timer?.cancel()
    ask("/v1/status") { [view] in view.status = $0 }
    if rounds % Self.nodesEvery == 0 {
      ask("/v1/contacts?heard=50") { [view] in view.nodes = $0.array ?? [] }
    }
    if interval * rounds >= radioDue {
      ask("/v1/radio") { [view] in view.radio = $0 }
      radioDue = interval * rounds + Self.radioEvery
    }
    rounds += 1
    timer = loop.schedule(after: interval) { [weak self] in self?.look() }
  }

  /// One after the other: it is one connection.
  private func ask(_ target: String, _ take: @escaping (JSONValue) -> Void) {
    guard waiting.count < 8 else { return }
    waiting.append((target, take))
    if waiting.count == 1 { next() }
  }

  private func next() {
    guard let (target, take) = waiting.first else { return }
    asking?.send(HTTPRequest("GET", target), timeout: .seconds(30)) { [weak self] result in
      guard let self else { return }
      switch result {
      case .success(let response):
        self.trouble = nil
        let rows = response.body.split(separator: 10)
        // `try?`: what cannot be read is left as it was.
        let values = rows.compactMap { try? JSONValue(parsing: Array($0)) }
        if response.status == 200 { take(target.contains("contacts") ? .array(values) : values.first ?? .null) }
      case .failure(let failure):
        self.trouble = "\(failure)"
        self.view.trouble = "\(failure)"
        // A tunnel is good for one connection: without it there is nothing to watch.
        if !self.tunnels.isEmpty { return self.loop.stop() }
      }
      if self.trouble == nil { self.view.trouble = nil }
      self.waiting.removeFirst()
      self.changed()
      self.loop.later { self.next() }
    }
  }

  private func follow() {
    following?.send(HTTPRequest("GET", "/v1/messages?follow=1&limit=200"), timeout: nil) { [weak self] piece in
      guard let self else { return }
      self.partial += piece
      while let end = self.partial.firstIndex(of: 10) {
        // `try?`: a torn line is no message.
        if let message = try? JSONValue(parsing: Array(self.partial[..<end])) { self.view.add(message) }
        self.partial.removeFirst(end + 1)
      }
      self.changed()
    } _: { [weak self] _ in
      guard let self, self.tunnels.isEmpty else { return }
      self.partial = []
      self.view.messages = []
      self.loop.schedule(after: self.interval) { [weak self] in self?.follow() }
    }
  }
}
