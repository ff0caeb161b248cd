// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Reports changes of addresses, routes and links, so that a task that waits for a network can try at once. Source:
/// rtnetlink(7).
public final class NetworkWatch {
  /// Changes come in bursts: those within this time are reported as one.
  private static let quietPeriod: Duration = .seconds(2)

  private let loop: EventLoop
  private let descriptor: Int32
  private var timer: LoopTimer?

  /// Without rtnetlink (a sandbox may forbid it) nothing is reported, and callers depend on their timers.
  public init(on loop: EventLoop, _ changed: @escaping () -> Void) {
    self.loop = loop
    descriptor = meshpost_open_route_watch()
    guard descriptor >= 0 else { return }
    loop.watch(descriptor, for: .readable) { [weak self] _ in
      guard let self, self.drain() else { return }
      guard self.timer?.isScheduled != true else { return }
      self.timer = loop.schedule(after: Self.quietPeriod) { changed() }
    }
  }

  deinit {
    guard descriptor >= 0 else { return }
    timer?.cancel()
    loop.unwatch(descriptor)
    close(descriptor)
  }

  /// Reads and discards the reports. True: there were some, or so many that the kernel dropped some.
  private func drain() -> Bool {
    var hasChanged = false
    var buffer = [UInt8](repeating: 0, count: 8192)
    for _ in 0..<Descriptor.readsPerTurn {
      let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
      if count > 0 || (count < 0 && errno == ENOBUFS) {
        hasChanged = true
      } else {
        break
      }
    }
    return hasChanged
  }
}
