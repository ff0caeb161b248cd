// SPDX-License-Identifier: MIT

import EarlierSchemas
import SQLite

/// Two databases are compared by what they say of themselves and have, not by bytes: a column that is added has another place than one that was there.
extension EarlierSchema {
  private static func texts(_ sql: String, of database: Database) throws(SQLiteError) -> [String] {
    try database.rows(sql) { $0.text(0) }
  }

  /// Tables and their columns, views and indexes.
  public static func shape(of database: Database) throws(SQLiteError) -> Set<String> {
    Set(
      try texts(
        """
        SELECT t.type || ' ' || t.name || '.' || c.name || ' ' || c.type || ' ' || c."notnull" || ' '
            || ifnull(c.dflt_value, '-') || ' ' || c.pk
          FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type IN ('table', 'view')
        UNION ALL SELECT 'index ' || name || ' ' || ifnull(sql, '') FROM sqlite_schema WHERE type = 'index'
        UNION ALL SELECT 'without row numbers: ' || name FROM pragma_table_list WHERE wr
        """, of: database))
  }

  /// All columns, as `TABLE.COLUMN`.
  public static func columns(of database: Database) throws(SQLiteError) -> [String] {
    try texts(
      "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'",
      of: database)
  }

  /// Sorted rows by table, of these columns of one database.
  public static func rows(of columns: [String], in database: Database) throws(SQLiteError) -> [String: [String]] {
    var rows: [String: [String]] = [:]
    for (table, columns) in Dictionary(grouping: columns, by: { String($0.prefix { $0 != "." }) }) {
      let values = columns.sorted().map { "quote(\($0))" }.joined(separator: " || ' ' || ")
      rows[table] = try texts("SELECT \(values) FROM \(table) ORDER BY 1", of: database)
    }
    return rows
  }
}
