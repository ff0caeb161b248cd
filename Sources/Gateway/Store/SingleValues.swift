// SPDX-License-Identifier: MIT

import SQLite

/// Single values, by name.
extension Database {
  func meta(_ name: String) throws(SQLiteError) -> SQLiteValue? {
    try value("SELECT value FROM meta WHERE name = ?", .text(name))
  }
}

extension Store {
  func meta(_ name: String) throws(StoreError) -> SQLiteValue? {
    try translating { () throws(SQLiteError) in try database.meta(name) }
  }

  func setMeta(_ name: String, _ value: SQLiteValue) throws(SQLiteError) {
    try database.run("INSERT OR REPLACE INTO meta(name, value) VALUES (?, ?)", .text(name), value)
  }
}
