// SPDX-License-Identifier: MIT

import SQLite

extension Store {
  /// The result of a read that the caller can do without; `nil` if the store cannot be read, which the `News` and so the log
  /// report: each failure once, `maxUnreadable` at most.
  ///
  /// For names in a listing, counts in a status, and decisions that can wait. What an answer consists of is read with `try`.
  @discardableResult
  public func ifReadable<Result>(_ read: () throws -> Result?) -> Result? {
    do {
      return try read()
    } catch {
      noteUnreadable(error)
      return nil
    }
  }
}
