// SPDX-License-Identifier: MIT

import Timing

extension EventLoop {
  /// Cancels `work` after `patience` without progress, and throws `TimedOut` once it has ended. Slow progress is
  /// enough: on a narrow line an answer queues behind everything that was sent before it.
  ///
  /// `moved`: the bytes transferred so far; it is checked four times within the patience. Fewer than `Progress.least`
  /// bytes are no progress, so pings and single bytes do not count. The work ends after `rounds` times the patience in
  /// any case. `patience` `nil`: no limit.
  public func whileMoving<Result>(
    _ patience: Duration?, rounds: Int64 = Progress.maxRounds, _ moved: @escaping () -> UInt64,
    _ work: @escaping () async throws -> Result
  ) async throws -> Result {
    guard let patience else { return try await work() }
    var result: Result?
    try await race(
      { result = try await work() },
      { try await self.watchProgress(patience, rounds, moved) })
    guard let result else { throw CancellationError() }
    return result
  }

  /// Never returns; throws `TimedOut`.
  private func watchProgress(_ patience: Duration, _ rounds: Int64, _ moved: () -> UInt64) async throws {
    var progress = Progress(patience, rounds: rounds, moved(), now: now)
    while true {
      try await sleep(until: progress.nextLook(now: now))
      if progress.isOver(moved(), now: now) { throw TimedOut() }
    }
  }

  /// Returns in the next turn: so long work shares the loop.
  public func nextTurn() async throws(CancellationError) {
    let waiter = Waiter()
    nextTurn { waiter.resume() }
    try await waiter.wait()
  }

  /// Returns in this turn, after the tasks that are ready now.
  public func later() async throws(CancellationError) {
    let waiter = Waiter()
    later { waiter.resume() }
    try await waiter.wait()
  }
}

/// Detects missing progress. `moved` is the number of bytes transferred so far.
public struct Progress {
  /// Fewer bytes are no progress, such as pings and single bytes. A line of 26 bytes a second carries as many in 10 s.
  static let least: UInt64 = 256
  /// An operation ends after this many times its patience, although it moves.
  public static let maxRounds: Int64 = 120
  private static let looks = 4

  private let patience: Duration
  private var since: MonotonicTime
  private var last: UInt64
  private let end: MonotonicTime

  public init(_ patience: Duration, rounds: Int64 = Progress.maxRounds, _ moved: UInt64, now: MonotonicTime) {
    self.patience = patience
    since = now
    last = moved
    let (longest, overflow) = patience.wholeNanoseconds.multipliedReportingOverflow(by: rounds)
    end = overflow ? .never : now + .nanoseconds(longest)
  }

  public func nextLook(now: MonotonicTime) -> MonotonicTime { min(since + patience, now + patience / Self.looks, end) }

  public mutating func isOver(_ moved: UInt64, now: MonotonicTime) -> Bool {
    if moved < last || moved - last >= Self.least { (last, since) = (moved, now) }
    return now >= since + patience || now >= end
  }
}
