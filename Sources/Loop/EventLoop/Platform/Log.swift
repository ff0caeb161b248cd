// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing
import UntrustedText

/// Writes log lines on standard error, as journald expects them: a priority, no time (journald adds its own), no
/// secrets.
///
/// If standard error leads to journald (`JOURNAL_STREAM`), lines go to journald's own socket with fields: the upstream,
/// link or client that a line is about. On a terminal they begin with the level's word. The newest are remembered for a
/// report.
public final class Log {
  /// Severities; the numbers are those of sd-daemon(3).
  public enum Level: Int, Comparable, Sendable {
    case error = 3, warning, notice, info, debug

    public static let names = ["error", "warning", "notice", "info", "debug"]

    public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }

    public init?(name: String) {
      guard let place = Self.names.firstIndex(of: name) else { return nil }
      self.init(rawValue: Self.error.rawValue + place)
    }

    public var word: String { Self.names[rawValue - Self.error.rawValue] }
  }

  /// Whether this program's standard error leads to journald, according to systemd and in fact.
  public static let isJournal = JournalSocket.isStandardErrorJournal

  /// Fields by which journald finds a line.
  public enum Field: String, Sendable {
    case link = "MESHPOST_LINK"
    case upstream = "MESHPOST_UPSTREAM"
    case client = "MESHPOST_CLIENT"
  }

  /// The state that a log shares with those derived from it.
  private final class Shared {
    var level: Level
    var recent = RecentLines()
    let journal = JournalSocket()
    let clock: WallClock
    let sink: ((Level, String) -> Void)?

    init(_ level: Level, _ clock: WallClock, _ sink: ((Level, String) -> Void)?) {
      self.level = level
      self.clock = clock
      self.sink = sink
    }
  }

  private let shared: Shared
  private let fields: [(Field, String)]

  /// `clock`: gives the times of remembered lines.
  public init(level: Level = .info, clock: WallClock = WallClock(), sink: ((Level, String) -> Void)? = nil) {
    shared = Shared(level, clock, sink)
    fields = []
  }

  private init(_ shared: Shared, _ fields: [(Field, String)]) {
    self.shared = shared
    self.fields = fields
  }

  /// The same log, with a field in each line.
  public func about(_ field: Field, _ value: String) -> Log { Log(shared, fields + [(field, value)]) }

  /// The least important level that is still written.
  public var level: Level {
    get { shared.level }
    set { shared.level = newValue }
  }

  /// The newest lines, oldest first, each with the time of writing (milliseconds since 1970).
  public var recent: [(at: Int64, level: Level, text: String)] { shared.recent.lines }

  public func error(_ text: @autoclosure () -> String) { write(.error, text) }
  public func warning(_ text: @autoclosure () -> String) { write(.warning, text) }
  public func notice(_ text: @autoclosure () -> String) { write(.notice, text) }
  public func info(_ text: @autoclosure () -> String) { write(.info, text) }
  public func debug(_ text: @autoclosure () -> String) { write(.debug, text) }

  /// Writes a line of a level that is known only at run time.
  public func log(_ level: Level, _ text: @autoclosure () -> String) { write(level, text) }

  private func write(_ level: Level, _ text: () -> String) {
    guard level <= self.level else { return }
    // One line, without control characters: names come over the air and words from servers, and logs are read on
    // terminals.
    let line = Visible.line(text())
    // Debug lines are too many to remember.
    if level < .debug { shared.recent.add(shared.clock.milliseconds, level, line) }
    if let sink = shared.sink { return sink(level, line) }
    if shared.journal.send(level.rawValue, line, fields.map { ($0.0.rawValue, $0.1) }) { return }
    let whole = (shared.journal.isWanted ? "<\(level.rawValue)>" : "\(level.word): ") + line + "\n"
    whole.utf8.withContiguousStorageIfAvailable { bytes in
      _ = Glibc.write(2, bytes.baseAddress, bytes.count)  // there is no place left to report a failure
    }
  }
}

/// The newest lines of a log, each cut to a length in bytes.
private struct RecentLines {
  private static let most = 100
  private static let longest = 300

  private(set) var lines: [(at: Int64, level: Log.Level, text: String)] = []

  mutating func add(_ at: Int64, _ level: Log.Level, _ text: String) {
    if lines.count == Self.most { lines.removeFirst() }
    lines.append((at, level, text.cut(toBytes: Self.longest)))
  }
}
