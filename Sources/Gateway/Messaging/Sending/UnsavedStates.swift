// SPDX-License-Identifier: MIT

import Delivery
import EventLoop
import Store

/// What is stored together with a state: the form of its event, and air time.
struct Booking {
  struct Use: Equatable {
    let airtime: Int64
    let purpose: AirtimePurpose
    /// It was booked before, and not used.
    var isTakenBack = false
  }

  /// The event has the whole message.
  var isWhole = false
  private(set) var uses: [Use] = []

  mutating func add(_ use: Use) {
    // An attempt that the disk did not take was not made either: there is nothing to take back from it.
    if use.isTakenBack, let last = uses.last, !last.isTakenBack, last.airtime == use.airtime {
      uses.removeLast()
    } else {
      uses.append(use)
    }
  }

  mutating func append(_ later: Booking) {
    isWhole = isWhole || later.isWhole
    for use in later.uses { add(use) }
  }
}

/// A state that is in a transaction, or waits for the next because the disk has refused it.
struct Unsaved {
  let message: OutgoingMessage
  let commit: Commit
  /// All that is lost with the transaction, besides the state.
  var booking = Booking()

  var isRefused: Bool { commit.state != .open && !commit.isDurable }
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
  mutating func note(_ message: OutgoingMessage, _ booking: Booking, in commit: Commit, _ begin: () -> LoopTask) {
    states[message.id] = Unsaved(message: message, commit: commit, booking: booking)
    if task == nil { task = begin() }
  }

  /// A transaction to await; `nil`: the disk has all of them.
  var next: Commit? { states.values.first?.commit }

  mutating func taskEnded() { task = nil }

  /// The states of this commit are on disk.
  mutating func stored(_ commit: Commit) { states = states.filter { $0.value.commit !== commit } }

  /// States that the disk has refused, and that nobody has written since.
  var refused: [OutgoingMessage] { states.values.filter(\.isRefused).map(\.message) }

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

/// A decided change of a message.
struct StateChange {
  let id: Int64
  /// Air time that was booked for the attempt, but not used.
  var unspent: Int64 = 0
  /// The event has the whole message.
  var isWhole = false
  /// Whether the message, as it is then, is to be changed.
  var isWanted: (OutgoingMessage) -> Bool = { _ in true }
  let make: (inout OutgoingMessage) -> Void
}
