// SPDX-License-Identifier: MIT

/// One value that is to come, for one task that waits for it. The first value counts.
///
/// Make it before asking: an answer may come in the same read as the question's echo.
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

  /// Throws when the task is cancelled before it is kept: what was kept has an owner.
  public func value() async throws(CancellationError) -> Value {
    while true {
      if let kept { return kept }
      do { try await waiter.wait() } catch { if kept == nil { throw error } }
    }
  }

  /// `nil`: it has not come within that time.
  public func value(within limit: Duration, on loop: EventLoop) async throws(CancellationError) -> Value? {
    let timer = loop.schedule(after: limit) { [waiter] in waiter.resume() }
    defer { timer.cancel() }
    while kept == nil, timer.isScheduled {
      do { try await waiter.wait() } catch { if kept == nil { throw error } }
    }
    return kept
  }
}
