// SPDX-License-Identifier: MIT

/// The end of a transaction, for those who wrote in it. They ask, or wait.
///
/// All writes of one transaction share one of these. To wait for it cannot be cancelled: a commit takes as long as the disk takes.
public final class Commit {
  public enum State: Equatable, Sendable {
    case open
    case durable
    /// Nothing of the transaction was kept.
    case failed(StoreError)
  }

  public private(set) var state: State = .open
  private var waiting: [CheckedContinuation<Void, Never>] = []

  init() {}

  public var isDurable: Bool { state == .durable }

  /// Returns when it is on disk.
  public func durable() async throws(StoreError) {
    if let failure = await failure() { throw failure }
  }

  /// Why it is not on disk; `nil`: it is.
  public func failure() async -> StoreError? {
    if state == .open { await withCheckedContinuation { waiting.append($0) } }
    return if case .failed(let failure) = state { failure } else { nil }
  }

  func end(_ failure: StoreError?) {
    state = failure.map { .failed($0) } ?? .durable
    let resumed = waiting
    waiting = []
    for continuation in resumed { continuation.resume() }
  }
}
