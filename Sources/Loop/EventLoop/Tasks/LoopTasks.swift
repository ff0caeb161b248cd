// SPDX-License-Identifier: MIT

/// Tasks that come and go, kept by their owner until each has ended: for work that a synchronous call begins. A task that another task begins is
/// its child (`EventLoop.begin(in:)`), or is awaited.
public final class LoopTasks {
  private let loop: EventLoop
  private var tasks: [UInt64: LoopTask] = [:]
  private var lastNumber: UInt64 = 0

  public init(on loop: EventLoop) { self.loop = loop }

  public var isEmpty: Bool { tasks.isEmpty }

  public func begin(_ work: @escaping () async -> Void) {
    lastNumber += 1
    let number = lastNumber
    tasks[number] = loop.begin { [weak self] in
      await work()
      self?.tasks[number] = nil
    }
  }

  /// Cancels all. They end in later turns.
  public func cancel() {
    for task in tasks.values { task.cancel() }
  }
}
