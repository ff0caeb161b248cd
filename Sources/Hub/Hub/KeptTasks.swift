// SPDX-License-Identifier: MIT

import Synchronization

/// Tasks for whose results nobody waits. Their owner keeps them, and ends them.
final class KeptTasks: Sendable {
  private struct State {
    var isOver = false
    var last = 0
    var tasks: [Int: Task<Void, Never>] = [:]
  }

  private let state = Mutex(State())

  var count: Int { state.withLock { $0.tasks.count } }

  /// Begins a task; after the end of the owner, none.
  func begin(_ work: @escaping @Sendable () async -> Void) {
    state.withLock { state in
      guard !state.isOver else { return }
      state.last += 1
      let number = state.last
      // It may end at once, and then waits for this lock.
      state.tasks[number] = Task { [self] in
        await work()
        forget(number)
      }
    }
  }

  private func forget(_ number: Int) { state.withLock { $0.tasks[number] = nil } }

  /// Cancels all tasks. `waits`: returns after their ends.
  func end(waits: Bool = true) async {
    let tasks = state.withLock { state in
      state.isOver = true
      return Array(state.tasks.values)
    }
    for task in tasks { task.cancel() }
    guard waits else { return }
    for task in tasks { await task.value }
  }
}
