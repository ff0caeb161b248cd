// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// The state of the sync, and what it logged. Pure.
struct SyncStanding {
  /// The first pause before a retry; later ones are longer.
  private static let retryFirst: Duration = .seconds(2)

  private(set) var state: SyncState = .idle
  private(set) var lastSynced: Int64?
  /// Why, and since when, the radio withholds messages, over one link or several; `nil`: it does not.
  private(set) var withheld: Withheld?
  /// The store had channels before the first sync.
  var knewChannels = false
  private var backoff = Backoff(first: retryFirst, limit: .seconds(60))
  private var failureLogged: String?

  /// False: nobody can say yet what the radio does not have.
  var hasSyncedOnce: Bool { lastSynced != nil || knewChannels }

  /// Returns false if this is the state already.
  mutating func enter(_ next: SyncState) -> Bool {
    guard next != state else { return false }
    state = next
    return true
  }

  /// Logs each failure once: returns true if the last one was another.
  mutating func isNews(_ failure: SyncFailure) -> Bool {
    defer { failureLogged = failure.message }
    return failureLogged != failure.message
  }

  mutating func nextPause(using random: inout some RandomNumberGenerator) -> Duration { backoff.next(using: &random) }

  /// A radio is connected: earlier failures do not lengthen the pause.
  mutating func connected() { backoff.reset() }

  /// Each part of the sync was tried.
  mutating func wasTried() {
    backoff.reset()
    failureLogged = nil
  }

  mutating func synced(at milliseconds: Int64) { lastSynced = milliseconds }

  mutating func withholds(_ why: String, now: MonotonicTime) {
    withheld = Withheld(why: why, since: withheld?.since ?? now)
  }

  mutating func handsOver() { withheld = nil }
}

/// The life of the task that syncs.
enum SyncLife {
  case down
  /// Runs while the link is up, until another task replaces it.
  case running(LoopTask)
  /// No further task begins: the daemon ends. The promise is kept when no message is under way.
  case ending(Promise<Void>?)

  var isEnding: Bool { if case .ending = self { true } else { false } }

  /// Cancels the task.
  mutating func halt() {
    guard case .running(let task) = self else { return }
    task.cancel()
    self = .down
  }

  /// No message is under way.
  func nothingIsInHand() { if case .ending(let end?) = self { end.keep(()) } }
}

/// Transactions whose writers do not wait for them, in their order.
struct UnawaitedCommits {
  private var open: [Commit] = []
  private var task: LoopTask?

  /// `begin` begins the task that awaits the transactions, one after the other; it calls `ended` for each.
  mutating func add(_ commit: Commit, _ begin: () -> LoopTask) {
    guard commit !== open.last else { return }
    open.append(commit)
    if task == nil { task = begin() }
  }

  /// The next transaction to await; `nil`: there is none, and the task ends.
  mutating func next() -> Commit? {
    if open.isEmpty { task = nil }
    return open.first
  }

  mutating func ended() { open.removeFirst() }
}
