// SPDX-License-Identifier: MIT

import ControlShapes
import JSON

extension Show {
  /// The used part of an upstream's allowance, and the lanes that it stops; `nil`: the upstream has no allowance.
  static func allowance(_ allowance: JSONValue?) -> String? {
    guard let allowance, allowance.fields != nil else { return nil }
    let used = [("day", "daily", "today"), ("month", "monthly", "this month")].compactMap { period, limit, words in
      allowance["\(limit)_bytes"]?.integer.map { limit in
        "\(kilobytes(allowance["\(period)_bytes"]?.integer ?? 0)) of \(kilobytes(limit)) kB \(words)"
      }
    }
    let text = used.isEmpty ? "bulk hours" : "allowance: \(used.joined(separator: ", "))"
    return text + (stopped(allowance).map { "; \($0)" } ?? "")
  }

  /// The lanes that wait, and the end of their wait; `nil`: none.
  static func stopped(_ allowance: JSONValue?) -> String? {
    let row = Shape.Allowance()
    guard let allowance else { return nil }
    var lanes = allowance[row.stopped]
    if allowance[row.waitsForHours] == true { lanes += ["nodes", "packets"].filter { !lanes.contains($0) } }
    guard !lanes.isEmpty else { return nil }
    let until = allowance[row.until].map { " until \(time($0))" } ?? ""
    return "\(lanes.joined(separator: ", ")) wait\(until)"
  }

  private static func kilobytes(_ bytes: Int64) -> String { "\(bytes / 1000)" }
}
