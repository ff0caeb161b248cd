// SPDX-License-Identifier: MIT

import Glibc

/// The machine's time zone.
enum LocalTime {
  /// Seconds by which local time is ahead of UTC at that time.
  static func offset(at seconds: Int64) -> Int64 {
    var moment = time_t(seconds)
    var parts = tm()
    guard localtime_r(&moment, &parts) != nil else { return 0 }
    return Int64(parts.tm_gmtoff)
  }
}
