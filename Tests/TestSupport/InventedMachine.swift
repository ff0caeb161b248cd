// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// A machine whose time passes when nothing else is to do: an hour of waiting takes no time. Descriptors are real ones.
public final class InventedMachine: Machine {
  private let descriptors = LinuxMachine()
  public private(set) var now = MonotonicTime(seconds: 1000)
  /// What the clock is ahead of a day in 2026; it may step.
  public var wallOffset: Int64 = 0
  public var isWallSynchronised = true

  public init() {}

  public var sinceBoot: Int64 { now.nanoseconds / 1_000_000 }

  public var wallMilliseconds: Int64 {
    1_795_237_200_000 + wallOffset + (now - MonotonicTime(seconds: 1000)).wholeNanoseconds / 1_000_000
  }

  public func watch(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt64) -> Bool {
    descriptors.watch(descriptor, for: interest, tag: tag)
  }

  public func change(_ descriptor: Int32, to interest: EventLoop.Readiness, tag: UInt64) {
    descriptors.change(descriptor, to: interest, tag: tag)
  }

  public func unwatch(_ descriptor: Int32) { descriptors.unwatch(descriptor) }

  public func wait(milliseconds: Int32, _ ready: (_ tag: UInt64, EventLoop.Readiness) -> Void) {
    var isReady = false
    descriptors.wait(milliseconds: 0) { tag, readiness in
      isReady = true
      ready(tag, readiness)
    }
    if !isReady, milliseconds > 0 { now = now + .milliseconds(Int64(milliseconds)) }
  }
}
