// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Tells when addresses, routes or links have changed, so that what waits for a network need not wait for its timer.
/// Source: rtnetlink(7).
public final class NetworkWatch {
  /// Changes come in bursts: all that come within it are reported as one.
  private static let quietPeriod: Duration = .seconds(2)

  private let loop: EventLoop
  private let descriptor: Int32
  private var timer: LoopTimer?

  /// Without rtnetlink (a sandbox that forbids it) nothing is ever told; the timers of those who wait remain.
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

  /// What has changed does not matter here. True when there was something, also when there was too much of it.
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
