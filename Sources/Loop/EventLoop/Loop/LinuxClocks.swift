// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// The clocks of the machine on which this program runs. The daemon reads the time nowhere else.
public class LinuxClocks: Clocks {
  public init() {}

  public var now: MonotonicTime {
    let time = Self.read(CLOCK_MONOTONIC)
    return MonotonicTime(nanoseconds: Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec))
  }

  public var sinceBoot: Int64 { Self.milliseconds(CLOCK_BOOTTIME) }
  public var wallMilliseconds: Int64 { Self.milliseconds(CLOCK_REALTIME) }

  public var boot: String { Self.boot }

  private static let boot: String = {
    let file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return "" }
    defer { close(file) }
    var text = [UInt8](repeating: 0, count: 36)
    return Glibc.read(file, &text, text.count) == text.count ? String(decoding: text, as: UTF8.self) : ""
  }()

  /// Whether the kernel considers the clock synchronised (NTP, GPS). False on a Pi before its first sync.
  public var isWallSynchronised: Bool {
    var state = timex()
    let clock = adjtimex(&state)
    return clock >= 0 && clock != TIME_ERROR && state.status & STA_UNSYNC == 0
  }

  private static func milliseconds(_ clock: Int32) -> Int64 {
    let time = read(clock)
    return Int64(time.tv_sec) &* 1000 &+ Int64(time.tv_nsec) / 1_000_000
  }

  private static func read(_ clock: Int32) -> timespec {
    var time = timespec()
    clock_gettime(clock, &time)
    return time
  }
}

extension WallClock {
  /// This machine's wall clock, for programs without a loop.
  public init() { self.init(LinuxClocks()) }
}
