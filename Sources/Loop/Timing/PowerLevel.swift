// SPDX-License-Identifier: MIT

/// Whether a battery is low, without flapping at the border. Pure.
///
/// It is low when two readings in a row are below the limit: a radio that transmits pulls its battery down for a moment. It is well again
/// when it is a tenth of a volt above.
public struct BatteryLevel: Equatable, Sendable {
  /// Millivolts; 0: it never is.
  public var limit: UInt16
  public private(set) var isLow = false
  private var wasBelow = false

  static let margin: UInt16 = 100
  /// One reading was below the limit.
  public var isDoubtful: Bool { wasBelow && !isLow }

  public init(limit: UInt16) { self.limit = limit }

  /// A reading. True when it has become low, or is well again. Readings of 0 are those of boards that cannot measure.
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
