// SPDX-License-Identifier: MIT

import Glibc

/// A thread for blocking work: a task would block one of the few threads of all tasks.
public enum DetachedThread {
  private final class Body {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
  }

  /// Runs `body` on a new thread, without a wait for its end.
  public static func run(_ body: @escaping @Sendable () -> Void) {
    let given = Unmanaged.passRetained(Body(body)).toOpaque()
    var thread = pthread_t()
    // Without a free thread on the machine, it retries until there is one.
    while pthread_create(
      &thread, nil,
      { given in
        if let given { Unmanaged<Body>.fromOpaque(given).takeRetainedValue().run() }
        return nil
      }, given) != 0
    { sleep(1) }
    pthread_detach(thread)
  }
}
