// SPDX-License-Identifier: MIT

/// Reads the folder of gateways' tokens once more for an unknown token, which may have been added since the last time.
///
/// There is at most one reading in each `pause`, however many unknown tokens come: callers wait for the next one together.
actor TokenLook {
  static let pause: Duration = .milliseconds(500)

  private let pause: Duration
  private let look: @Sendable () -> Void
  /// The reading that has not begun yet.
  private var coming: Task<Void, Never>?
  private var lookedAt: ContinuousClock.Instant?

  init(pause: Duration = TokenLook.pause, _ look: @escaping @Sendable () -> Void) {
    (self.pause, self.look) = (pause, look)
  }

  /// Returns after a reading that began later than the call.
  func again() async {
    if let coming { return await coming.value }
    let task = Task {
      let wait = lookedAt.map { pause - (ContinuousClock.now - $0) } ?? .zero
      // `try?`: nobody cancels it.
      if wait > .zero { try? await Task.sleep(for: wait) }
      // Later callers need another reading.
      coming = nil
      lookedAt = .now
      look()
    }
    coming = task
    await task.value
  }
}
