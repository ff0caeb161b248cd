// SPDX-License-Identifier: MIT

import Store
import Timing

/// Decides on the turns of the dead letters that an operator wants sent again. Pure.
///
/// They go one at a time, in the order in which they became dead letters. One that the server neither takes nor refuses goes behind the others, so
/// that none stands before another. The first round goes ahead of the events that wait, the later ones behind them.
///
/// A server that fails over a letter, by its own answer, may still take all events, which do not wait for it then: only the next letter does, for a
/// time that grows with each round, and with many failures in a row.
struct DeadLetterRetries {
  /// Dead letters may be marked for a retry.
  private(set) var areMarked = true
  /// The next one is the first after this one (`DeadLetter.id`).
  private(set) var after: Int64 = 0
  /// The last letter over which the server failed, and its words.
  private(set) var failure: (seq: Int64, reason: String)?
  /// After a failure: when the next one may be tried.
  private var due: MonotonicTime?
  private var round = 0
  private var failures = 0
  /// The line, or the server as a whole, was in trouble at the last one: events come first.
  private var isInTrouble = false
  /// How often in a row the server hung up over a letter, by the letter's id.
  private var hangUps: [Int64: Int] = [:]
  /// Letters that the server has taken, and that the disk still keeps.
  private(set) var taken: Set<Int64> = []

  private static let maxHangUps = 3
  /// So many failures in a row double the pause.
  private static let failuresInARow = 16

  /// An operator wants them sent now.
  mutating func asked() { (areMarked, after, round, failures, due, isInTrouble) = (true, 0, 0, 0, nil, false) }

  /// A letter is the next to be sent.
  func isNext(eventsWait: Bool, now: MonotonicTime) -> Bool {
    guard areMarked, wait(now: now) == nil else { return false }
    return !eventsWait || round == 0 && !isInTrouble
  }

  /// The end of the pause before the next letter; `nil`: there is none.
  func wait(now: MonotonicTime) -> MonotonicTime? { due.flatMap { now < $0 ? $0 : nil } }

  /// There is no marked letter after `after`.
  mutating func reachedEnd() {
    if after == 0 {
      (areMarked, due, failure, hangUps) = (false, nil, nil, [:])
    } else {
      (after, round) = (0, round + 1)
    }
  }

  /// The reason of the hang-up after which the letter is not tried again; `nil`: it goes on. `isAlone`: trouble concerns this letter alone, as far as is
  /// known: the next event has a connection of its own, and finds out by itself.
  mutating func answered(
    _ verdict: Verdict, _ letter: Int64, seq: Int64, isAlone: Bool = false, now: MonotonicTime
  ) -> String? {
    let hadHungUp = hangUps.removeValue(forKey: letter) ?? 0
    if failure?.seq == seq { failure = nil }
    after = letter
    switch verdict {
    case .acknowledged, .refused:
      if case .acknowledged = verdict { taken.insert(letter) }
      (round, failures, due, isInTrouble) = (min(round, 1), 0, nil, false)
    case .failing(let reason, let after):
      setAside(seq, reason, after, now)
      // A server that names a time may be in trouble as a whole.
      isInTrouble = after != nil
    case .retry(let reason, let after) where isAlone, .busy(let reason, let after) where isAlone:
      setAside(seq, reason, after, now)
      isInTrouble = true
    case .stopped(let reason) where isAlone:
      setAside(seq, reason, nil, now)
      isInTrouble = true
    case .hungUp(let reason):
      isInTrouble = true
      guard hadHungUp + 1 < Self.maxHangUps else { return reason }
      hangUps[letter] = hadHungUp + 1
    case .retry, .busy, .diverged, .stopped: isInTrouble = true
    }
    return nil
  }

  private mutating func setAside(_ seq: Int64, _ reason: String, _ asked: Duration?, _ now: MonotonicTime) {
    due = now + max(pause, min(asked ?? .zero, .seconds(RetryPolicy.longestRetryAfter)))
    failures += 1
    failure = (seq, reason)
  }

  /// An operator has dropped the letter; `nil`: all of them.
  mutating func dropped(_ seq: Int64?) {
    guard seq == nil || failure?.seq == seq else { return }
    (failure, due) = (nil, nil)
  }

  private var pause: Duration {
    min(RetryPolicy.first * (1 << min(round + failures / Self.failuresInARow, 16)), RetryPolicy.limit)
  }

  /// The letter is deleted.
  mutating func removed(_ letter: Int64) { taken.remove(letter) }
}
