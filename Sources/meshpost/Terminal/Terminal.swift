// SPDX-License-Identifier: MIT

import CLinux
import Console
import Escaping
import EventLoop
import Glibc

/// The terminal as a full screen: raw keys, the alternate screen, and only changed lines are sent.
///
/// A slow line gets fewer updates, not outdated ones. Output may be queued in sockets and modems on the way, so each update ends
/// with a query (device status report), and the next waits for the terminal's answer.
final class Terminal {
  struct Size: Equatable {
    var columns: Int
    var rows: Int
  }

  enum Key: Equatable {
    case character(Character)
    case enter, backspace, tab, escape, up, down, left, right, home, end, delete, pageUp, pageDown
    case control(Character)
    /// The terminal's answer: it has drawn everything up to the query.
    case drawn
  }

  /// A terminal that has not answered by then does not support the query; later updates do not wait for it.
  private static let answerLimit: Duration = .seconds(15)

  typealias Style = Styled.Style

  struct Line: Equatable {
    var pieces: [(style: Style, text: String)]

    init(_ text: String, _ style: Style = .plain) { pieces = [(style, text)] }
    init(_ pieces: [(Style, String)]) { self.pieces = pieces.map { ($0.0, $0.1) } }

    static func == (left: Line, right: Line) -> Bool {
      left.pieces.elementsEqual(right.pieces) { $0.style == $1.style && $0.text == $1.text }
    }
  }

  private let loop: EventLoop
  private let descriptor: Int32
  private var saved = termios()
  private var signals: Signals?
  private var shown: [Line] = []
  private var pending: [UInt8] = []
  private var isDirty = false
  private var awaitsAnswer = false
  private var answers = true
  private var answerTimer: LoopTimer?
  private let hasColours: Bool
  private var partial: [UInt8] = []
  private var escapeTimer: LoopTimer?
  private(set) var size = Size(columns: 80, rows: 24)
  /// The cursor's position; `nil`: hidden.
  var cursor: (row: Int, column: Int)?
  /// The lines to show, at most one for each row.
  var draw: (Size) -> [Line] = { _ in [] }
  var onKey: (Key) -> Void = { _ in }

  /// `nil` without a terminal.
  init?(on loop: EventLoop) {
    self.loop = loop
    // A separate file description, so that O_NONBLOCK does not affect the shell.
    descriptor = open("/dev/tty", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
    let name = getenv("TERM").map { String(cString: $0) } ?? "dumb"
    hasColours = getenv("NO_COLOR") == nil && name != "dumb"
    guard descriptor >= 0, isatty(1) == 1, tcgetattr(descriptor, &saved) == 0 else {
      if descriptor >= 0 { close(descriptor) }
      return nil
    }
  }

  /// Runs until the loop is stopped, and restores the terminal.
  func run() {
    var raw = saved
    cfmakeraw(&raw)
    tcsetattr(descriptor, TCSANOW, &raw)
    send("\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J")
    signals = Signals([SIGWINCH, SIGTERM, SIGINT, SIGHUP], on: loop) { [weak self] signal in
      if signal == SIGWINCH { self?.resized() } else { self?.loop.stop() }
    }
    loop.watch(descriptor, for: .readable) { [weak self] readiness in self?.ready(readiness) }
    resized()
    loop.run()
    restore()
  }

  private func restore() {
    loop.unwatch(descriptor)
    // An answer on its way must not end up in the shell's input.
    var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    if awaitsAnswer, poll(&waiting, 1, 500) > 0 { tcflush(descriptor, TCIFLUSH) }
    // Output that is still queued is no longer needed.
    tcflush(descriptor, TCOFLUSH)
    let flags = fcntl(descriptor, F_GETFL)
    _ = fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK)
    let end = Array("\u{1B}[0m\u{1B}[?25h\u{1B}[?1049l".utf8)
    _ = write(descriptor, end, end.count)  // the terminal may be gone
    tcsetattr(descriptor, TCSANOW, &saved)
    close(descriptor)
  }

  private func resized() {
    var window = winsize()
    if ioctl(descriptor, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 {
      size = Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
    }
    awaitsAnswer = false
    shown = []
    send("\u{1B}[2J")
    refresh()
  }

  /// Redraws after a change.
  func refresh() {
    isDirty = true
    loop.later { [weak self] in self?.paint() }
  }

  // MARK: Out

  private func paint() {
    guard isDirty, pending.isEmpty, !awaitsAnswer else { return }
    isDirty = false
    let lines = Array(draw(size).prefix(size.rows))
    var text = ""
    for row in 0..<size.rows {
      let line = row < lines.count ? lines[row] : Line("")
      if row < shown.count, shown[row] == line { continue }
      text += "\u{1B}[\(row + 1);1H" + code(line) + "\u{1B}[K"
    }
    shown = (0..<size.rows).map { $0 < lines.count ? lines[$0] : Line("") }
    if let cursor {
      text += "\u{1B}[\(cursor.row + 1);\(min(cursor.column, size.columns - 1) + 1)H\u{1B}[?25h"
    } else if !text.isEmpty {
      text += "\u{1B}[?25l"
    }
    guard !text.isEmpty else { return }
    if answers { text += "\u{1B}[5n" }
    awaitsAnswer = answers
    answerTimer?.cancel()
    answerTimer = loop.schedule(after: Self.answerLimit) { [weak self] in
      guard let self, self.awaitsAnswer else { return }
      (self.answers, self.awaitsAnswer) = (false, false)
      self.paint()
    }
    send(text)
  }

  private func drawn() {
    awaitsAnswer = false
    loop.later { [weak self] in self?.paint() }
  }

  private func code(_ line: Line) -> String {
    var left = size.columns
    return line.pieces.map { piece in
      let text = TextWidth.cut(Visible.line(piece.text), to: left)
      left -= TextWidth.of(text)
      guard hasColours, piece.style != .plain else { return text }
      return "\u{1B}[\(piece.style.rawValue)m\(text)\u{1B}[0m"
    }.joined()
  }

  private func send(_ text: String) {
    pending += Array(text.utf8)
    flush()
  }

  private func flush() {
    while !pending.isEmpty {
      guard case .wrote(let count) = Descriptor.write(descriptor, pending[...]) else { break }
      pending.removeFirst(count)
    }
    loop.changeInterest(descriptor, to: pending.isEmpty ? .readable : [.readable, .writable])
    if pending.isEmpty, isDirty { loop.later { [weak self] in self?.paint() } }
  }

  // MARK: In

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    while true {
      switch Descriptor.read(descriptor) {
      case .bytes(let bytes): take(bytes)
      case .wouldBlock: return
      case .end, .failed: return loop.stop()
      }
    }
  }

  private func take(_ bytes: [UInt8]) {
    escapeTimer?.cancel()
    partial += bytes
    while let (key, count) = KeyReader.next(partial) {
      partial.removeFirst(count)
      if key == .drawn { drawn() } else if let key { onKey(key) }
    }
    // Nothing follows an Escape key.
    if partial.first == 0x1B {
      escapeTimer = loop.schedule(after: .milliseconds(80)) { [weak self] in
        self?.partial = []
        self?.onKey(.escape)
      }
    }
  }
}
