// SPDX-License-Identifier: MIT

/// Triggers work for a gateway once in a number of its rows. It counts the rows itself: row numbers have gaps.
struct RowInterval {
  /// Most gateways with counts. At this limit all counts begin again.
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
