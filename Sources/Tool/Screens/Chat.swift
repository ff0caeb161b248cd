// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import EventLoop
import Glibc
import HTTP
import JSON
import UntrustedText

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
    let target = try ControlClient(connection).get("/v1/resolve".with(["name": to])).value
    guard let terminal = Terminal(on: loop) else {
      throw Failure.say("not a terminal; use `meshpost send` and `meshpost messages --follow`", EX_USAGE)
    }
    let line = try GatewayLine(connection, on: loop)
    let screen = ChatScreen(ChatView(target), line, terminal, loop)
    do {
      try terminal.run(
        {
          let (lines, cursor) = screen.view.lines($0)
          return Terminal.Picture(lines: lines, cursor: cursor)
        }, screen.run)
    } catch is GatewayLine.Lost {}  // as is said below
    if let trouble = line.trouble { throw Failure.say(trouble, EX_UNAVAILABLE) }
  }
}

/// Reads keys, sends messages, and refreshes after events of the journal, until one of these tasks ends.
private final class ChatScreen {
  private static let history = 100
  /// Several events at once cause one refresh.
  private static let quietPeriod: Duration = .milliseconds(100)

  /// A request to the gateway, and the typed line that asks for it.
  private struct Order {
    enum Wish {
      case post(String, JSONValue)
      case change(to: String)
    }

    let wish: Wish
    let line: String
  }

  let view: ChatView
  private let line: GatewayLine
  private let terminal: Terminal
  private let loop: EventLoop
  /// Most waiting requests. The line of a further one stays where it was typed.
  private let orders = Mailbox<Order>(bound: 32)
  /// A text that may have been accepted, as its answer did not come. If it is sent again, it has the same id.
  private var unanswered: (to: String, text: String, id: String)?
  private var isOutdated = false
  private let outdated = Waiter()

  init(_ view: ChatView, _ line: GatewayLine, _ terminal: Terminal, _ loop: EventLoop) {
    self.view = view
    self.line = line
    self.terminal = terminal
    self.loop = loop
  }

  func run() async throws { try await loop.race(keys, look, carryOut, follow) }

  private func keys() async throws {
    while let key = try await terminal.key() {
      switch key {
      case .escape, .control("c"), .control("d"): return
      case .enter: if enter() { return }
      case .tab: view.complete()
      default: view.take(key)
      }
      terminal.refresh()
    }
  }

  // MARK: Refreshing

  private func look() async throws {
    if let nodes = try await rows("/v1/contacts") { view.names = nodes.compactMap { $0[Shape.Contact().name] } }
    if let channels = try await rows("/v1/channels") {
      view.channels = channels.compactMap { $0[Shape.Channel().name] }
    }
    try await lookOnce()
    while true {
      while !isOutdated { try await outdated.wait() }
      try await loop.sleep(for: Self.quietPeriod)
      isOutdated = false
      try await lookOnce()
    }
  }

  private func lookOnce() async throws {
    let target = view.target
    let conversation: KeyValuePairs = [view.isChannel ? "channel" : "with": Optional(view.address)]
    let rows = try await rows("/v1/messages?direction=both&limit=\(Self.history)".with(conversation))
    // The user may have changed the conversation meanwhile.
    if let rows, view.target == target { view.messages = rows }
  }

  private func lookSoon() {
    isOutdated = true
    outdated.resume()
  }

  private func follow() async throws {
    while true {
      try await line.follow("/v1/journal?follow=1&limit=0", pause: .seconds(2)) { [self] in noticed($0) }
      lookSoon()
    }
  }

  private func noticed(_ event: JSONValue) {
    guard event.missed == nil else { return lookSoon() }
    guard ["message", "outgoing", "reaction"].contains(event[Shape.Event().kind] ?? "") else { return }
    if event[Shape.Event().kind] == "message" { view.noticed(event[Shape.Event().body] ?? .null) }
    lookSoon()
    terminal.refresh()
  }

  // MARK: Asking

  private func ask(_ request: HTTPRequest) async throws -> HTTPResponse? {
    let response = try await line.ask(request)
    answered()
    return response
  }

  private func rows(_ target: String) async throws -> [JSONValue]? {
    let rows = try await line.rows(target)
    answered()
    return rows
  }

  private func answered() {
    if let trouble = line.trouble { view.notice = "no answer: \(trouble)" }
    terminal.refresh()
  }

  /// Carries out the user's commands, one after the other. The line of one that fails comes back.
  private func carryOut() async throws {
    while let order = try await orders.next() {
      let isDone =
        switch order.wish {
        case .post(let target, let body): try await post(target, body)
        case .change(let name): try await change(to: name)
        }
      if !isDone { view.putBack(order.line) }
      terminal.refresh()
    }
  }

  private func post(_ target: String, _ body: JSONValue) async throws -> Bool {
    let response = try await ask(HTTPRequest("POST", target, body: body.bytes))
    lookSoon()
    if let to = body["to"]?.string, let text = body["text"]?.string, let id = body["id"]?.string {
      unanswered = response == nil ? (to: to, text: text, id: id) : nil
    }
    guard let response else { return false }
    guard (200..<300).contains(response.status) else { return refused(response) }
    view.said()
    return true
  }

  private func change(to name: String) async throws -> Bool {
    guard let response = try await ask(HTTPRequest("GET", "/v1/resolve".with(["name": name]))) else { return false }
    // `try?`: an unreadable answer counts as a refusal.
    guard response.status == 200, let target = try? JSONValue(parsing: response.body) else { return refused(response) }
    view.change(to: target)
    try await lookOnce()
    return true
  }

  private func give(_ wish: Order.Wish) {
    guard orders.put(Order(wish: wish, line: view.editor.text)) else {
      return view.notice = "too much waits for the gateway: try again"
    }
    view.take(.control("u"))
  }

  /// Always false.
  private func refused(_ response: HTTPResponse) -> Bool {
    // `try?`: without a body, the status is the message.
    let answer = try? JSONValue(parsing: response.body)
    view.notice = answer?["error"]?.string ?? "refused: HTTP \(response.status)"
    return false
  }

  // MARK: Input

  private static let help =
    "/to NAME, /react EMOJI, /retry, /cancel, /quit; begin with a space to send text that starts with /"

  /// Returns true to quit.
  private func enter() -> Bool {
    let text = view.editor.text
    guard !text.isEmpty else { return false }
    view.notice = nil
    let words = text.split(separator: " ", maxSplits: 1).map(String.init)
    // After a space it is text.
    switch text.first == "/" ? words.first ?? "" : "" {
    case "/quit", "/q": return true
    case "/to" where words.count == 2: give(.change(to: words[1]))
    case "/react" where words.count == 2: react(words[1])
    case "/retry": act("retry") { $0[Shape.Message().state] == "failed" }
    case "/cancel": act("cancel") { $0[Shape.Message().ended] == false }
    case "/help", "/h", "/?":
      view.notice = Self.help
      view.take(.control("u"))
    case "": send(text)
    default: view.notice = Self.help
    }
    return false
  }

  private func send(_ text: String) {
    let again = unanswered.flatMap { $0.to.isExactly(view.address) && $0.text.isExactly(text) ? $0.id : nil }
    let id = again ?? String(UInt64.random(in: .min ... .max), radix: 16)
    let fields: [(String, JSONValue)] = [("to", .string(view.address)), ("text", .string(text)), ("id", .string(id))]
    give(.post("/v1/send", .object(fields)))
  }

  private func react(_ emoji: String) {
    guard let chosen = view.chosen else { return view.notice = "no message to react to" }
    let number = JSONValue.integer(chosen[Shape.Message().id] ?? 0)
    give(.post("/v1/react", .object([("message", number), ("emoji", .string(emoji))])))
  }

  /// The newest sent message that fits.
  private func act(_ verb: String, _ fits: (JSONValue) -> Bool) {
    guard let id = view.ours.last(where: fits)?[Shape.Message().outgoing] else {
      return view.notice = "no message to \(verb)"
    }
    give(.post("/v1/outgoing/\(verb)".with(["id": id]), .object([])))
  }
}
