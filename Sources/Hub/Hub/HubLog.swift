// SPDX-License-Identifier: MIT

import Console
import EventLoop
import Logging
import Synchronization
import UntrustedText

/// The hub's log: lines on standard error, for a service manager.
public enum HubLog {
  public typealias Level = Log.Level

  typealias Write = @Sendable (Level, String) -> Void

  private static let most = Mutex(Level.info)

  /// Lines of less severe levels are not written.
  public static var level: Level {
    get { most.withLock { $0 } }
    set { most.withLock { $0 = newValue } }
  }

  /// A logger for the libraries that the hub uses.
  static func logger(_ label: String) -> Logger { Logger(label: label) { _ in HubLogHandler() } }

  /// Writes a line of at most 1000 bytes. `Console` replaces unsafe characters.
  public static func write(_ level: Level, _ words: String) {
    guard level <= self.level else { return }
    Console.error("\(prefix(level))\(level.word): \(words.cut(toBytes: 1000))")
  }

  /// Makes the text only if it writes it.
  static func debug(_ words: @autoclosure () -> String) { if level == .debug { write(.debug, words()) } }

  /// The journal reads the priority at the beginning of the line, and does not show it. Source: sd-daemon(3).
  private static func prefix(_ level: Level) -> String { Log.isJournal ? "<\(level.rawValue)>" : "" }
}

/// Writes libraries' messages from swift-log: warnings and errors. At lower levels, Hummingbird logs each request with its address.
struct HubLogHandler: LogHandler {
  var metadata: Logger.Metadata = [:]
  var logLevel = Logger.Level.warning

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    HubLog.write(event.level >= .error ? .error : .warning, "\(event.message)")
  }
}

/// Limits a frequent line to once a minute, with the number of repetitions.
final class ThrottledLog: Sendable {
  private static let pause: Duration = .seconds(60)

  private let log: HubLog.Write
  private let state = Mutex((until: ContinuousClock.Instant?.none, leftOut: 0))

  init(_ log: @escaping HubLog.Write) { self.log = log }

  func say(_ words: String, now: ContinuousClock.Instant = .now) {
    let leftOut = state.withLock { state -> Int? in
      if let until = state.until, now < until {
        state.leftOut += 1
        return nil
      }
      defer { state = (now + Self.pause, 0) }
      return state.leftOut
    }
    guard let leftOut else { return }
    log(.warning, leftOut == 0 ? words : "\(words) (repetitions in the last minutes: \(leftOut))")
  }
}

/// Logs refused tokens, one line each, for tools such as fail2ban. It limits the lines a minute, for each address and in total. It never writes the
/// token.
final class RefusedLogins: Sendable {
  static let maxOfOne = 10
  static let maxOfAll = 60

  private struct State {
    var since = ContinuousClock.now
    var counts: [String: Int] = [:]
    var written = 0
    var leftOut = 0
  }

  private let log: HubLog.Write
  private let state = Mutex(State())

  init(_ log: @escaping HubLog.Write) { self.log = log }

  func note(
    from address: String, _ words: String, _ method: String, _ path: String, now: ContinuousClock.Instant = .now
  ) {
    let (says, leftOut) = state.withLock { state -> (Bool, Int) in
      var before = 0
      if now - state.since >= .seconds(60) {
        before = state.leftOut
        state = State(since: now)
      }
      let count = state.counts[address] ?? 0
      guard count < Self.maxOfOne, state.written < Self.maxOfAll else {
        state.leftOut += 1
        return (false, before)
      }
      state.counts[address] = count + 1
      state.written += 1
      return (true, before)
    }
    if leftOut > 0 { log(.warning, "\(leftOut) more logins refused in the last minutes") }
    if says { log(.warning, "login refused from \(address): \(words) (\(method) \(path.prefix(200)))") }
  }
}
