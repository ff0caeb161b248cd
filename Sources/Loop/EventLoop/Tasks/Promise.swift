// SPDX-License-Identifier: MIT

/// One future value for one waiting task. The first value counts.
///
/// Create it before sending the question: the answer may arrive at once.
public final class Promise<Value> {
  private let waiter = Waiter()
  private var kept: Value?

  public init() {}

  public var isKept: Bool { kept != nil }

  public func keep(_ value: Value) {
    guard kept == nil else { return }
    kept = value
    waiter.resume()
  }

  /// Throws when the task is cancelled before the value is there. A value that is there is returned in any case, so
  /// that it has an owner.
  public func value() async throws(CancellationError) -> Value {
    while true {
      if let kept { return kept }
      do { try await waiter.wait() } catch { if kept == nil { throw error } }
    }
  }

  /// `nil`: the time limit has passed.
  public func value(within limit: Duration, on loop: EventLoop) async throws(CancellationError) -> Value? {
    let timer = loop.schedule(after: limit) { [waiter] in waiter.resume() }
    defer { timer.cancel() }
    while kept == nil, timer.isScheduled {
      do { try await waiter.wait() } catch { if kept == nil { throw error } }
    }
    return kept
  }
}
