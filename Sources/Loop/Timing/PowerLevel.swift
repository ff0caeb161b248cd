// SPDX-License-Identifier: MIT

/// Whether a battery is low, without flapping at the limit. Pure.
///
/// It is low after two successive readings below the limit, because a radio that transmits briefly pulls its battery
/// down. It is well again at a tenth of a volt above the limit.
public struct BatteryLevel: Equatable, Sendable {
  /// Millivolts; 0: the battery never counts as low.
  public var limit: UInt16
  public private(set) var isLow = false
  private var wasBelow = false

  static let margin: UInt16 = 100
  /// One reading was below the limit; the next one decides.
  public var isDoubtful: Bool { wasBelow && !isLow }

  public init(limit: UInt16) { self.limit = limit }

  /// Takes a reading. True: the battery has become low, or is well again. Ignores 0, which boards report that cannot
  /// measure.
  public mutating func read(_ millivolts: UInt16) -> Bool {
    guard limit > 0, millivolts > 0 else { return false }
    let before = isLow
    let isBelow = millivolts < limit
    if isBelow, wasBelow { isLow = true }
    if Int(millivolts) >= Int(limit) + Int(Self.margin) { isLow = false }
    wasBelow = isBelow
    return isLow != before
  }
}
