// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP
import JSON

struct ChatCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "chat", abstract: "Talk with a node, in a room or on a channel.",
    discussion: """
      Enter sends. Tab completes names: of whom to mention, and after /to. Up and down choose a message, Page Up and Down \
      leaf. Commands: /to NAME, /react EMOJI (to the chosen message, or the newest), /retry, /cancel, /quit.

      Marks of what we said: … waits, → on the air, ✓ delivered (on a channel: sent, ✓2 heard from two repeaters), ✗ not \
      delivered, and why.
      """)
  @OptionGroup var connection: Connection
  @Argument(help: "With whom: a name, a key, a room or a #channel.", completion: Completing.everybody) var to: String

  func run() throws {
    let loop = EventLoop()
    let target = try ControlClient(connection).get("/v1/resolve?name=\(ControlClient.escape(to))").value
    guard let terminal = Terminal(on: loop) else {
      throw Failure.say("this is no terminal; `meshpost send` and `meshpost messages --follow` do without", EX_USAGE)
    }
    let view = ChatView(target)
    let desk = try ChatDesk(connection, view, loop) { terminal.refresh() }
    terminal.draw = { size in
      let (lines, cursor) = view.lines(size)
      terminal.cursor = cursor
      return lines
    }
    terminal.onKey = { key in
      switch key {
      case .escape, .control("c"), .control("d"): loop.stop()
      case .enter: if desk.enter() { loop.stop() }
      case .tab: view.complete()
      default: view.take(key)
      }
      terminal.refresh()
    }
    desk.start()
    terminal.run()
    if let trouble = desk.trouble { throw Failure.say(trouble, EX_UNAVAILABLE) }
  }
}

/// Fetches what the view shows, sends what is typed, and follows the journal to know when to look again.
final class ChatDesk {
  private static let history = 100

  private let connection: Connection
  private let view: ChatView
  private let loop: EventLoop
  private let changed: () -> Void
  private var asking: HTTPClient?
  private var following: HTTPClient?
  private var tunnels: [SSHTunnel] = []
  private var waiting: [(HTTPRequest, (HTTPResponse) -> Void)] = []
  private var partial: [UInt8] = []
  private var lookTimer: LoopTimer?
  private(set) var trouble: String?

  init(_ connection: Connection, _ view: ChatView, _ loop: EventLoop, _ changed: @escaping () -> Void) throws {
    self.connection = connection
    self.view = view
    self.loop = loop
    self.changed = changed
    (asking, following) = (try open(), try open())
  }

  private func open() throws -> HTTPClient {
    let (endpoint, tunnel) = try connection.endpoint()
    if let tunnel { tunnels.append(tunnel) }
    return HTTPClient(endpoint, on: loop)
  }

  func start() {
    get("/v1/contacts") { [view] in view.names = $0.compactMap { $0["name"]?.string } }
    get("/v1/channels") { [view] in view.channels = $0.compactMap { $0["name"]?.string } }
    look()
    follow()
  }

  // MARK: Looking

  private func look() {
    let target = view.target
    let name = ControlClient.escape(view.address)
    get("/v1/messages?limit=\(Self.history)&\(view.isChannel ? "channel" : "from")=\(name)") { [view] rows in
      // Somebody may have gone on to another conversation meanwhile.
      if view.target == target { view.received = rows }
    }
    get("/v1/outgoing?limit=\(Self.history)") { [view] in view.sent = $0 }
  }

  /// Several events of one moment are one look.
  private func lookSoon() {
    guard lookTimer?.isScheduled != true else { return }
    lookTimer = loop.schedule(after: .milliseconds(100)) { [weak self] in self?.look() }
  }

  private func follow() {
    following?.send(HTTPRequest("GET", "/v1/journal?follow=1&limit=0"), timeout: nil) { [weak self] piece in
      guard let self else { return }
      self.partial += piece
      while let end = self.partial.firstIndex(of: 10) {
        // `try?`: a torn line is no event.
        if let event = try? JSONValue(parsing: Array(self.partial[..<end])) { self.noticed(event) }
        self.partial.removeFirst(end + 1)
      }
    } _: { [weak self] _ in
      guard let self, self.tunnels.isEmpty else { return }
      self.partial = []
      self.loop.schedule(after: .seconds(2)) { [weak self] in
        self?.follow()
        self?.look()
      }
    }
  }

  private func noticed(_ event: JSONValue) {
    guard ["message", "outgoing", "reaction"].contains(event["kind"]?.string ?? "") else { return }
    if event["kind"]?.string == "message" { view.noticed(event["body"] ?? .null) }
    lookSoon()
    changed()
  }

  // MARK: Asking

  private func get(_ target: String, _ take: @escaping ([JSONValue]) -> Void) {
    submit(HTTPRequest("GET", target)) { response in
      guard response.status == 200 else { return }
      // `try?`: what cannot be read is left out.
      take(response.body.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) })
    }
  }

  private func post(_ target: String, _ body: JSONValue) {
    submit(HTTPRequest("POST", target, body: body.bytes)) { [weak self] response in
      if (200..<300).contains(response.status) { self?.view.said() } else { self?.refused(response) }
      self?.lookSoon()
    }
  }

  private func refused(_ response: HTTPResponse) {
    // `try?`: a refusal without words is one all the same.
    let answer = try? JSONValue(parsing: response.body)
    view.notice = answer?["error"]?.string ?? "refused: HTTP \(response.status)"
  }

  private func submit(_ request: HTTPRequest, _ take: @escaping (HTTPResponse) -> Void) {
    guard waiting.count < 32 else { return }
    waiting.append((request, take))
    if waiting.count == 1 { next() }
  }

  private func next() {
    guard let (request, take) = waiting.first else { return }
    asking?.send(request, timeout: .seconds(30)) { [weak self] result in
      guard let self else { return }
      switch result {
      case .success(let response):
        self.trouble = nil
        take(response)
      case .failure(let failure):
        self.trouble = "\(failure)"
        self.view.notice = "no answer: \(failure)"
        // A tunnel is good for one connection.
        if !self.tunnels.isEmpty { return self.loop.stop() }
      }
      self.waiting.removeFirst()
      self.changed()
      self.loop.later { self.next() }
    }
  }

  // MARK: What is typed

  /// True: it is the end.
  func enter() -> Bool {
    let text = view.editor.text
    guard !text.isEmpty else { return false }
    view.notice = nil
    let words = text.split(separator: " ", maxSplits: 1).map(String.init)
    switch words.first ?? "" {
    case "/quit", "/q": return true
    case "/to" where words.count == 2: change(to: words[1])
    case "/react" where words.count == 2: react(words[1])
    case "/retry": act("retry") { $0["state"]?.string == "failed" }
    case "/cancel": act("cancel") { $0["ended"]?.bool == false }
    case let word where word.hasPrefix("/") && text.first == "/":
      view.notice = "/to NAME, /react EMOJI, /retry, /cancel, /quit; a text that begins with / needs a blank in front"
    default: post("/v1/send", .object([("to", .string(view.address)), ("text", .string(text))]))
    }
    return false
  }

  private func change(to name: String) {
    submit(HTTPRequest("GET", "/v1/resolve?name=\(ControlClient.escape(name))")) { [weak self] response in
      // `try?`: then it is refused.
      guard response.status == 200, let target = try? JSONValue(parsing: response.body) else {
        self?.refused(response)
        return
      }
      self?.view.change(to: target)
      self?.look()
    }
  }

  private func react(_ emoji: String) {
    guard let chosen = view.chosen else { return view.notice = "there is nothing to react to" }
    let target: (String, JSONValue) =
      ChatView.isOurs(chosen)
      ? ("outgoing", .string(chosen["id"]?.string ?? "")) : ("message", .integer(chosen["id"]?.integer ?? 0))
    post("/v1/react", .object([target, ("emoji", .string(emoji))]))
  }

  /// The newest of ours that fits.
  private func act(_ verb: String, _ fits: (JSONValue) -> Bool) {
    guard let id = view.ours.last(where: fits)?["id"]?.string else {
      return view.notice = "there is nothing to \(verb)"
    }
    post("/v1/outgoing/\(verb)?id=\(ControlClient.escape(id))", .object([]))
  }
}
