// SPDX-License-Identifier: MIT

import Companion

/// The sender of a command. Operators come first; then the sync and other programs, in order of arrival.
public enum CommandPriority: Sendable {
  case interactive, sync
  /// Another program that shares the radio. It has no precedence, but need not wait for the end of a contact list.
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
    /// The entry is sent only if the previous one of its group succeeds.
    var needsSuccess = false
    /// The group sets a scope for this entry.
    var followsScope = false
    /// A command of the session itself: its outcome is not passed on.
    var isOwn = false

    /// Its answer shows that all earlier answers have come.
    var isBarrier: Bool {
      guard isOwn else { return false }
      if case .setFloodScopeKey = command { return false }
      return true
    }
  }

  /// Maximum waiting commands. Further ones are refused, and can be retried later.
  static let bound = 64

  /// Groups of commands that are sent without others in between.
  private var waiting: [[Entry]] = []
  /// The remaining commands of the group in progress.
  private var begun: [Entry] = []

  var isFull: Bool { count >= Self.bound }
  var count: Int { begun.count + waiting.reduce(0) { $0 + $1.count } }

  mutating func add(_ group: [Entry]) { if !group.isEmpty { waiting.append(group) } }

  /// Removes and returns the next command that `mayGo` accepts.
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

  /// Puts `entry` back, and returns a command of the session itself that has to succeed before it.
  mutating func precede(_ entry: Entry, by command: Command) -> Entry {
    var entry = entry
    entry.needsSuccess = true
    begun.insert(entry, at: 0)
    return Entry(id: 0, command: command, priority: entry.priority, isOwn: true)
  }

  /// Removes and returns the commands that are not sent, because the previous one has failed.
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
