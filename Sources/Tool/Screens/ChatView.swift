// SPDX-License-Identifier: MIT

import Console
import ControlShapes
import JSON
import UntrustedText

/// The screen of `meshpost chat`: the conversation, a notice line, and an input line.
final class ChatView {
  typealias Line = Styled

  private(set) var target: JSONValue
  /// The conversation, in order.
  var messages: [JSONValue] = [] { didSet { isRead = true } }
  /// Whether the gateway has said what the conversation contains.
  private var isRead = false
  var names: [String] = []
  var channels: [String] = []
  var notice: String?
  private(set) var editor = LineEditor()
  /// Counted from the newest; `nil`: none is selected.
  private var choice: Int?
  /// The text at the first Tab, and the index of the shown name: the next Tab shows the next name.
  private var completion: (stem: String, shown: String, place: Int)?

  init(_ target: JSONValue) { self.target = target }

  var isChannel: Bool { target["kind"]?.string == "channel" }
  /// The recipient in the form of `send`: a key or a digest, because two may have one name.
  var address: String { target["key"]?.string ?? target["channel"]?.string ?? "" }

  func change(to target: JSONValue) {
    self.target = target
    (messages, choice) = ([], nil)
    isRead = false
  }

  /// The gateway has carried out what was typed.
  func said() { choice = nil }

  /// A line that had no success, before what was typed meanwhile.
  func putBack(_ line: String) { editor.set(editor.text.isEmpty ? line : "\(line) \(editor.text)") }

  /// Notes a received message, perhaps of another conversation.
  func noticed(_ message: JSONValue) {
    guard !belongs(message) else { return }
    let place = message[Shape.Message().channelName].map { " in \($0)" } ?? ""
    let row = Shape.Message()
    let sender = Show.shownName(message[row.senderName], key: message[row.sender]) ?? "somebody"
    notice = "new message from \(sender)\(place)"
  }

  // MARK: The conversation

  private func belongs(_ message: JSONValue) -> Bool {
    if isChannel { return message[Shape.Message().channel] == target["channel"]?.string }
    guard message[Shape.Message().channel] == nil, let sender = message[Shape.Message().sender] else { return false }
    return target["key"]?.string?.hasPrefix(sender) ?? false
  }

  /// Sent messages of this conversation, oldest first.
  var ours: [JSONValue] { messages.filter(Show.isOurs) }

  /// The selected message, or the newest received one.
  var chosen: JSONValue? {
    if let choice, choice < messages.count { return messages[messages.count - 1 - choice] }
    return messages.last { !Show.isOurs($0) }
  }

  // MARK: Keys

  func take(_ key: Terminal.Key) {
    if editor.take(key) {
      completion = nil
      return
    }
    switch key {
    case .up: choose(by: 1)
    case .down: choose(by: -1)
    case .pageUp: choose(by: 10)
    case .pageDown: choose(by: -10)
    default: break
    }
  }

  private func choose(by step: Int) {
    let place = (choice ?? -1) + step
    choice = place < 0 || messages.isEmpty ? nil : min(place, messages.count - 1)
  }

  /// Completes names after `/to`, and mentions: `@[Name]`.
  func complete() {
    let isTarget = editor.text.hasPrefix("/to ")
    let typed = isTarget ? String(editor.text.dropFirst(4)) : editor.word
    let goesOn = completion.map { $0.shown == typed } ?? false
    let stem = goesOn ? completion?.stem ?? typed : typed
    let bare = isTarget ? stem : String(stem.drop { $0 == "@" || $0 == "[" })
    guard !bare.isEmpty || isTarget else { return }
    let fitting = (isTarget ? channels + names : people).filter { $0.lowercased().hasPrefix(bare.lowercased()) }
    guard !fitting.isEmpty else { return notice = "no name begins with \(bare)" }
    let place = goesOn ? ((completion?.place ?? 0) + 1) % fitting.count : 0
    // A space in a name would end the word to complete.
    let shown = isTarget ? fitting[place] : "@[\(fitting[place])]"
    if isTarget { editor.set("/to \(shown)") } else { replaceWord(with: shown, goesOn) }
    completion = (stem, isTarget ? shown : editor.word, place)
  }

  private func replaceWord(with shown: String, _ goesOn: Bool) {
    // The last completion may contain spaces: replace all of it.
    if goesOn, let place = editor.text.lastPlace(of: "@[") {
      editor.set(String(editor.text[..<place]) + shown)
    } else {
      editor.replaceWord(with: shown)
    }
  }

  /// The latest senders here first, then all others.
  private var people: [String] {
    var known: [String] = []
    let here = messages.filter { !Show.isOurs($0) }.compactMap { $0[Shape.Message().senderName] }
    for name in here.reversed() + names where !known.contains(where: { $0.isExactly(name) }) {
      known.append(name)
    }
    return known
  }

  // MARK: Drawing

  func lines(_ size: Terminal.Size) -> ([Line], (row: Int, column: Int)) {
    let room = max(0, size.rows - 3)
    var body: [Line] = []
    for (place, message) in messages.reversed().enumerated() where body.count < room || place <= (choice ?? -1) {
      // Without room for both, messages newer than the selected one are cut off.
      body = draw(message, size.columns, isChosen: place == choice) + body
      if let choice, place == choice, body.count > room { body = Array(body.prefix(room)) }
    }
    if messages.isEmpty { body = [Line(isRead ? "no messages yet" : "reading the messages …", .faint)] }
    body = choice == nil ? body.suffix(room) : body.prefix(max(room, 0)).map { $0 }
    let empty = Array(repeating: Line(""), count: max(0, room - body.count))
    let hint =
      notice.map(Show.clean) ?? failure ?? "Enter sends, Tab completes, /to /react /retry /cancel /quit"
    let (text, cursor) = editor.window(size.columns - 3)
    let prompt: Line = "\("> ", .accent)\(text)"
    let lines = [Line(title(size.columns), .bold)] + empty + body + [Line(hint, .faint), prompt]
    return (Array(lines.suffix(size.rows)), (max(size.rows - 1, 0), cursor + 2))
  }

  /// The remedy for a failed message, if it is selected or the last one.
  private var failure: String? {
    let shown = choice.flatMap { $0 < messages.count ? messages[messages.count - 1 - $0] : nil } ?? messages.last
    guard let shown, Show.isOurs(shown), shown[Shape.Message().reason] != nil else { return nil }
    return Show.hint(of: shown).map { $0.replacing("`meshpost retry ID`", with: "/retry") }
  }

  private func title(_ columns: Int) -> String {
    let name = Show.clean(Show.shownName(target["name"]?.string, key: target["key"]?.string) ?? "?")
    if isChannel { return TextWidth.cut("channel \(name)", to: columns) }
    let hops = target["hops"]?.integer.map { $0 == 0 ? ", direct" : ", \(Show.counted($0, "hop"))" } ?? ""
    let away = target["on_radio"]?.bool == false ? ", not on the radio" : ""
    return TextWidth.cut("\(name) (\(target["type"]?.string ?? "?")\(hops)\(away))", to: columns)
  }

  private func draw(_ message: JSONValue, _ columns: Int, isChosen: Bool) -> [Line] {
    let isOurs = Show.isOurs(message)
    let author = Show.shownName(message[Shape.Message().authorName], key: nil) ?? Show.sender(of: message)
    let tail = (isOurs ? "  " + Show.mark(message) : "") + Show.reactions(to: message)
    let text = message[Shape.Message().text].map { Show.clean($0) } ?? "data"
    let words =
      "\(Show.format(message[Shape.Message().receivedAt] ?? 0, "%H:%M")) \(isOurs ? "me" : Show.speaker(author)): \(text)\(tail)"
    let style: Styled.Style = message[Shape.Message().state] == "failed" ? .bad : isOurs ? .good : .plain
    return TextWidth.wrap(words, to: columns - 1, indent: 6).enumerated().map { number, line -> Line in
      "\(isChosen && number == 0 ? "▸" : " ", .accent)\(line, style)"
    }
  }

}

extension String {
  /// Where the last occurrence begins.
  fileprivate func lastPlace(of mark: String) -> Index? {
    indices.last { self[$0...].hasPrefix(mark) }
  }
}
