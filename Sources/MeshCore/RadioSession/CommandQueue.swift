// SPDX-License-Identifier: MIT

import Companion

/// The kind of client: operators at the gateway first; then the sync and clients of other programs, in order.
public enum CommandPriority: Sendable {
  case interactive, sync
  /// Another program that shares the radio. It has no precedence, and need not wait for a contact list to end.
  case client

  var isFirst: Bool { self == .interactive }
}

/// Commands waiting for the link, at most `bound`; interactive ones first, else in order of arrival. Commands that were
/// submitted together are sent together, without others in between.
struct CommandQueue {
  struct Entry: Equatable {
    let id: UInt64
    let command: Command
    let priority: CommandPriority
    /// The frame as written by a client; `nil`: the command's own.
    var frame: [UInt8]?
    /// It goes only if the one before it in its sequence succeeds.
    var needsSuccess = false
    /// A scope is set for it in its sequence.
    var followsScope = false
    /// The session's own: no answer is passed on.
    var isOwn = false
  }

  /// Maximum waiting commands. Further ones are refused, and can be retried later.
  static let bound = 64

  /// Each with what must follow it directly.
  private var waiting: [[Entry]] = []
  /// The next command of a sequence in progress.
  private var begun: [Entry] = []

  var isFull: Bool { count >= Self.bound }
  var count: Int { begun.count + waiting.reduce(0) { $0 + $1.count } }

  mutating func add(_ group: [Entry]) { if !group.isEmpty { waiting.append(group) } }

  /// The next that `mayGo` lets pass.
  mutating func take(where mayGo: (Entry) -> Bool) -> Entry? {
    if let next = begun.first { return mayGo(next) ? begun.removeFirst() : nil }
    for isFirst in [true, false] {
      let found = waiting.firstIndex { group in
        group[0].priority.isFirst == isFirst && group.allSatisfy(mayGo)
      }
      guard let found else { continue }
      begun = waiting.remove(at: found)
      return begun.removeFirst()
    }
    return nil
  }

  /// Puts the way back to the default scope before a command that was taken, and returns that.
  mutating func precede(_ entry: Entry) -> Entry {
    var entry = entry
    entry.needsSuccess = true
    begun.insert(entry, at: 0)
    return Entry(id: 0, command: .setFloodScopeKey(.useDefault), priority: entry.priority, isOwn: true)
  }

  /// Takes what does not go any more, because the last one taken has failed.
  mutating func removeDependents() -> [Entry] {
    let dependents = begun.prefix(while: \.needsSuccess)
    begun.removeFirst(dependents.count)
    return Array(dependents)
  }

  mutating func removeAll() -> [Entry] {
    defer {
      waiting.removeAll()
      begun.removeAll()
    }
    return begun + waiting.flatMap { $0 }
  }
}
