// SPDX-License-Identifier: MIT

import Timing

/// Why a message from elsewhere that somebody may expect is not sent here.
public enum LeftOut: String, CaseIterable, Sendable {
  case notAccepted = "not_accepted"
  case unknownAge = "unknown_age"
  case tooOld = "too_old"
  case beforeRestore = "before_restore"
  case tooMany = "too_many"

  var words: String {
    switch self {
    case .notAccepted: "of gateways that relay.gateways does not name"
    case .unknownAge: "that waited in a radio for an unknown time"
    case .tooOld: "that are too old"
    case .beforeRestore: "from before the database was put back"
    case .tooMany: "of gateways that have too many, or when half of messaging.queue was taken"
    }
  }
}

/// How many were left out, and when that is to be said: at once, then once an hour. Pure. A message of which another gateway's report is taken
/// later is sent all the same, so these are reports.
struct LeftOutReports {
  private(set) var counts: [LeftOut: Int] = [:]
  private var untold: [LeftOut: Int] = [:]
  private var lines = Ration.hourly

  /// What is to be said now.
  mutating func add(_ why: LeftOut, now: MonotonicTime) -> String? {
    counts[why, default: 0] += 1
    untold[why, default: 0] += 1
    guard lines.take(at: now) else { return nil }
    let parts = LeftOut.allCases.compactMap { why in untold[why].map { "\($0) \(why.words)" } }
    untold = [:]
    return "reports of other places' messages left out: \(parts.joined(separator: ", ")) (said at most once an hour)"
  }
}
