// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// Gives a loop time and the readiness of descriptors, and runs programs. The daemon has no other source of them, so a
/// test can invent them.
public protocol Machine: Clocks {
  /// Begins to watch a descriptor; events are reported with `tag`. False: it cannot be watched.
  func watch(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt64) -> Bool
  func change(_ descriptor: Int32, to interest: EventLoop.Readiness, tag: UInt64)
  func unwatch(_ descriptor: Int32)
  /// Waits until a descriptor is ready, or for so many milliseconds; -1: without a limit.
  func wait(milliseconds: Int32, _ ready: (_ tag: UInt64, EventLoop.Readiness) -> Void)
  /// Begins to connect a new socket, without waiting.
  func connect(_ address: NetworkAddress) throws(SystemError) -> (socket: Int32, isConnected: Bool)
  /// See `Descriptor.unacknowledged`.
  func unacknowledged(_ socket: Int32) -> Int
  /// See `ChildProcess.run`.
  func run(_ program: ChildProcess.Program, on loop: EventLoop) async throws -> ChildProcess.Exit
}

extension Machine {
  public func connect(_ address: NetworkAddress) throws(SystemError) -> (socket: Int32, isConnected: Bool) {
    try address.connect()
  }

  public func unacknowledged(_ socket: Int32) -> Int { Descriptor.unacknowledged(socket) }

  public func run(_ program: ChildProcess.Program, on loop: EventLoop) async throws -> ChildProcess.Exit {
    try await ChildProcess.runHere(program, on: loop)
  }
}

/// The machine on which this program runs: its clocks, and epoll.
public final class LinuxMachine: LinuxClocks, Machine {
  /// Readable while a watched descriptor is ready.
  public let poll: Int32

  public override init() {
    poll = epoll_create1(Int32(EPOLL_CLOEXEC))
    super.init()
    precondition(poll >= 0, "epoll_create1 failed: the machine has no descriptors left at start")
  }

  deinit { close(poll) }

  public func watch(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt64) -> Bool {
    control(EPOLL_CTL_ADD, descriptor, interest, tag)
  }

  public func change(_ descriptor: Int32, to interest: EventLoop.Readiness, tag: UInt64) {
    _ = control(EPOLL_CTL_MOD, descriptor, interest, tag)
  }

  public func unwatch(_ descriptor: Int32) { epoll_ctl(poll, EPOLL_CTL_DEL, descriptor, nil) }

  private func control(_ operation: Int32, _ descriptor: Int32, _ interest: EventLoop.Readiness, _ tag: UInt64) -> Bool
  {
    var event = epoll_event()
    event.events = interest.rawValue
    event.data.u64 = tag
    return epoll_ctl(poll, operation, descriptor, &event) == 0
  }

  public func wait(milliseconds: Int32, _ ready: (_ tag: UInt64, EventLoop.Readiness) -> Void) {
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 64) { events in
      // In glibc 2.43 this parameter is non-null; as an optional, it compiles only with older versions.
      let count = events.baseAddress.map { epoll_wait(poll, $0, 64, milliseconds) } ?? -1
      for place in 0..<max(0, Int(count)) {
        ready(events[place].data.u64, EventLoop.Readiness(rawValue: events[place].events))
      }
    }
  }
}
