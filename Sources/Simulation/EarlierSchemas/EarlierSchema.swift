// SPDX-License-Identifier: MIT

import SQLite

/// Makes of a database what a program with an earlier schema would have left, so that simulations and tests upgrade databases that have lived.
///
/// A step is undone with what later programs keep in tables that it did not make: an older program would not have written that.
public struct EarlierSchema: Sendable {
  /// The step's number, and the SQL that undoes it; the newest step first.
  let undoing: [(number: Int, sql: String)]

  /// The version of the present program.
  public var newest: Int { undoing[0].number }
  /// The versions that can be had.
  public var versions: ClosedRange<Int> { (newest - undoing.count)...(newest - 1) }

  /// Undoes the steps after `version`, from a database of version `from` on; `nil`: from the newest.
  public func sql(to version: Int, from: Int? = nil) -> String {
    undoing.filter { $0.number > version && $0.number <= from ?? newest }.map(\.sql).filter { !$0.isEmpty }
      .joined(separator: ";\n")
  }

  /// Takes a closed SQLite database to a version; one that is older stays as it is.
  public func undo(to version: Int, in location: String) throws(SQLiteError) {
    precondition(versions.contains(version), "no version that can be had")
    let database = try Database(location: location)
    let present = try database.schemaVersion()
    guard present > version else { return }
    try database.execute(
      "BEGIN IMMEDIATE; \(sql(to: version, from: present)); PRAGMA user_version = \(version); COMMIT")
  }
}
