// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

extension DetachedThread {
  /// Begins blocking work: a task would block one of the few threads of all tasks. Without a free thread on the machine, it retries until there is one.
  public static func run(_ body: @escaping @Sendable () -> Void) {
    while !begin(body) { sleep(1) }
  }
}
