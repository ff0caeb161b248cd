// SPDX-License-Identifier: MIT

/// Keeps the tasks of an owner, each until it ends.
///
/// For an owner that begins tasks repeatedly and ends itself: if it dropped the result of `EventLoop.begin`, a task
/// could outlive it. A task that runs as long as its owner is a stored `LoopTask`; tasks that one task begins and
/// awaits are children of its group (`EventLoop.begin(in:)`).
public final class LoopTasks {
  private let loop: EventLoop
  private var tasks: [UInt64: LoopTask] = [:]
  private var lastNumber: UInt64 = 0

  public init(on loop: EventLoop) { self.loop = loop }

  deinit { cancel() }

  /// Tasks that have not ended.
  public var count: Int { tasks.count }

  public func begin(_ work: @escaping () async -> Void) {
    lastNumber &+= 1
    let number = lastNumber
    tasks[number] = loop.begin { [weak self] in
      await work()
      self?.tasks[number] = nil
    }
  }

  /// Cancels all tasks: their waits end with `CancellationError`. Further tasks may begin afterwards.
  public func cancel() { for task in tasks.values { task.cancel() } }
}
