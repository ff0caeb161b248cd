// SPDX-License-Identifier: MIT

/// Clocks may tell anything: what is too large is the largest number, and what is too small the smallest.
extension Int64 {
  func adding(saturating other: Int64) -> Int64 {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? (self < 0 ? .min : .max) : sum
  }

  func subtracting(saturating other: Int64) -> Int64 {
    let (difference, overflow) = subtractingReportingOverflow(other)
    return overflow ? (self < 0 ? .min : .max) : difference
  }
}
