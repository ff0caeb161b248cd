// SPDX-License-Identifier: MIT

extension FixedWidthInteger {
  /// The nearest representable value, rounded toward zero; 0 for NaN. Numbers from outside can be 1e308, on which the
  /// usual conversion traps.
  public init(saturating value: Double) {
    if let exact = Self(exactly: value.rounded(.towardZero)) {
      self = exact
    } else {
      self = value.isNaN ? 0 : value < 0 ? .min : .max
    }
  }
}
