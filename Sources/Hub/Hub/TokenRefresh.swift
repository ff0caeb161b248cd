// SPDX-License-Identifier: MIT

/// Reads the folder of gateways' tokens again for an unknown token, which may be new.
///
/// It reads at most once in each `pause`: all callers wait for the same next reading.
actor TokenRefresh {
  static let pause: Duration = .milliseconds(500)

  private let pause: Duration
  private let refreshNow: @Sendable () -> Void
  /// The reading that has not begun yet.
  private var pending: Task<Void, Never>?
  private var refreshedAt: ContinuousClock.Instant?

  init(pause: Duration = TokenRefresh.pause, _ refreshNow: @escaping @Sendable () -> Void) {
    (self.pause, self.refreshNow) = (pause, refreshNow)
  }

  /// Returns after a reading that began later than the call.
  func refresh() async {
    if let pending { return await pending.value }
    let task = Task {
      let wait = refreshedAt.map { pause - (ContinuousClock.now - $0) } ?? .zero
      // `try?`: nobody cancels it.
      if wait > .zero { try? await Task.sleep(for: wait) }
      // Later callers need another reading.
      pending = nil
      refreshedAt = .now
      refreshNow()
    }
    pending = task
    await task.value
  }
}
