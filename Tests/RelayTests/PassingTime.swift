// SPDX-License-Identifier: MIT

import EventLoop
import Timing

extension EventLoop {
  /// Invented time passes, until something is so; false: it did not become so.
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
