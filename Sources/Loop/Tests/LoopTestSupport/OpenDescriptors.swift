// SPDX-License-Identifier: MIT

import Foundation

/// The number of open descriptors of this process. Other tests run at the same time; a leak shows as many.
public func openDescriptors() -> Int {
  // `try?`: without /proc there is nothing to compare.
  (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd"))?.count ?? 0
}
