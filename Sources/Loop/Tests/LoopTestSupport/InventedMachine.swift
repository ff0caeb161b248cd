// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Timing

/// A machine whose time passes when there is nothing else to do: an hour of waiting takes no time. Its descriptors are real.
public final class InventedMachine: Machine {
  private let descriptors = LinuxMachine()
  private var loopback = Loopback()
  public private(set) var now = MonotonicTime(seconds: 1000)
  /// The milliseconds by which the clock is ahead of a day in 2026; it may step.
  public var wallOffset: Int64 = 0
  public var isWallSynchronised = true

  /// The process ignores SIGPIPE from then on, as the programs do: a connection may end before a write to it.
  public init() { signal(SIGPIPE, SIG_IGN) }

  public var sinceBoot: Int64 { now.nanoseconds / 1_000_000 }
  /// The id of the machine's present boot.
  public var boot = "the first"

  public var wallMilliseconds: Int64 {
    1_795_237_200_000 + wallOffset + (now - MonotonicTime(seconds: 1000)).wholeNanoseconds / 1_000_000
  }

  public func watch(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt64) -> Bool {
    loopback.insert(descriptor)
    return descriptors.watch(descriptor, for: interest, tag: tag)
  }

  public func change(_ descriptor: Int32, to interest: EventLoop.Readiness, tag: UInt64) {
    descriptors.change(descriptor, to: interest, tag: tag)
  }

  public func unwatch(_ descriptor: Int32) {
    descriptors.unwatch(descriptor)
  }

  public func wait(milliseconds: Int32, _ ready: (_ tag: UInt64, EventLoop.Readiness) -> Void) {
    var isReady = false
    func look(for milliseconds: Int32) {
      descriptors.wait(milliseconds: milliseconds) { tag, readiness in
        isReady = true
        ready(tag, readiness)
      }
    }
    look(for: 0)
    // On a busy machine, bytes arrive a moment after a socket has sent them. Invented time waits for them: otherwise an answer that was sent in time
    // would be late.
    var looks = 0
    while !isReady, milliseconds > 0, looks < 5000, loopback.hasBytesOnTheWay() {
      look(for: 1)
      looks += 1
    }
    // The last of them may have arrived after the look, and before that answer.
    if !isReady, milliseconds > 0 { look(for: 0) }
    if !isReady, milliseconds > 0 { now = now + .milliseconds(Int64(milliseconds)) }
  }
}
