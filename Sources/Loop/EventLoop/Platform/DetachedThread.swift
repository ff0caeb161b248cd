// SPDX-License-Identifier: MIT

import Glibc

/// A thread of its own for work that blocks.
public enum DetachedThread {
  private final class Work {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
  }

  /// Begins `body` on a new thread, without a wait for its end. False: no thread can be started. `stack`: its size in
  /// bytes; `nil`: the usual one.
  @discardableResult
  public static func begin(stack: Int? = nil, _ body: @escaping @Sendable () -> Void) -> Bool {
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    if let stack { pthread_attr_setstacksize(&attributes, stack) }
    var thread = pthread_t()
    let work = Unmanaged.passRetained(Work(body)).toOpaque()
    let code = pthread_create(
      &thread, &attributes,
      { argument in
        guard let argument else { return nil }
        Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body()
        return nil
      }, work)
    if code != 0 { Unmanaged<Work>.fromOpaque(work).release() }
    return code == 0
  }
}
