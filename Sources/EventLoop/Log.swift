// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Lines on standard error as journald likes them: a priority, no time (journald has its own), no secrets.
///
/// With `JOURNAL_STREAM` set the line begins with `<N>`, which journald takes for the priority; on a terminal with the
/// level's word.
public final class Log {
  public enum Level: Int, Comparable, Sendable {
    case error = 3, warning = 4, notice = 5, info = 6, debug = 7

    public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }

    public init?(name: String) {
      switch name {
      case "error": self = .error
      case "warning": self = .warning
      case "notice": self = .notice
      case "info": self = .info
      case "debug": self = .debug
      default: return nil
      }
    }

    public static let names = "error, warning, notice, info, debug"
    var word: String { ["error", "warning", "notice", "info", "debug"][rawValue - 3] }
  }

  /// The least important level that is still written.
  public var level: Level
  private let forJournal: Bool
  private let sink: ((Level, String) -> Void)?

  public init(level: Level = .info, sink: ((Level, String) -> Void)? = nil) {
    self.level = level
    self.sink = sink
    forJournal = getenv("JOURNAL_STREAM") != nil
  }

  public func error(_ text: @autoclosure () -> String) { write(.error, text) }
  public func warning(_ text: @autoclosure () -> String) { write(.warning, text) }
  public func notice(_ text: @autoclosure () -> String) { write(.notice, text) }
  public func info(_ text: @autoclosure () -> String) { write(.info, text) }
  public func debug(_ text: @autoclosure () -> String) { write(.debug, text) }

  /// A level that is known only at run time.
  public func log(_ level: Level, _ text: @autoclosure () -> String) { write(level, text) }

  private func write(_ level: Level, _ text: () -> String) {
    guard level <= self.level else { return }
    // One line each: a line break in a name from the air must not forge a line of its own.
    let line = String(text().map { $0.isNewline ? " " : $0 })
    if let sink { return sink(level, line) }
    let whole = (forJournal ? "<\(level.rawValue)>" : "\(level.word): ") + line + "\n"
    whole.utf8.withContiguousStorageIfAvailable { bytes in
      _ = Glibc.write(2, bytes.baseAddress, bytes.count)  // nowhere is left to report that it failed
    }
  }
}

/// The time of day and whether it can be trusted.
public struct WallClock: Sendable {
  public init() {}

  /// Milliseconds since 1970 UTC.
  public var milliseconds: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) &* 1000 &+ Int64(time.tv_nsec) / 1_000_000
  }

  public var seconds: Int64 { milliseconds / 1000 }

  /// Whether the kernel counts the clock as synchronised (NTP, GPS). False on a Pi before its first sync.
  public var isSynchronised: Bool {
    var state = timex()
    let clock = adjtimex(&state)
    return clock >= 0 && clock != TIME_ERROR && state.status & STA_UNSYNC == 0
  }
}
