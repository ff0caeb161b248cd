// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// One thread, asleep until a file descriptor, a timer or a signal wakes it.
///
/// Everything in the gateway runs on it, so nothing in it needs locks; only `Wakeup` may be touched by other threads.
/// Not `Sendable` on purpose. Work that was done in a turn is finished in `afterTurn`: the store commits there, once
/// for all that came in together.
public final class EventLoop {
  /// What a descriptor is ready for.
  public struct Readiness: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    public static let readable = Readiness(rawValue: 1)
    public static let writable = Readiness(rawValue: 4)
    /// The kernel has something out of the ordinary: a file of its own has changed.
    public static let urgent = Readiness(rawValue: 2)
    /// Error or hang-up; always reported, never asked for.
    public static let closed = Readiness(rawValue: 8 | 16)
  }

  private final class Watch {
    let handler: (Readiness) -> Void
    var interest: Readiness
    init(_ interest: Readiness, _ handler: @escaping (Readiness) -> Void) {
      self.interest = interest
      self.handler = handler
    }
  }

  private let poll: Int32
  private var watches: [Int32: Watch] = [:]
  private var timers = TimerQueue()
  private var deferred: [() -> Void] = []
  private var turnEnds: [() -> Void] = []
  private var isStopped = false
  /// Times that the loop woke up so far: what idleness is measured by.
  public private(set) var wakeups: UInt64 = 0

  public init() {
    poll = epoll_create1(Int32(EPOLL_CLOEXEC))
    precondition(poll >= 0, "epoll_create1 failed: the machine has no descriptors left at start")
  }

  deinit { close(poll) }

  /// The machine's monotonic clock.
  public var now: MonotonicTime {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return MonotonicTime(nanoseconds: Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec))
  }

  /// Call `handler` whenever `descriptor` is ready. The loop does not own the descriptor: `unwatch` before closing.
  /// Returns false when the kernel refuses (a regular file, no memory).
  @discardableResult
  public func watch(
    _ descriptor: Int32, for interest: Readiness, _ handler: @escaping (Readiness) -> Void
  ) -> Bool {
    var event = epoll_event()
    event.events = interest.rawValue
    event.data.fd = descriptor
    guard epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) == 0 else { return false }
    watches[descriptor] = Watch(interest, handler)
    return true
  }

  public func changeInterest(_ descriptor: Int32, to interest: Readiness) {
    guard let watch = watches[descriptor], watch.interest != interest else { return }
    watch.interest = interest
    var event = epoll_event()
    event.events = interest.rawValue
    event.data.fd = descriptor
    epoll_ctl(poll, EPOLL_CTL_MOD, descriptor, &event)
  }

  public func unwatch(_ descriptor: Int32) {
    guard watches.removeValue(forKey: descriptor) != nil else { return }
    epoll_ctl(poll, EPOLL_CTL_DEL, descriptor, nil)
  }

  /// Call `action` once at `time`, unless the timer is cancelled before.
  @discardableResult
  public func schedule(at time: MonotonicTime, _ action: @escaping () -> Void) -> LoopTimer {
    timers.add(at: time, action)
  }

  @discardableResult
  public func schedule(after delay: Duration, _ action: @escaping () -> Void) -> LoopTimer {
    schedule(at: now + delay, action)
  }

  /// Run `action` soon, after what is being done now.
  public func later(_ action: @escaping () -> Void) { deferred.append(action) }

  /// Run `action` at the end of every turn in which something happened.
  public func afterTurn(_ action: @escaping () -> Void) { turnEnds.append(action) }

  public func stop() { isStopped = true }

  /// Runs until `stop`.
  public func run() {
    isStopped = false
    endTurn()
    while !isStopped { turn(wait: true) }
  }

  /// One turn: wait for something (or not), handle all of it.
  public func turn(wait: Bool) {
    var events = [epoll_event](repeating: epoll_event(), count: 64)
    let timeout = wait && deferred.isEmpty ? millisecondsToNextTimer() : 0
    let count = epoll_wait(poll, &events, 64, timeout)
    wakeups &+= 1
    if count > 0 {
      for event in events.prefix(Int(count)) {
        let interest = Readiness(rawValue: event.events)
        watches[event.data.fd]?.handler(interest)
      }
    }
    while let action = timers.due(now: now) { action() }
    endTurn()
  }

  /// Deferred work may defer more; it runs to the end, then the turn's end actions, which may defer again.
  private func endTurn() {
    repeat {
      while !deferred.isEmpty {
        let batch = deferred
        deferred.removeAll()
        for action in batch { action() }
      }
      for action in turnEnds { action() }
    } while !deferred.isEmpty && !isStopped
  }

  private func millisecondsToNextTimer() -> Int32 {
    guard let next = timers.next else { return -1 }
    let nanoseconds = (next - now).wholeNanoseconds
    guard nanoseconds > 0 else { return 0 }
    // Rounded up: waking before the time would spin.
    return Int32(min((nanoseconds - 1) / 1_000_000 + 1, 3_600_000))
  }
}
