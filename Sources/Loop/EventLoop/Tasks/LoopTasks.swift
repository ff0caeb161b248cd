// SPDX-License-Identifier: MIT

/// Tasks that their owner keeps, each until it ends.
///
/// For an owner that begins tasks now and then, and has an end itself: what `EventLoop.begin` returns is not to be dropped there, or a task
/// goes on after its owner. A task that lasts as long as its owner is a stored `LoopTask`; tasks that one task begins and waits for are children
/// of its group (`EventLoop.begin(in:)`).
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

  /// Cancels all that have not ended: what they wait for ends with `CancellationError`. Others may begin afterwards.
  public func cancel() { for task in tasks.values { task.cancel() } }
}
