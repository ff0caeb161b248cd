// SPDX-License-Identifier: MIT

import Timing

extension EventLoop {
  /// Waits until the descriptor is ready; false: the time limit came first. Nobody else may watch the descriptor
  /// meanwhile.
  ///
  /// For rare waits: each one registers the descriptor with the kernel and removes it again.
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
    try await waiter.wait(until: deadline, on: self)
    return isReady
  }
}
