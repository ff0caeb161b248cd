// SPDX-License-Identifier: MIT

import ArgumentParser

/// `--limit`: the number of rows that a command is asked for.
enum RowLimit {
  /// `allowsNone`: the command can follow what comes, without what was.
  static func check(_ limit: Int, allowsNone: Bool = false) throws {
    let least = allowsNone ? 0 : 1
    guard limit >= least else { throw ValidationError("--limit: \(limit) is not allowed: \(least) or more") }
  }
}
