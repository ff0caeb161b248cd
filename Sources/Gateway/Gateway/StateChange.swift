// SPDX-License-Identifier: MIT

import EventLoop

/// That something has changed which a status shows.
final class StateChange {
  private let noted = Waiter()
  private var isDue = false

  func note() {
    isDue = true
    noted.resume()
  }

  /// Returns so long after a change: what changes meanwhile is part of it.
  func next(after pause: Duration, on loop: EventLoop) async throws(CancellationError) {
    while !isDue { try await noted.wait() }
    try await loop.sleep(for: pause)
    isDue = false
  }
}
