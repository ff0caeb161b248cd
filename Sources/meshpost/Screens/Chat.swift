// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP
import JSON

struct ChatCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "chat", abstract: "Chat with a node, in a room or on a channel.",
    discussion: """
      Enter sends. Tab completes names, in mentions and after /to. Up and Down select a message, Page Up and Page Down \
      scroll. Commands: /to NAME, /react EMOJI (to the selected message, or the newest), /retry, /cancel, /quit.

      Marks of sent messages: … waiting, → sent, ✓ delivered (on a channel: sent, ✓2 repeated by two repeaters), ✗ not \
      delivered, with the reason.
      """)
  @OptionGroup var connection: Connection
  @Argument(help: "A name, a key, a room or a #channel.", completion: Completing.everybody) var to: String

  func run() throws {
    let loop = EventLoop()
    let target = try ControlClient(connection).get("/v1/resolve?name=\(ControlClient.escape(to))").value
    guard let terminal = Terminal(on: loop) else {
      throw Failure.say("not a terminal; use `meshpost send` and `meshpost messages --follow`", EX_USAGE)
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

/// Fetches the data of the view, sends messages, and follows the journal to know when to refresh.
final class ChatDesk {
  private static let history = 100

  private let view: ChatView
  private let loop: EventLoop
  private let changed: () -> Void
  private let line: GatewayLine
  private var lookTimer: LoopTimer?
  var trouble: String? { line.trouble }

  init(_ connection: Connection, _ view: ChatView, _ loop: EventLoop, _ changed: @escaping () -> Void) throws {
    self.view = view
    self.loop = loop
    self.changed = changed
    line = try GatewayLine(connection, most: 32, on: loop)
    line.onAnswer = { [weak self] in self?.answered() }
  }

  private func answered() {
    if let trouble { view.notice = "no answer: \(trouble)" }
    changed()
  }

  func start() {
    line.rows("/v1/contacts") { [view] in view.names = $0.compactMap { $0["name"]?.string } }
    line.rows("/v1/channels") { [view] in view.channels = $0.compactMap { $0["name"]?.string } }
    look()
    follow()
  }

  // MARK: Refreshing

  private func look() {
    let target = view.target
    let name = ControlClient.escape(view.address)
    let conversation = "\(view.isChannel ? "channel" : "with")=\(name)"
    line.rows("/v1/messages?direction=both&limit=\(Self.history)&\(conversation)") { [view] rows in
      // The user may have changed the conversation meanwhile.
      if view.target == target { view.messages = rows }
    }
  }

  /// Several events at once cause one refresh.
  private func lookSoon() {
    guard lookTimer?.isScheduled != true else { return }
    lookTimer = loop.schedule(after: .milliseconds(100)) { [weak self] in self?.look() }
  }

  private func follow() {
    line.follow("/v1/journal?follow=1&limit=0", pause: .seconds(2)) { [weak self] event in
      self?.noticed(event)
    } again: { [weak self] in
      self?.follow()
      self?.look()
    }
  }

  private func noticed(_ event: JSONValue) {
    guard ["message", "outgoing", "reaction"].contains(event["kind"]?.string ?? "") else { return }
    if event["kind"]?.string == "message" { view.noticed(event["body"] ?? .null) }
    lookSoon()
    changed()
  }

  // MARK: Asking

  private func post(_ target: String, _ body: JSONValue) {
    line.ask(HTTPRequest("POST", target, body: body.bytes)) { [weak self] response in
      if (200..<300).contains(response.status) { self?.view.said() } else { self?.refused(response) }
      self?.lookSoon()
    }
  }

  private func refused(_ response: HTTPResponse) {
    // `try?`: a refusal without a body is shown by its status.
    let answer = try? JSONValue(parsing: response.body)
    view.notice = answer?["error"]?.string ?? "refused: HTTP \(response.status)"
  }

  // MARK: Input

  /// Returns true to quit.
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
      view.notice = "/to NAME, /react EMOJI, /retry, /cancel, /quit; begin with a space to send text that starts with /"
    default: post("/v1/send", .object([("to", .string(view.address)), ("text", .string(text))]))
    }
    return false
  }

  private func change(to name: String) {
    line.ask(HTTPRequest("GET", "/v1/resolve?name=\(ControlClient.escape(name))")) { [weak self] response in
      // `try?`: an unreadable answer counts as a refusal.
      guard response.status == 200, let target = try? JSONValue(parsing: response.body) else {
        self?.refused(response)
        return
      }
      self?.view.change(to: target)
      self?.look()
    }
  }

  private func react(_ emoji: String) {
    guard let chosen = view.chosen else { return view.notice = "no message to react to" }
    post("/v1/react", .object([("message", .integer(chosen["id"]?.integer ?? 0)), ("emoji", .string(emoji))]))
  }

  /// The newest sent message that fits.
  private func act(_ verb: String, _ fits: (JSONValue) -> Bool) {
    guard let id = view.ours.last(where: fits)?["outgoing"]?.string else {
      return view.notice = "no message to \(verb)"
    }
    post("/v1/outgoing/\(verb)?id=\(ControlClient.escape(id))", .object([]))
  }
}
