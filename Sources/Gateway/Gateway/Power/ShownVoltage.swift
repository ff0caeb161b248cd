// SPDX-License-Identifier: MIT

import Timing

/// The battery's voltage in the gateway's state: in steps of 50 mV, changed once an hour unless it is low. Pure.
struct ShownVoltage: Equatable {
  private static let step = 50
  private static let between: Duration = .seconds(3600)

  /// `nil`: not measured.
  private(set) var millivolts: Int?
  private var since: MonotonicTime?

  /// Takes a reading. Returns true if the shown value has changed.
  mutating func read(_ reading: UInt16, isLow: Bool, now: MonotonicTime) -> Bool {
    guard reading > 0 else { return false }
    // A full step away from the shown value: readings near a border do not alternate.
    if let millivolts, abs(Int(reading) - millivolts) < Self.step { return false }
    if let since, now - since < Self.between, !isLow { return false }
    (millivolts, since) = ((Int(reading) + Self.step / 2) / Self.step * Self.step, now)
    return true
  }
}
