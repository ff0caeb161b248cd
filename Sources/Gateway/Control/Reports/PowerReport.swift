// SPDX-License-Identifier: MIT

/// How the radio's battery and this machine's supply are, as far as they tell.
public struct PowerReport: Equatable, Sendable {
  /// The radio's battery; `nil`: not asked yet.
  public var millivolts: UInt16?
  /// In the steps in which servers see it.
  public var shownMillivolts: Int?
  public var isBatteryLow: Bool
  /// `nil`: this machine cannot tell.
  public var isSupplyLow: Bool?

  public init(millivolts: UInt16?, shownMillivolts: Int? = nil, isBatteryLow: Bool, isSupplyLow: Bool?) {
    (self.millivolts, self.shownMillivolts) = (millivolts, shownMillivolts)
    (self.isBatteryLow, self.isSupplyLow) = (isBatteryLow, isSupplyLow)
  }
}
