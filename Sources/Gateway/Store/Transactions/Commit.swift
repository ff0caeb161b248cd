// SPDX-License-Identifier: MIT

/// The end of a transaction, which its writers can query or await.
///
/// All writes of a transaction share one commit. Awaiting it cannot be cancelled: it takes as long as the disk takes.
public final class Commit {
  public enum State: Equatable, Sendable {
    case open
    case durable
    /// Nothing of the transaction was stored.
    case failed(StoreError)
  }

  public private(set) var state: State = .open
  private var waiting: [CheckedContinuation<Void, Never>] = []

  init() {}

  public var isDurable: Bool { state == .durable }

  /// Returns when the transaction is on disk.
  public func durable() async throws(StoreError) {
    if let failure = await failure() { throw failure }
  }

  /// Why the transaction is not on disk; `nil`: it is. Waits for its end.
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
