// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Timing

/// The radio's reports on its clock and its start. Pure.
struct RadioClock {
  private var read: (time: UInt32, at: MonotonicTime)?
  /// The latest possible start of the radio, according to its reports over this link.
  private(set) var started: MonotonicTime?

  /// The radio's time in seconds since 1970, when it was last read.
  var lastRead: UInt32? { read?.time }

  func time(at now: MonotonicTime) -> UInt32? {
    read.map { $0.time &+ UInt32(clamping: Int64((now - $0.at).inSeconds)) }
  }

  mutating func told(_ time: UInt32, now: MonotonicTime) { read = (time, now) }

  /// The gateway set the clock, directly after reading it.
  mutating func wasSet(to time: UInt32) { read?.time = time }

  mutating func runs(for uptime: Duration, now: MonotonicTime) { started = now + (.zero - uptime) }

  mutating func forgetStart() { started = nil }
}

extension Synchronizer {
  /// The radio's estimated time now, in seconds since 1970; `nil`: it was not read.
  public var radioTime: UInt32? { radioClock.time(at: loop.now) }

  /// The latest possible start of the radio, according to its reports over this link.
  public var radioStarted: MonotonicTime? { radioClock.started }

  func syncTime() async throws {
    enter(.syncing(.time, current: 0, total: 0))
    guard case .replied(.currentTime(let time)) = try await ask(.getDeviceTime) else { return }
    radioClock.told(time, now: loop.now)
    let ours = clock.seconds
    guard maySet(time, to: ours) else { return }
    if case .failed(let failure) = try await ask(.setDeviceTime(UInt32(clamping: ours))) {
      log.info("the radio refused to set its clock: \(failure)")
    } else {
      radioClock.wasSet(to: UInt32(clamping: ours))
    }
  }

  /// Sets the clock only forwards, and only from a synchronised, plausible clock (docs/protocol/companion.md § 9.2): a
  /// radio that was set into the future cannot be set back.
  private func maySet(_ time: UInt32, to ours: Int64) -> Bool {
    guard settings.setsTime, clock.isSynchronised, ours >= Self.earliestPlausible, ours <= Self.latestPlausible else {
      return false
    }
    if Int64(time) > ours + 60 {
      log.warning("the radio's clock is \(Int64(time) - ours) s ahead; only a power cycle of the radio can set it back")
    }
    return ours > Int64(time) + 1
  }

  /// 1 November 2026, the earliest possible time of this program, and 1 January 2100.
  private static let earliestPlausible: Int64 = 1_793_491_200
  private static let latestPlausible: Int64 = 4_102_444_800
}
