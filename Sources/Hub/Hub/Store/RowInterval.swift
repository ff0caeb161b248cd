// SPDX-License-Identifier: MIT

/// Triggers work for a gateway once in so many of its rows. It counts by itself: updates use up row numbers too, so the number that one waits for may
/// never come.
struct RowInterval {
  /// Most gateways whose rows are counted; beyond it all counts begin anew.
  private static let mostGateways = 10_000

  private let rows: Int
  private var counts: [String: Int] = [:]

  init(_ rows: Int) { self.rows = rows }

  /// Counts a row; true once in `rows` calls.
  mutating func isDue(_ gateway: String) -> Bool {
    let count = counts[gateway, default: 0] + 1
    if count >= rows {
      counts[gateway] = nil
      return true
    }
    if counts.count >= Self.mostGateways { counts = [:] }
    counts[gateway] = count
    return false
  }
}
