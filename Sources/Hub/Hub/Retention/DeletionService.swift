// SPDX-License-Identifier: MIT

/// Goes on with deletions that were more than a transaction of batches does at once, also after a restart: a step at a time, so that batches come
/// between.
struct DeletionService: Sendable {
  /// Between two looks while nothing is to be deleted.
  private static let interval: Duration = .seconds(10)
  /// The pause after a step, as a multiple of the step's duration, and at least.
  private static let (rest, leastRest) = (4, Duration.milliseconds(20))
  private static let failures = ThrottledLog(HubLog.write)

  let store: HubStore

  /// Runs until it is cancelled.
  func run() async {
    var pause = Self.interval
    // `try?`: it is cancelled while it sleeps.
    while (try? await Task.sleep(for: pause)) != nil {
      let begun = ContinuousClock.now
      do {
        let goesOn = try await store.continueDeletions()
        pause = goesOn ? max((.now - begun) * Self.rest, Self.leastRest) : Self.interval
      } catch {
        Self.failures.say("deleting messages is interrupted, and goes on: \(error)")
        pause = Self.interval
      }
    }
  }
}
