// SPDX-License-Identifier: MIT

import Timing

extension EventLoop {
  /// Cancels `work` when nothing has moved for `patience`, and throws `TimedOut` once it has ended. What moves slowly is waited for: on a
  /// narrow line an answer stands in the queue behind everything that was sent before it.
  ///
  /// `moved`: a number that grows with what has moved, in bytes; it is looked at four times within the patience. A peer that lets a byte
  /// through now and then, or only says that it is there, moves nothing (`Progress.least`), and 120 times the patience is the end in
  /// any case. `nil`: no limit.
  public func whileMoving<Result>(
    _ patience: Duration?, _ moved: @escaping () -> UInt64, _ work: @escaping () async throws -> Result
  ) async throws -> Result {
    guard let patience else { return try await work() }
    var result: Result?
    try await race(
      { result = try await work() },
      { try await self.watchProgress(patience, moved) })
    guard let result else { throw CancellationError() }
    return result
  }

  /// Returns never; throws `TimedOut`.
  private func watchProgress(_ patience: Duration, _ moved: () -> UInt64) async throws {
    var progress = Progress(patience, moved(), now: now)
    while true {
      try await sleep(until: progress.nextLook(now: now))
      if progress.isOver(moved(), now: now) { throw TimedOut() }
    }
  }

  /// Returns in the next turn: long work shares the loop that way.
  public func nextTurn() async throws(CancellationError) {
    let waiter = Waiter()
    nextTurn { waiter.resume() }
    try await waiter.wait()
  }

  /// Returns in this turn, after the tasks that can be resumed now.
  public func later() async throws(CancellationError) {
    let waiter = Waiter()
    later { waiter.resume() }
    try await waiter.wait()
  }
}

/// Tells when nothing has moved for too long: `moved` is a number that grows with what has, in bytes.
public struct Progress {
  /// Less is no progress: pings and single bytes are not what anybody waits for. A line of 26 bytes a second has it in 10 s.
  static let least: UInt64 = 256
  private static let maxRounds: Int64 = 120
  private static let looks = 4

  private let patience: Duration
  private var since: MonotonicTime
  private var last: UInt64
  private let end: MonotonicTime

  public init(_ patience: Duration, _ moved: UInt64, now: MonotonicTime) {
    self.patience = patience
    since = now
    last = moved
    let (longest, overflow) = patience.wholeNanoseconds.multipliedReportingOverflow(by: Self.maxRounds)
    end = overflow ? .never : now + .nanoseconds(longest)
  }

  public func nextLook(now: MonotonicTime) -> MonotonicTime { min(since + patience, now + patience / Self.looks, end) }

  public mutating func isOver(_ moved: UInt64, now: MonotonicTime) -> Bool {
    if moved < last || moved - last >= Self.least { (last, since) = (moved, now) }
    return now >= since + patience || now >= end
  }
}
