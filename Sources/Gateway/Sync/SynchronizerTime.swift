// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Timing

/// The radio's clock.
extension Synchronizer {
  func syncTime() async throws {
    enter(.syncing(.time, current: 0, total: 0))
    guard case .replied(.currentTime(let time)) = try await ask(.getDeviceTime) else { return }
    (radioClock, radioClockRead) = (time, loop.now)
    let ours = clock.seconds
    guard maySet(time, to: ours) else { return }
    if case .failed(let failure) = try await ask(.setDeviceTime(UInt32(clamping: ours))) {
      log.info("the radio refused to set its clock: \(failure)")
    } else {
      radioClock = UInt32(clamping: ours)
    }
  }

  /// Only forwards, only from a synchronised clock, never from one that is older than this program
  /// (docs/protocol/companion.md § 9.2): a radio that was set into the future cannot be brought back.
  private func maySet(_ time: UInt32, to ours: Int64) -> Bool {
    guard settings.setsTime, clock.isSynchronised, ours >= Self.earliestPlausible, ours <= Self.latestPlausible else {
      return false
    }
    if Int64(time) > ours + 60 {
      log.warning("the radio's clock is \(Int64(time) - ours) s ahead; only a power cycle of the radio can set it back")
    }
    return ours > Int64(time) + 1
  }

  /// 1 November 2026, before which this was not written, and 1 January 2100.
  private static let earliestPlausible: Int64 = 1_793_491_200
  private static let latestPlausible: Int64 = 4_102_444_800
}
