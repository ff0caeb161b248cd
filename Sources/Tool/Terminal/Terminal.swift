// SPDX-License-Identifier: MIT

import CLinux
import Console
import EventLoop
import Glibc
import Timing
import UntrustedText

/// The terminal as a full screen: raw keys, and the alternate screen. It sends only changed lines.
///
/// A slow connection gets fewer updates, but no outdated ones. Sockets and modems on the way may queue output, so each update ends with a query
/// (device status report), and the next update waits for the terminal's answer.
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

  /// The longest wait for an answer. After it, updates do not wait until an answer comes: many terminals do not support the query.
  private static let answerLimit: Duration = .seconds(15)
  /// The same for a terminal that has not answered yet: its user would take a longer one for a frozen screen.
  private static let firstAnswerLimit: Duration = .seconds(1)
  private static let escapeLimit: Duration = .milliseconds(80)

  /// The picture: at most one line for each row. `cursor`: `nil` hides it.
  struct Picture {
    var lines: [Styled]
    var cursor: (row: Int, column: Int)?
  }

  private static let open = "\u{1B}[?1049h\u{1B}[?25l"
  private static let clear = "\u{1B}[2J"
  private static let close = "\u{1B}[0m\u{1B}[?25h\u{1B}[?1049l"

  private let loop: EventLoop
  private let input: Int32
  private let output: Int32
  private let hasColours: Bool
  private var saved = termios()
  private var size = Size(columns: 80, rows: 24)
  /// Output before the next update.
  private var lead = ""
  private var shown: [Styled] = []
  private var isDirty = false
  private let changed = Waiter()
  private var awaitsAnswer = false
  private let answered = Waiter()
  /// Whether updates end with the query.
  private var answers = true
  private var hasAnswered = false
  /// Bytes of an incomplete key.
  private var partial: [UInt8] = []

  /// `nil` without a terminal.
  init?(on loop: EventLoop) {
    self.loop = loop
    // Separate file descriptions, so that O_NONBLOCK does not affect the shell.
    input = Glibc.open("/dev/tty", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
    output = Glibc.open("/dev/tty", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
    let name = getenv("TERM").map { String(cString: $0) } ?? "dumb"
    hasColours = getenv("NO_COLOR") == nil && name != "dumb"
    guard input >= 0, output >= 0, isatty(1) == 1, tcgetattr(input, &saved) == 0 else {
      Descriptor.close(input)
      Descriptor.close(output)
      return nil
    }
  }

  /// Runs `screen` until it returns or a signal ends it; meanwhile the terminal is a full screen that shows `picture`. In any case it restores the
  /// terminal.
  func run(_ picture: @escaping (Size) -> Picture, _ screen: @escaping () async throws -> Void) throws {
    enter()
    defer { restore() }
    let numbers = Mailbox<Int32>(bound: 64)
    // Most signals at once: further ones have no more information.
    let signals = Signals([SIGWINCH, SIGTERM, SIGINT, SIGHUP], on: loop) { _ = numbers.put($0) }
    var failure: (any Error)?
    loop.run { [self] in
      do {
        try await loop.race(
          screen, { try await self.paint(picture) }, { try await self.untilEnded(by: numbers) })
      } catch {
        failure = error
      }
    }
    withExtendedLifetime(signals) {}
    if let failure { throw failure }
  }

  private func enter() {
    var raw = saved
    cfmakeraw(&raw)
    tcsetattr(input, TCSANOW, &raw)
    measure()
    lead = Self.open + Self.clear
    refresh()
  }

  private func restore() {
    // The shell must not get a late answer as input.
    var waiting = pollfd(fd: input, events: Int16(POLLIN), revents: 0)
    if awaitsAnswer || !hasAnswered, poll(&waiting, 1, 500) > 0 { tcflush(input, TCIFLUSH) }
    // Output that is still queued is no longer needed.
    tcflush(output, TCOFLUSH)
    let flags = fcntl(output, F_GETFL)
    _ = fcntl(output, F_SETFL, flags & ~O_NONBLOCK)
    let end = Array(Self.close.utf8)
    _ = Glibc.write(output, end, end.count)  // the terminal may be gone
    tcsetattr(input, TCSANOW, &saved)
    Descriptor.close(input)
    Descriptor.close(output)
  }

  private func untilEnded(by signals: Mailbox<Int32>) async throws {
    while let signal = try await signals.next(), signal == SIGWINCH { resized() }
  }

  private func measure() {
    var window = winsize()
    if ioctl(output, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 {
      size = Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
    }
  }

  private func resized() {
    measure()
    (lead, shown) = (Self.clear, [])
    answer()
    refresh()
  }

  /// Draws again after a change.
  func refresh() {
    isDirty = true
    changed.resume()
  }

  // MARK: Out

  /// Draws updates one after another; each shows the state at its start.
  private func paint(_ picture: (Size) -> Picture) async throws {
    while true {
      while !isDirty { try await changed.wait() }
      isDirty = false
      let text = update(to: picture(size))
      guard !text.isEmpty else { continue }
      awaitsAnswer = answers
      try await write(answers ? text + "\u{1B}[5n" : text)
      try await untilDrawn()
    }
  }

  /// The output that changes the screen into this picture.
  private func update(to picture: Picture) -> String {
    let lines = (0..<size.rows).map { $0 < picture.lines.count ? picture.lines[$0] : "" }
    var text = lead
    for (row, line) in lines.enumerated() where row >= shown.count || shown[row] != line {
      text += "\u{1B}[\(row + 1);1H" + code(line) + "\u{1B}[K"
    }
    (lead, shown) = ("", lines)
    if let cursor = picture.cursor {
      text += "\u{1B}[\(cursor.row + 1);\(min(cursor.column, size.columns - 1) + 1)H\u{1B}[?25h"
    } else if !text.isEmpty {
      text += "\u{1B}[?25l"
    }
    return text
  }

  private func write(_ text: String) async throws {
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
      switch Descriptor.write(output, rest) {
      case .wrote(let count): rest = rest.dropFirst(count)
      case .wouldBlock: _ = try await loop.wait(for: .writable, of: output)
      case .failed: return  // it is gone, as whoever waits for keys learns
      }
    }
  }

  private func untilDrawn() async throws {
    let limit = loop.now + (hasAnswered ? Self.answerLimit : Self.firstAnswerLimit)
    while awaitsAnswer, loop.now < limit { try await answered.wait(until: limit, on: loop) }
    if awaitsAnswer { (answers, awaitsAnswer) = (false, false) }
  }

  private func answer() {
    awaitsAnswer = false
    answered.resume()
  }

  private func code(_ line: Styled) -> String {
    var left = size.columns
    return line.pieces.map { piece in
      let text = TextWidth.cut(Visible.line(piece.text), to: left)
      left -= TextWidth.of(text)
      guard hasColours, piece.style != .plain else { return text }
      return "\u{1B}[\(piece.style.rawValue)m\(text)\u{1B}[0m"
    }.joined()
  }

  // MARK: In

  /// The next key; `nil`: the terminal is gone.
  func key() async throws -> Key? {
    while true {
      while let (key, count) = KeyReader.next(partial) {
        partial.removeFirst(count)
        if key == .drawn {
          (answers, hasAnswered) = (true, true)
          answer()
        } else if let key {
          return key
        }
      }
      switch Descriptor.read(input) {
      case .bytes(let bytes): partial += bytes
      case .wouldBlock: if try await !hasMore() { return .escape }
      case .end, .failed: return nil
      }
    }
  }

  /// False: no byte follows the Escape byte, so it is the Escape key.
  private func hasMore() async throws -> Bool {
    let limit = partial.first == 0x1B ? loop.now + Self.escapeLimit : nil
    if try await loop.wait(for: .readable, of: input, until: limit) { return true }
    partial = []
    return false
  }
}
