// SPDX-License-Identifier: MIT

/// Thrown when the time limit has passed.
public struct TimedOut: Error, Equatable, Sendable {
  public init() {}
}

extension EventLoop {
  /// Runs all children until the first returns or throws, then cancels the others; all have ended when this returns.
  public func race(_ children: (nonisolated(nonsending) () async throws -> Void)...) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for child in children {
        let child = Confined(child)
        group.addTask { try await child.value() }
      }
      defer { group.cancelAll() }
      _ = try await group.next()
    }
  }

  /// Begins a child task of the task that runs `group`: for clients and similar tasks, which end with their server.
  public func begin(in group: inout DiscardingTaskGroup, _ child: @escaping () async -> Void) {
    let child = Confined(child)
    group.addTask { await child.value() }
  }

  /// Cancels `work` after a time limit, and throws `TimedOut` once it has ended.
  public func withTimeout<Result>(
    _ limit: Duration, _ work: @escaping () async throws -> Result
  ) async throws -> Result {
    var result: Result?
    try await race(
      { result = try await work() },
      {
        try await self.sleep(for: limit)
        throw TimedOut()
      })
    guard let result else { throw CancellationError() }
    return result
  }
}
