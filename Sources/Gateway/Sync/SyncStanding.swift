// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// The state of the sync, and its obstacles. Pure.
struct SyncStanding {
  /// A failed sync is tried again after this, growing.
  private static let retryFirst: Duration = .seconds(2)

  private(set) var state: SyncState = .idle
  private(set) var lastSynced: Int64?
  /// The radio does not hand over its messages, over one link or several. `nil`: it does, as far as it was asked.
  private(set) var withheld: Withheld?
  /// The store had channels before the first sync.
  var knewChannels = false
  private var backoff = Backoff(first: retryFirst, limit: .seconds(60))
  private var failureLogged: String?

  /// Before that nobody can say what the radio does not have.
  var hasSyncedOnce: Bool { lastSynced != nil || knewChannels }

  /// False: it is in that state already.
  mutating func enter(_ next: SyncState) -> Bool {
    guard next != state else { return false }
    state = next
    return true
  }

  /// Each trouble is logged once. True: this one was not the last.
  mutating func isNews(_ failure: SyncFailure) -> Bool {
    defer { failureLogged = failure.message }
    return failureLogged != failure.message
  }

  mutating func nextPause(using random: inout some RandomNumberGenerator) -> Duration { backoff.next(using: &random) }

  /// A radio is there: what failed with the last link does not count.
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
  /// While the link is up, and until another replaces it.
  case running(LoopTask)
  /// None begins any more. The promise is kept when nothing is in hand: the daemon ends then.
  case ending(Promise<Void>?)

  var isEnding: Bool { if case .ending = self { true } else { false } }

  /// Its task ends.
  mutating func halt() {
    guard case .running(let task) = self else { return }
    task.cancel()
    self = .down
  }

  /// Nothing is in hand any more.
  func nothingIsInHand() { if case .ending(let end?) = self { end.keep(()) } }
}

/// Transactions whose writers do not wait for them, in their order.
struct UnawaitedCommits {
  private var open: [Commit] = []
  private var task: LoopTask?

  /// `begin`: begins the task that awaits them, one after the other, and `ended` each.
  mutating func add(_ commit: Commit, _ begin: () -> LoopTask) {
    guard commit !== open.last else { return }
    open.append(commit)
    if task == nil { task = begin() }
  }

  /// The one to await; `nil`: there is none, and the task ends.
  mutating func next() -> Commit? {
    if open.isEmpty { task = nil }
    return open.first
  }

  mutating func ended() { open.removeFirst() }
}
