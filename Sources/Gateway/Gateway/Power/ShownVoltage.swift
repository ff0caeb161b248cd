// SPDX-License-Identifier: MIT

import Timing

/// The battery's voltage as servers see it in the gateway's state: in steps of 50 mV, and another one at most once an hour unless the
/// battery is low. Pure.
struct ShownVoltage: Equatable {
  private static let step = 50
  private static let between: Duration = .seconds(3600)

  /// `nil`: not measured.
  private(set) var millivolts: Int?
  private var since: MonotonicTime?

  /// A reading. True: another one is shown.
  mutating func read(_ reading: UInt16, isLow: Bool, now: MonotonicTime) -> Bool {
    guard reading > 0 else { return false }
    // A step away from what is shown, and not on its border.
    if let millivolts, abs(Int(reading) - millivolts) < Self.step { return false }
    if let since, now - since < Self.between, !isLow { return false }
    (millivolts, since) = ((Int(reading) + Self.step / 2) / Self.step * Self.step, now)
    return true
  }
}
