// SPDX-License-Identifier: MIT

import Timing

/// Ends a wait when nothing has moved for a while. What moves slowly is waited for: on a narrow line an answer stands in the
/// queue behind everything that was sent before it.
public final class ProgressLimit {
  /// A peer that lets a byte through now and then does not hold us for ever: so many times the patience is the end.
  private static let maxRounds: Int64 = 120
  /// Looks within the patience: so exact it is.
  private static let looks = 4

  private let patience: Duration
  private let loop: EventLoop
  private let moved: () -> UInt64
  private let giveUp: () -> Void
  private var end: MonotonicTime
  private var since: MonotonicTime
  private var last: UInt64
  private var timer: LoopTimer?

  /// `moved`: a number that changes when something has moved. `giveUp` is called once, and not after `cancel`.
  public init(
    _ patience: Duration, on loop: EventLoop, moved: @escaping () -> UInt64, giveUp: @escaping () -> Void
  ) {
    self.patience = patience
    self.loop = loop
    self.moved = moved
    self.giveUp = giveUp
    (since, end) = (loop.now, .never)
    last = moved()
    restart()
    lookLater()
  }

  deinit { timer?.cancel() }

  public func cancel() { timer?.cancel() }

  /// What was waited for has come, and more is due: the patience begins anew.
  public func restart() {
    since = loop.now
    let (longest, overflow) = patience.wholeNanoseconds.multipliedReportingOverflow(by: Self.maxRounds)
    end = overflow ? .never : since + .nanoseconds(longest)
  }

  /// It has neither ended nor been cancelled.
  public var isActive: Bool { timer?.isScheduled == true }

  private func lookLater() {
    let next = min(since + patience, loop.now + patience / Self.looks, end)
    timer = loop.schedule(at: next) { [weak self] in self?.look() }
  }

  private func look() {
    let (now, value) = (loop.now, moved())
    if value != last { (last, since) = (value, now) }
    guard now < since + patience, now < end else { return giveUp() }
    lookLater()
  }
}
