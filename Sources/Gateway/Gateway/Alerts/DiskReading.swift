// SPDX-License-Identifier: MIT

import Alerts
import Glibc
import Store

/// Reads the state of the disk and of the database's bound.
enum DiskReading {
  /// Percent of `max_size`.
  private static let nearlyFull: Int64 = 95
  private static let roomy: Int64 = 90

  /// `leastFree`: the minimum of free bytes; 0: no minimum.
  static func read(_ store: Store, leastFree: Int64) -> AlertReading {
    if let failure = store.transactions.failure { return .bad(text: "nothing can be written: \(failure)") }
    let readings = [space(store.location, leastFree), database(store)]
    if let bad = readings.first(where: { if case .bad = $0 { true } else { false } }) { return bad }
    return readings.contains(.between) ? .between : .well
  }

  private static func space(_ location: String, _ leastFree: Int64) -> AlertReading {
    var space = statvfs()
    // A disk that cannot be queried counts as not full.
    guard leastFree > 0, statvfs(location, &space) == 0 else { return .well }
    let free = Int64(
      clamping: UInt64(space.f_bavail).multipliedReportingOverflow(by: UInt64(space.f_frsize)).partialValue)
    if free < leastFree {
      return .bad(text: "only \(free >> 20) MiB are free on the database's file system", value: Double(free))
    }
    return free < leastFree + leastFree / 4 ? .between : .well
  }

  private static func database(_ store: Store) -> AlertReading {
    guard let size = store.ifReadable({ try store.usedSize() }) else { return .between }
    let most = max(1, store.maxBytes / 100)
    if size > most * nearlyFull {
      return .bad(text: "the database is nearly as full as max_size allows: \(size >> 20) MiB", value: Double(size))
    }
    return size > most * roomy ? .between : .well
  }
}
