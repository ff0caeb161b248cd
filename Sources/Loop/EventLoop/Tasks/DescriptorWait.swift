// SPDX-License-Identifier: MIT

import Timing

extension EventLoop {
  /// Until the descriptor is ready; false: the time has come before. Nobody else watches the descriptor meanwhile.
  ///
  /// For waits that are few: each registers the descriptor with the kernel, and takes it out again on every way out.
  public func wait(
    for interest: Readiness, of descriptor: Int32, until deadline: MonotonicTime? = nil
  ) async throws -> Bool {
    let waiter = Waiter()
    var isReady = false
    let isWatched = watch(descriptor, for: interest) { _ in
      isReady = true
      waiter.resume()
    }
    guard isWatched else { throw SystemError("epoll_ctl") }
    defer { unwatch(descriptor) }
    let timer = deadline.map { schedule(at: $0) { waiter.resume() } }
    defer { timer?.cancel() }
    try await waiter.wait()
    return isReady
  }
}
