// SPDX-License-Identifier: MIT

/// A numbered step of a schema. Steps are never changed once released: a new one is added.
public struct Migration: Sendable {
  public let number: Int
  public let sql: String

  public init(number: Int, sql: String) {
    self.number = number
    self.sql = sql
  }
}

extension Database {
  /// The number of the last migration that was run (`PRAGMA user_version`).
  public func schemaVersion() throws(SQLiteError) -> Int {
    Int(try value("PRAGMA user_version")?.integer ?? 0)
  }

  /// The number of the last migration that was run.
  ///
  /// A file from a newer version is refused: an older program would not keep its rules.
  @discardableResult
  public func knownVersion(_ migrations: [Migration]) throws(SQLiteError) -> Int {
    let current = try schemaVersion()
    if let newest = migrations.last?.number, current > newest {
      throw SQLiteError(newer: current, than: newest)
    }
    return current
  }

  /// Runs the missing steps, each in its own transaction.
  public func migrate(_ migrations: [Migration]) throws(SQLiteError) {
    let current = try knownVersion(migrations)
    for migration in migrations where migration.number > current {
      do {
        try execute("BEGIN IMMEDIATE")
        // Another program may have run it meanwhile.
        guard try schemaVersion() < migration.number else {
          try execute("ROLLBACK")
          continue
        }
        try execute("\(migration.sql); PRAGMA user_version = \(migration.number); COMMIT")
      } catch {
        if isInTransaction { try execute("ROLLBACK") }
        throw error
      }
    }
  }
}
