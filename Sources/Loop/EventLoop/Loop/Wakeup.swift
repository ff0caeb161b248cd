// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Synchronization

/// Hands values from other threads to the loop and wakes it (eventfd). Other threads may touch nothing else of the
/// loop.
public final class Wakeup<Value: Sendable>: Sendable {
  private let descriptor: Int32
  private let values = Mutex<[Value]>([])

  public init() {
    descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
  }

  deinit { close(descriptor) }

  /// Call it from any thread.
  public func send(_ value: Value) {
    values.withLock { $0.append(value) }
    var one: UInt64 = 1
    _ = Glibc.write(descriptor, &one, 8)  // full: the loop will wake up anyway
  }

  /// Call it on the loop's thread. `handler` runs there for each value.
  public func attach(to loop: EventLoop, _ handler: @escaping (Value) -> Void) {
    loop.watch(descriptor, for: .readable) { [self] _ in
      var count: UInt64 = 0
      _ = Glibc.read(descriptor, &count, 8)  // empty: the values were taken already
      let taken = values.withLock { all in
        defer { all.removeAll() }
        return all
      }
      for value in taken { handler(value) }
    }
  }

  public func detach(from loop: EventLoop) { loop.unwatch(descriptor) }
}
