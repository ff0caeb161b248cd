// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// When a task is to look at something; that may change while it waits.
public final class Alarm {
  /// `nil`: at no time.
  public private(set) var time: MonotonicTime?
  private let changed = Waiter()

  public init() {}

  public func set(_ time: MonotonicTime?) {
    guard time != self.time else { return }
    self.time = time
    changed.resume()
  }

  /// Returns when the time has come, or is another one.
  public func wait(on loop: EventLoop) async throws(CancellationError) { try await changed.wait(until: time, on: loop) }
}
