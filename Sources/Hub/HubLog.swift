// SPDX-License-Identifier: MIT

import Console
import Escaping
import Synchronization

/// The hub's log: lines on standard error, as a service manager keeps them.
public enum HubLog {
  /// Severities as systemd and people know them.
  public enum Level: String, Sendable { case error, warning, notice }
  typealias Write = @Sendable (Level, String) -> Void

  /// Unsafe characters are replaced on output; a line is cut at 1000 bytes.
  public static func write(_ level: Level, _ words: String) {
    Console.error("\(level.rawValue): \(words.cut(toBytes: 1000))")
  }
}

/// Limits a frequent line to once a minute, with the number of repetitions.
final class RareLine: Sendable {
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
    log(.warning, leftOut == 0 ? words : "\(words) (repeated \(leftOut) times in the last minutes)")
  }
}

/// Tokens that were not taken, one line each, so that tools such as fail2ban can act on them: of each address so many a
/// minute, and so many altogether. The token is never written.
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
