// SPDX-License-Identifier: MIT

import Documents
import JSON
import SQLite

/// Documents that this gateway and its hubs both edit. Source: docs/documents.md.
extension Store {
  public func document(_ key: String) throws(StoreError) -> Document? {
    try translating { () throws(SQLiteError) in try known(key)?.document }
  }

  private func known(_ key: String) throws(SQLiteError) -> (document: Document, seq: Int64)? {
    var found: (Document, Int64)?
    try database.each(
      "SELECT key, value, updated_at, by_hub, seq FROM documents WHERE key = ?", [.text(key)]
    ) { (row) throws(SQLiteError) in
      found = (Self.document(row), row.integer(4))
      return false
    }
    return found
  }

  private static func document(_ row: Statement) -> Document {
    Document(
      key: row.text(0), value: row.textIfAny(1), updatedAt: row.integer(2), byHub: row.integer(3) != 0)
  }

  /// Those that begin so, deleted ones too, in the order of their keys. Return false to stop.
  public func eachDocument(_ beginning: String = "", _ row: (Document) -> Bool) throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try database.each(
        "SELECT key, value, updated_at, by_hub FROM documents WHERE key >= ?1 AND key < ?1 || char(1114111) ORDER BY key",
        [.text(beginning)]
      ) { (statement) throws(SQLiteError) in row(Self.document(statement)) }
    }
  }

  /// Within a `write`: an edit made here. Hubs hear of it by the journal.
  @discardableResult
  public func editDocument(_ key: String, _ value: String?, at moment: Moment) throws(SQLiteError) -> Document {
    let edit = Document.edit(key, value, of: try known(key)?.document, at: moment.milliseconds, byHub: false)
    let seq = try append(.document, at: moment, body: Self.body(edit, via: nil))
    try keep(edit, seq: seq)
    return edit
  }

  /// Documents that are kept, deleted ones too. Each has at most 1000 bytes besides its key and its tags, so that all of them take
  /// some ten megabytes.
  public static let maxDocuments: Int64 = 10_000

  /// One more document than there are would be too many; those that are there can still be edited.
  public func hasRoomForDocument(_ key: String) throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in try hasRoom(for: key) }
  }

  private func hasRoom(for key: String) throws(SQLiteError) -> Bool {
    if try known(key) != nil { return true }
    return (try database.value("SELECT count(*) FROM documents")?.integer ?? 0) < Self.maxDocuments
  }

  /// Within a `write`: what a hub says a document is. True when that changes it; a further one than `maxDocuments` does not.
  ///
  /// A hub that has our last edit (`acknowledged` is past it) speaks of that too: what it says counts. Before, the later of
  /// the two does; the hub will tell which has won when it has both.
  public func applyDocument(
    _ document: Document, via upstream: String, acknowledged: Int64, at moment: Moment
  ) throws(SQLiteError) -> Bool {
    if let (mine, seq) = try known(document.key) {
      if mine == document { return false }
      if seq > acknowledged, !document.wins(over: mine) { return false }
    } else if try !hasRoom(for: document.key) {
      return false
    }
    // The other hubs hear of it; the one that it comes from does not.
    try append(.document, at: moment, body: Self.body(document, via: upstream))
    try keep(document, seq: 0)
    return true
  }

  /// Within a `write`: all of them, told once more: a hub has gone back in time.
  public func announceDocuments(at moment: Moment) throws(SQLiteError) {
    var all: [Document] = []
    try database.each("SELECT key, value, updated_at, by_hub FROM documents ORDER BY key", []) {
      (row) throws(SQLiteError) in
      all.append(Self.document(row))
      return true
    }
    for document in all {
      let seq = try append(.document, at: moment, body: Self.body(document, via: nil))
      try keep(document, seq: seq)
    }
  }

  private func keep(_ document: Document, seq: Int64) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO documents(key, value, updated_at, by_hub, seq) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT(key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at, by_hub = excluded.by_hub,
      seq = excluded.seq
      """, .text(document.key), .optional(document.value), .integer(document.updatedAt),
      .integer(document.byHub ? 1 : 0), .integer(seq))
  }

  private static func body(_ document: Document, via upstream: String?) -> [UInt8] {
    JSONWriter.object { json in
      json.field("key", document.key)
      json.field("value", json: Array((document.value ?? "null").utf8))
      json.field("updated_at", document.updatedAt)
      json.field("via", upstream)
    }
  }
}
