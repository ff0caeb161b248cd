// SPDX-License-Identifier: MIT

/// What is done for a gateway each time that it has brought so many rows: by a count of its own, for numbers of rows are used up by updates, too, and
/// may never be the ones that are waited for.
struct EachSoMany {
  /// Gateways whose rows are counted; then all begin anew.
  private static let mostGateways = 10_000

  private let many: Int
  private var counts: [String: Int] = [:]

  init(_ many: Int) { self.many = many }

  /// One more; true each `many` times.
  mutating func isDue(_ gateway: String) -> Bool {
    let count = counts[gateway, default: 0] + 1
    if count >= many {
      counts[gateway] = nil
      return true
    }
    if counts.count >= Self.mostGateways { counts = [:] }
    counts[gateway] = count
    return false
  }
}
