// SPDX-License-Identifier: MIT

/// One more look at the folder of gateways' tokens, for whoever comes with a token that is not known: it may have been added since the last look.
///
/// However many come with what no token is, there is no more than one look in `pause`: who comes sooner waits for the next, which is for all of
/// them.
actor TokenLook {
  static let pause: Duration = .milliseconds(500)

  private let pause: Duration
  private let look: @Sendable () -> Void
  /// The look that has not begun yet.
  private var coming: Task<Void, Never>?
  private var lookedAt: ContinuousClock.Instant?

  init(pause: Duration = TokenLook.pause, _ look: @escaping @Sendable () -> Void) {
    (self.pause, self.look) = (pause, look)
  }

  /// Returns after a look that began later than the call.
  func again() async {
    if let coming { return await coming.value }
    let task = Task {
      let wait = lookedAt.map { pause - (ContinuousClock.now - $0) } ?? .zero
      // `try?`: nobody cancels it.
      if wait > .zero { try? await Task.sleep(for: wait) }
      // Who comes from here on needs another one.
      coming = nil
      lookedAt = .now
      look()
    }
    coming = task
    await task.value
  }
}
