// SPDX-License-Identifier: MIT

import Companion

/// Who is waiting: a person before the sync.
public enum CommandPriority: Int, Comparable, Sendable {
  case interactive = 0, sync = 1

  public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
}

/// Commands that wait for the link, at most `bound` of them; interactive ones first, else in order of arrival.
struct CommandQueue {
  struct Entry: Equatable {
    let id: UInt64
    let command: Command
    let priority: CommandPriority
  }

  /// More waiting commands than this are refused: whoever asks is told, and asks again later.
  static let bound = 64

  private var waiting: [Entry] = []

  var isFull: Bool { waiting.count >= Self.bound }
  var count: Int { waiting.count }

  mutating func add(_ entry: Entry) { waiting.append(entry) }

  /// The next that `mayGo` lets pass.
  mutating func take(where mayGo: (Entry) -> Bool) -> Entry? {
    for priority in [CommandPriority.interactive, .sync] {
      if let index = waiting.firstIndex(where: { $0.priority == priority && mayGo($0) }) {
        return waiting.remove(at: index)
      }
    }
    return nil
  }

  mutating func removeAll() -> [Entry] {
    defer { waiting.removeAll() }
    return waiting
  }
}
