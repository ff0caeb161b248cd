// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store
import Timing

/// The radio's reports on its clock and its start. Pure.
struct RadioClock {
  private var read: (time: UInt32, at: MonotonicTime)?
  /// The latest possible start of the radio, according to its reports over this link.
  private(set) var started: MonotonicTime?
  /// The start by the last report, kept over links, and by how much it is late: the firmware counts milliseconds in 32 bits, and begins at zero again
  /// after 49.7 days without a restart.
  private var reported: (start: MonotonicTime, at: MonotonicTime, turns: Duration)?

  /// The latest time that the clock had when it was found to be set back.
  private var steppedFrom: UInt32?
  /// In seconds: clocks are read to the second, and drift.
  private static let leastStep: UInt32 = 60
  /// When to read the clock again.
  private var nextCheck: MonotonicTime?

  /// The radio's time in seconds since 1970, when it was last read.
  var lastRead: UInt32? { read?.time }

  func time(at now: MonotonicTime) -> UInt32? {
    read.map { $0.time &+ UInt32(clamping: Int64((now - $0.at).inSeconds)) }
  }

  mutating func told(_ time: UInt32, now: MonotonicTime) {
    if let before = self.time(at: now), before > time { steppedFrom = max(steppedFrom ?? 0, before) }
    read = (time, now)
  }

  /// The time, still to come, that the clock had before it was set back; `nil`: none.
  func stepped(at now: MonotonicTime) -> UInt32? {
    guard let steppedFrom, let time = time(at: now), steppedFrom > time, steppedFrom - time > Self.leastStep else {
      return nil
    }
    return steppedFrom
  }

  /// Another radio is attached.
  mutating func forgetTime() { (read, steppedFrom, reported) = (nil, nil, nil) }

  func isDue(at now: MonotonicTime) -> Bool { nextCheck.map { now >= $0 } ?? true }

  /// The radio is asked now. Until it has answered, it is asked again after ten minutes: its clock may be years behind.
  mutating func isAsked(at now: MonotonicTime) { nextCheck = now + .seconds(600) }

  /// The clock is as right as it can be, for a day: clocks of radios drift.
  mutating func wasChecked(at now: MonotonicTime) { nextCheck = now + .seconds(86_400) }

  /// The gateway set the clock, directly after reading it.
  mutating func wasSet(to time: UInt32) { read?.time = time }

  mutating func runs(for uptime: Duration, now: MonotonicTime) {
    let start = now + (.zero - uptime)
    var turns = Duration.zero
    if let reported {
      let tolerance = RadioStarts.tolerance(over: now - reported.at)
      let more = RadioStarts.turns(from: reported.start, to: start, tolerance)
      let isSame = more > 0 || abs((start - reported.start).inSeconds) <= tolerance
      if isSame { turns = reported.turns + RadioStarts.turn * more }
    }
    reported = (start, now, turns)
    started = start + (.zero - turns)
  }

  mutating func forgetStart() { started = nil }
}

extension Synchronizer {
  /// The radio's estimated time now, in seconds since 1970; `nil`: it was not read.
  public var radioTime: UInt32? { radioClock.time(at: loop.now) }

  /// The radio's clock was ahead: nodes that it asked then ignore its requests until this time, in seconds since 1970.
  public var isIgnoredUntil: UInt32? { radioClock.stepped(at: loop.now) }

  /// The latest possible start of the radio, according to its reports over this link.
  public var radioStarted: MonotonicTime? { radioClock.started }

  func syncTime() async throws {
    if !isServing { enter(.syncing(.time, current: 0, total: 0)) }
    radioClock.isAsked(at: loop.now)
    guard case .replied(.currentTime(let time)) = try await ask(.getDeviceTime) else { return }
    radioClock.told(time, now: loop.now)
    let ours = clock.seconds
    if maySet(time, to: ours) {
      switch try await ask(.setDeviceTime(UInt32(clamping: ours))) {
      case .replied: radioClock.wasSet(to: UInt32(clamping: ours))
      case .failed(.refused(let error)):
        log.info("the radio refused to set its clock: \(error?.description ?? "no reason given")")
      default: return
      }
    }
    radioClock.wasChecked(at: loop.now)
  }

  /// Sets the clock only forwards, and only from a synchronised, plausible clock (docs/protocol/companion.md § 9.2): a
  /// radio that was set into the future cannot be set back.
  private func maySet(_ time: UInt32, to ours: Int64) -> Bool {
    guard settings.setsTime, store.judgingNow.trusted, ours >= Self.earliestPlausible, ours <= Self.latestPlausible
    else { return false }
    if Int64(time) > ours + 60 {
      log.warning("the radio's clock is \(Int64(time) - ours) s ahead; only a power cycle of the radio can set it back")
    }
    return ours > Int64(time) + 1
  }

  /// 1 November 2026, the earliest possible time of this program, and 1 January 2100.
  private static let earliestPlausible: Int64 = 1_793_491_200
  private static let latestPlausible: Int64 = 4_102_444_800
}
