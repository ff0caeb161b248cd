// SPDX-License-Identifier: MIT

/// The state of the radio's battery and this machine's power supply, as far as known.
public struct PowerReport: Equatable, Sendable {
  /// The radio's battery; `nil`: not asked yet.
  public var millivolts: UInt16?
  /// Rounded for servers, so that it seldom changes.
  public var shownMillivolts: Int?
  public var isBatteryLow: Bool
  /// `nil`: this machine has no such sensor.
  public var isSupplyLow: Bool?

  public init(millivolts: UInt16?, shownMillivolts: Int? = nil, isBatteryLow: Bool, isSupplyLow: Bool?) {
    (self.millivolts, self.shownMillivolts) = (millivolts, shownMillivolts)
    (self.isBatteryLow, self.isSupplyLow) = (isBatteryLow, isSupplyLow)
  }
}
