// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc

/// The process's limit of descriptors.
enum OpenFiles {
  /// More than any hub needs; a higher limit gains nothing.
  private static let enough: rlim_t = 1 << 20

  /// Raises the soft limit to the hard one, and returns the limit that now applies.
  static func raiseLimit() -> Int {
    var limit = rlimit()
    // A limit that every system allows.
    guard getrlimit(kind, &limit) == 0 else { return 1024 }
    let wanted = min(limit.rlim_max, enough)
    if limit.rlim_cur < wanted {
      var raised = limit
      raised.rlim_cur = wanted
      // Without permission to raise it, fewer connections fit.
      if setrlimit(kind, &raised) == 0 { return Int(clamping: wanted) }
    }
    return Int(clamping: min(limit.rlim_cur, enough))
  }

  private static var kind: __rlimit_resource_t { __rlimit_resource_t(RLIMIT_NOFILE.rawValue) }

  /// Descriptors in use.
  static var count: Int {
    // `try?`: without /proc, the approximate number of a hub without connections.
    (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 48
  }
}
