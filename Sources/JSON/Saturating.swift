// SPDX-License-Identifier: MIT

extension FixedWidthInteger {
  /// The nearest that there is, toward zero; 0 for what is no number. What comes from outside can be 1e308, on which the
  /// usual conversion ends the program.
  public init(saturating value: Double) {
    if let exact = Self(exactly: value.rounded(.towardZero)) {
      self = exact
    } else {
      self = value.isNaN ? 0 : value < 0 ? .min : .max
    }
  }
}
