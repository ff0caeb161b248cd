// SPDX-License-Identifier: MIT

import Console
import ControlShapes
import Glibc
import JSON

/// The display of `meshpost top`, as lines for a screen of any size.
final class TopView {
  typealias Line = Styled

  private static let maxMessages = 200
  /// From this width on, messages and nodes are side by side.
  private static let wide = 76
  private static let nodesWidth = 34

  var status: JSONValue
  var radio = JSONValue.null
  var nodes: [JSONValue] = []
  var messages: [JSONValue] = []
  /// The last SNR of each sender. The key is the bytes of the sender's name.
  private var signals: [[UInt8]: Double] = [:]
  private static let maxSignals = 1000
  var trouble: String?
  var showsNodes = false

  init(status: JSONValue) { self.status = status }

  func add(_ message: JSONValue) {
    let row = Shape.Message()
    // A sent message is repeated with each new state.
    let known = message[row.outgoing].flatMap { key in messages.lastIndex { $0[row.outgoing] == key } }
    if let known { return messages[known] = message }
    messages.append(message)
    if messages.count > Self.maxMessages { messages.removeFirst(messages.count - Self.maxMessages) }
    if let name = message[row.senderName], let snr = message[row.snr] {
      if signals.count >= Self.maxSignals { signals = [:] }
      signals[Array(name.utf8)] = snr
    }
  }

  func lines(_ size: Terminal.Size) -> [Line] {
    var lines = head(size.columns)
    let room = max(0, size.rows - lines.count - 1)
    if size.columns >= Self.wide {
      lines += sideBySide(size.columns, room)
    } else {
      lines += showsNodes ? nodeLines(size.columns, room) : messageLines(size.columns, room)
    }
    while lines.count < size.rows - 1 { lines.append(Line("")) }
    let keys =
      size.columns >= Self.wide ? "q quit   Space refresh" : "q quit   Tab \(showsNodes ? "messages" : "nodes")"
    return lines + [Line(keys, .faint)]
  }

  // MARK: The head

  private func head(_ columns: Int) -> [Line] {
    let row = Shape.Status()
    let identity = status[row.radio]?[Shape.LinkState().identity]
    let name = Show.clean(identity?["name"]?.string ?? "no radio yet")
    let clock = Show.format(Int64(time(nil)) * 1000, "%H:%M:%S")
    let left =
      "\(name)  meshpost \(status[row.version] ?? "?"), up \(Self.span(status[row.uptimeS] ?? 0))"
    var lines = [Line(TextWidth.fit(left, to: max(0, columns - 9)) + " " + clock, .bold)]
    if let trouble { lines.append(Line("no answer: \(trouble)", .bad)) }
    lines += [radioLine(), syncLine()] + sendingLines() + upstreamLines()
    return lines
  }

  private func radioLine() -> Line {
    let row = Shape.LinkState()
    let state = status[Shape.Status().radio]?[row.state] ?? "?"
    var words = status[Shape.Status().radio]?[row.link] ?? ""
    if let error = status[Shape.Status().radio]?[row.error] { words = error }
    if let battery = radio[Shape.Radio().batteryMv], battery > 0 { words += ", \(Double(battery) / 1000) V" }
    if let noise = radio[Shape.Radio().stats]?["noise_floor_dbm"]?.integer { words += ", noise \(noise) dBm" }
    return "radio     \(state, state == "up" ? .good : .bad)\(" " + Show.clean(words))"
  }

  private func syncLine() -> Line {
    let row = Shape.SyncState()
    let sync = status[Shape.Status().sync] ?? .null
    let state = sync[row.state] ?? "?"
    var words = ""
    if let phase = sync[row.phase] { words += " \(phase) \(sync[row.current] ?? 0)" }
    if let reason = sync[row.reason] { words += ": \(reason)" }
    let store = status[Shape.Status().store] ?? .null
    let full = store[Shape.Store().error].map { ", \($0)" } ?? ""
    let messages = Show.counted(store[Shape.Store().messages] ?? 0, "message")
    let nodes = Show.counted(store[Shape.Store().contacts] ?? 0, "node")
    let counts = "\(words); \(messages), \(nodes)"
    let style: Styled.Style = state == "synced" ? .good : state == "failed" ? .bad : .warning
    return "sync      \(state, style)\(counts)\(Show.clean(full), .bad)"
  }

  private func sendingLines() -> [Line] {
    let (messaging, row) = (status[Shape.Status().messaging] ?? .null, Shape.Messaging())
    let (used, limit) = (messaging[row.airtimeUsedMs] ?? 0, max(messaging[row.airtimeLimitMs] ?? 0, 1))
    let share = min(max(used, 0) * 100 / limit, 100)
    let bar = Int(share) / 10
    let air = String(repeating: "█", count: bar) + String(repeating: "░", count: 10 - bar)
    let words = "sending   \(messaging[row.waiting] ?? 0) waiting, \(messaging[row.inFlight] ?? 0) in flight; air "
    let use = "\(air) \(share) %"
    return ["\(words)\(use, share > 80 ? .warning : .plain)"]
  }

  private func upstreamLines() -> [Line] {
    let row = Shape.Upstream()
    let upstreams = status[Shape.Status().upstreams]
    let most = 4
    var lines = upstreams.prefix(most).map { upstream -> Line in
      let state = upstream[row.state] ?? "?"
      let style: Styled.Style = ["idle": .good, "sending": .good, "stopped": .bad][state] ?? .warning
      let pending = upstream[row.pending] ?? 0
      let reason = upstream[row.reason].map { ": \(Show.clean($0))" } ?? ""
      let stopped = Show.stopped(upstream[row.allowance]).map { "; \($0)" } ?? ""
      let name = TextWidth.fit(Show.clean(upstream[row.name]), to: 9) + " "
      return "\(name)\(state, style)\(", \(pending) pending\(reason)\(stopped)")"
    }
    if upstreams.count > most { lines.append(Line("          and \(upstreams.count - most) more upstreams", .faint)) }
    return lines
  }

  // MARK: Messages and nodes

  private func sideBySide(_ columns: Int, _ room: Int) -> [Line] {
    let left = nodeLines(Self.nodesWidth, room), width = columns - Self.nodesWidth - 3
    let right = messageLines(width, room)
    return (0..<room).map { row -> Line in
      let node = row < left.count ? left[row] : ""
      let gap = String(repeating: " ", count: max(0, Self.nodesWidth - TextWidth.of(node.text))) + " │ "
      let message = row < right.count ? right[row] : ""
      return "\(node)\(gap, .faint)\(message)"
    }
  }

  private func nodeLines(_ columns: Int, _ room: Int) -> [Line] {
    let row = Shape.Contact()
    guard room > 0 else { return [] }
    let now = Int64(time(nil)) * 1000
    var lines = [Line(TextWidth.fit("heard", to: max(0, columns - 13)) + "   dB  hops", .faint)]
    if nodes.isEmpty { lines.append(Line("nobody yet", .faint)) }
    for node in nodes.prefix(room - 1) {
      let age = Self.span(max(0, now - (node[row.lastHeard] ?? now)) / 1000)
      let plain = node[row.name] ?? ""
      let name = Show.clean(Show.shownName(node[row.alias], plain, key: node[row.key]))
      let signal = signals[Array(plain.utf8)].map { "\(Int(saturating: $0.rounded()))" } ?? "·"
      let hops = node[row.hops].map { "\($0)" } ?? "~"
      let left = TextWidth.fit("\(TextWidth.fit(age, to: 4)) \(name)", to: max(0, columns - 13))
      lines.append(Line(left + String(repeating: " ", count: max(0, 5 - signal.count)) + signal + "   " + hops))
    }
    return lines
  }

  /// The messages, with the newest at the bottom. It wraps long ones.
  private func messageLines(_ columns: Int, _ room: Int) -> [Line] {
    var lines: [Line] = []
    for message in messages.reversed() where lines.count < room {
      let wrapped = TextWidth.wrap(Self.words(message), to: columns, indent: 6)
      let styled = wrapped.enumerated().map { number, text -> Line in
        number == 0 ? "\(String(text.prefix(5)), .faint)\(String(text.dropFirst(5)))" : Line(text)
      }
      lines = styled + lines
    }
    // Those that are stored arrive after the first picture.
    let stored = status[Shape.Status().store]?[Shape.Store().messages]
    if lines.isEmpty { return [Line(stored == 0 ? "no messages yet" : "waiting for messages", .faint)] }
    return Array(lines.suffix(room))
  }

  private static func words(_ message: JSONValue) -> String {
    let row = Shape.Message()
    let at = Show.format(message[row.receivedAt] ?? 0, "%H:%M")
    let place = message[row.channelName].map { "[\(Show.clean($0))] " } ?? ""
    let text = message[row.text].map { Show.clean($0) } ?? "data \(message[row.data] ?? "")"
    if Show.isOurs(message) { return "\(at) \(place)\(Show.ours(message)): \(text)  \(Show.mark(message))" }
    let sender = Show.speaker(Show.shownName(message[row.authorName], key: nil) ?? Show.sender(of: message))
    return "\(at) \(place)\(sender): \(text)"
  }

  private static func span(_ seconds: Int64) -> String {
    switch seconds {
    case ..<60: "\(seconds)s"
    case ..<3600: "\(seconds / 60)m"
    case ..<86_400: "\(seconds / 3600)h"
    default: "\(seconds / 86_400)d"
    }
  }
}
