// SPDX-License-Identifier: MIT

import Timing

/// The time at which a task acts; it may change while the task waits.
public final class Alarm {
  /// `nil`: the task does not act.
  public private(set) var time: MonotonicTime?
  private let changed = Waiter()

  public init() {}

  public func set(_ time: MonotonicTime?) {
    guard time != self.time else { return }
    self.time = time
    changed.resume()
  }

  /// Returns when the time has come, or when `set` has changed it.
  public func wait(on loop: EventLoop) async throws(CancellationError) { try await changed.wait(until: time, on: loop) }
}
