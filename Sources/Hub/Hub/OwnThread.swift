// SPDX-License-Identifier: MIT

import Glibc

/// A thread for what waits on its own: a task would hold one of the few that others run on.
public enum OwnThread {
  private final class Body {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
  }

  /// Nobody waits for its end.
  public static func begin(_ body: @escaping @Sendable () -> Void) {
    let given = Unmanaged.passRetained(Body(body)).toOpaque()
    var thread = pthread_t()
    // On a machine that has no thread left it begins when there is one.
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
