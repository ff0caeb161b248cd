// SPDX-License-Identifier: MIT

import Documents
import JSON
import SQLite
import UntrustedText

/// Documents that this gateway and its hubs both edit. Source: docs/documents.md.
extension Store {
  public func document(_ key: String) throws(StoreError) -> Document? {
    try translating { () throws(SQLiteError) in try known(key)?.document }
  }

  private func known(_ key: String) throws(SQLiteError) -> (document: Document, seq: Int64)? {
    try database.first("SELECT key, value, updated_at, by_hub, seq FROM documents WHERE key = ?", [.text(key)]) {
      (Self.document($0), $0.integer(4))
    }
  }

  private static func document(_ row: Statement) -> Document {
    Document(
      key: row.text(0), value: row.textIfAny(1), updatedAt: row.integer(2), byHub: row.integer(3) != 0)
  }

  /// Documents with this key prefix, including deleted ones, by key. Return false to stop.
  public func eachDocument(_ beginning: String = "", _ row: (Document) -> Bool) throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try database.each(
        "SELECT key, value, updated_at, by_hub FROM documents WHERE key >= ?1 AND key < ?1 || char(1114111) ORDER BY key",
        [.text(beginning)]
      ) { (statement) throws(SQLiteError) in row(Self.document(statement)) }
    }
  }

  /// Within a `write`: an edit made at this gateway. The journal reports it to hubs.
  @discardableResult
  public func editDocument(_ key: String, _ value: String?, at moment: Moment) throws(SQLiteError) -> Document {
    let mine = try known(key)?.document
    let edit = Document.edit(key, value, of: mine, at: moment.milliseconds, byHub: false)
    let seq = try append(.document, at: moment, body: Self.body(edit, via: nil))
    try keep(edit, seq: seq)
    if mine == nil { documentCount = documentCount.map { $0 + 1 } }
    return edit
  }

  /// Maximum number of documents, including deleted ones. Each has at most 1000 bytes besides its key and its tags, so that all of them take
  /// some ten megabytes.
  public static let maxDocuments: Int64 = 10_000

  /// Whether this document exists, or there is room for another one.
  public func hasRoomForDocument(_ key: String) throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in try hasRoom(for: key) }
  }

  private func hasRoom(for key: String) throws(SQLiteError) -> Bool {
    if try known(key) != nil { return true }
    if documentCount == nil { documentCount = try database.value("SELECT count(*) FROM documents")?.integer }
    return documentCount ?? 0 < Self.maxDocuments
  }

  /// Within a `write`: applies a hub's version. Returns true if it changes the document; documents beyond `maxDocuments` are ignored.
  ///
  /// If the hub has our last edit (`acknowledged` is past it), its version wins. Otherwise the later one wins, and the hub decides
  /// when it has both.
  public func applyDocument(
    _ document: Document, via upstream: String, acknowledged: Int64, at moment: Moment
  ) throws(SQLiteError) -> Bool {
    let kept = try known(document.key)
    if let (mine, seq) = kept {
      if mine == document { return false }
      if seq > acknowledged, !document.wins(over: mine) { return false }
      // The same value with another time is not reported to other hubs: two hubs with different clocks would send it
      // back and forth without end. The later time is stored, so that the next edit is later for both.
      if mine.hasSameValue(as: document) {
        if document.updatedAt > mine.updatedAt { try keep(document, seq: seq) }
        return false
      }
    } else if try !hasRoom(for: document.key) {
      return false
    }
    // Reported to the other hubs, but not to the one that sent it.
    try append(.document, at: moment, body: Self.body(document, via: upstream))
    try keep(document, seq: 0)
    if kept == nil { documentCount = documentCount.map { $0 + 1 } }
    return true
  }

  /// Within a `write`: journals all documents again, for a hub that was restored. A few at a time are in memory: all may be ten megabytes.
  public func announceDocuments(at moment: Moment) throws(SQLiteError) {
    var last = ""
    while true {
      let some = try database.rows(
        "SELECT key, value, updated_at, by_hub FROM documents WHERE key > ? ORDER BY key LIMIT 64", [.text(last)]
      ) { Self.document($0) }
      // A damaged key could be read again and again.
      guard let end = some.last?.key, !end.isExactly(last) else { return }
      for document in some {
        let seq = try append(.document, at: moment, body: Self.body(document, via: nil))
        try keep(document, seq: seq)
      }
      last = end
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
