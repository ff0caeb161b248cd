// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// A state that is in a transaction, or waits for the next because the disk has refused it.
struct Unsaved {
  let message: OutgoingMessage
  let commit: Commit
}

/// The newest states of messages that are not on disk yet, and the task that writes them.
struct UnsavedStates {
  private var states: [Int64: Unsaved] = [:]
  private var task: LoopTask?
  private var isFailureLogged = false

  subscript(_ id: Int64) -> Unsaved? {
    get { states[id] }
    set { states[id] = newValue }
  }

  /// `begin`: begins the task that awaits their commits until `next` is `nil`.
  mutating func note(_ message: OutgoingMessage, in commit: Commit, _ begin: () -> LoopTask) {
    states[message.id] = Unsaved(message: message, commit: commit)
    if task == nil { task = begin() }
  }

  /// A transaction to await; `nil`: the disk has all of them.
  var next: Commit? { states.values.first?.commit }

  mutating func taskEnded() { task = nil }

  /// The states of this commit are on disk.
  mutating func stored(_ commit: Commit) { states = states.filter { $0.value.commit !== commit } }

  /// States that the disk has refused, and that nobody has written since.
  var refused: [OutgoingMessage] {
    states.values.filter { $0.commit.state != .open && !$0.commit.isDurable }.map(\.message)
  }

  /// True: the disk took states until now.
  mutating func failed() -> Bool {
    defer { isFailureLogged = true }
    return !isFailureLogged
  }

  /// True: the disk takes states again.
  mutating func recovered() -> Bool {
    defer { isFailureLogged = false }
    return isFailureLogged
  }

  /// The states belong to another database.
  mutating func forget() { states = [:] }

  func stop() { task?.cancel() }
}
