// SPDX-License-Identifier: MIT

import EventLoop
import Timing

extension EventLoop {
  /// Advances invented time until the condition is true. False: it did not become true.
  @discardableResult
  func pass(_ time: Duration, until isSo: () -> Bool = { false }) -> Bool {
    let end = now + time
    while now < end {
      if isSo() { return true }
      let timer = schedule(at: end) {}
      turn(wait: true)
      timer.cancel()
    }
    return isSo()
  }
}
