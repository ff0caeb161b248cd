// SPDX-License-Identifier: MIT

import Documents
import JSON
import SQLite

/// Documents that gateways and the hub both edit: the last writer wins, the hub at a tie. Source: docs/documents.md.
extension HubStore {
  /// Milliseconds that a gateway's clock may be ahead of the hub's; an edit further ahead counts as made now.
  static let maxAhead: Int64 = 60_000

  /// An edit at the hub. It is later than the version that it replaces, regardless of clocks. `nil`: the gateway has too many documents.
  public func editDocument(
    _ key: String, _ value: String?, of gateway: String, at now: Int64
  ) throws(HubDatabaseError) -> Document? {
    try transaction { () throws(HubDatabaseError) in
      try database.lock(gateway)
      let known = try document(key, of: gateway)
      if known == nil, try !makesRoomForDocument(gateway) { return nil }
      let edit = Document.edit(key, value, of: known, at: now, byHub: true)
      try keep(edit, of: gateway, now)
      return edit
    }
  }

  /// Whether a gateway's event has an edit that an operator could make, too. Otherwise it is acknowledged, so that its gateway goes on, and not served.
  static func hasDocument(_ body: JSONValue) -> Bool {
    guard let key = body["key"]?.string, body["updated_at"]?.integer != nil else { return false }
    return DocumentKey.allows(key, body["value"].flatMap { $0 == .null ? nil : $0 })
  }

  /// Within a transaction: merges an edit of the gateway. If another version wins, the gateway gets that version.
  func mergeDocument(_ event: HubEvent, from gateway: String, now: Int64) throws(HubDatabaseError) {
    guard Self.hasDocument(event.body), let key = event.body["key"]?.string,
      let updatedAt = event.body["updated_at"]?.integer
    else { return }
    let value = event.body["value"].flatMap { $0 == .null ? nil : $0.text }
    // Escapes can make a valid value larger.
    guard value?.utf8.count ?? 0 <= HubBounds.documentBytes else { return }
    let edit = Document(
      key: key, value: value, updatedAt: updatedAt > now + Self.maxAhead ? now : updatedAt, byHub: false)
    let known = try document(key, of: gateway)
    if let known, !edit.wins(over: known) {
      // The gateway has the same value, whenever it was written.
      guard !known.hasSameValue(as: edit) else { return }
      return try announceDocument(known, of: gateway, now)
    }
    if known == nil, try !makesRoomForDocument(gateway) { return }
    try keep(edit, of: gateway, now)
  }

  /// Within a transaction: counts one more document; `false` at the limit.
  private func makesRoomForDocument(_ gateway: String) throws(HubDatabaseError) -> Bool {
    var count = documents[gateway] ?? 0
    if documents[gateway] == nil {
      count = try database.number("SELECT count(*) FROM documents WHERE gateway = ?1", gateway)
    }
    let fits = count < HubBounds.documents
    documents[gateway] = fits ? count + 1 : count
    return fits
  }

  private func keep(_ document: Document, of gateway: String, _ now: Int64) throws(HubDatabaseError) {
    try database.insert(
      into: "documents",
      [
        "gateway": gateway, "key": document.key, "value": document.value, "updated_at": document.updatedAt,
        "by_hub": document.byHub,
      ], "ON CONFLICT(gateway, key) DO UPDATE SET \(excluded("value", "updated_at", "by_hub"))")
    try announceDocument(document, of: gateway, now)
  }

  private func announceDocument(_ document: Document, of gateway: String, _ now: Int64) throws(HubDatabaseError) {
    let body = JSONWriter.text(document.json)
    try push("documents", of: gateway, id: document.key, body: body, now: now)
  }

  public func document(_ key: String, of gateway: String) throws(HubDatabaseError) -> Document? {
    try database.first(
      "SELECT key, value, updated_at, by_hub FROM documents WHERE gateway = ?1 AND key = ?2", gateway, key,
      read: Self.document)
  }

  /// A page of documents, and whether there are more.
  public func documents(
    of gateway: String, after: String, limit: Int
  ) throws(HubDatabaseError) -> (found: [Document], hasMore: Bool) {
    let filter = "FROM documents WHERE gateway = ?1 AND key > ?2 ORDER BY key"
    let page = try page(
      "key, value, updated_at, by_hub", sizes: ["value"], filter, [gateway, after], limit: limit, read: Self.document)
    return (page.rows, page.hasMore)
  }

  /// What the gateway permits this hub, as its newest state tells; `nil`: it does not tell.
  func allowed(by gateway: String) throws(HubDatabaseError) -> Set<String>? {
    let body = try database.first(
      "SELECT body FROM states WHERE gateway = ?1 AND name = 'gateway'", gateway, read: { $0.text(0) })
    // `try?`: the hub stores only JSON.
    guard let body, let state = try? JSONValue(parsing: Array(body.utf8)) else { return nil }
    return state["allow"]?.array.map { Set($0.compactMap(\.string)) }
  }

  private static func document(_ row: any HubRow) -> Document {
    Document(
      key: row.text(0), value: row.textIfAny(1), updatedAt: row.integer(2), byHub: row.integer(3) != 0)
  }
}

extension Document {
  var json: JSONObject {
    ["key": key, "value": RawJSON(value ?? "null"), "updated_at": updatedAt, "by_hub": byHub]
  }

  /// Whether an operator could set it. Earlier versions of the hub stored other ones of gateways, too.
  var isAllowed: Bool {
    guard let value else { return DocumentKey(key) != nil }
    // `try?`: what is no JSON is not allowed.
    return (try? JSONValue(parsing: Array(value.utf8))).map { DocumentKey.allows(key, $0) } ?? false
  }

  /// For readers, with whether the gateway takes the hub's edits of it and, if not, the line of its configuration that would permit them. `allowed`:
  /// what it permits; `nil`: it does not tell.
  func shown(allowed: Set<String>?) -> JSONObject {
    guard let allowed, let right = DocumentKey(key)?.right else { return json }
    guard !allowed.contains(right) else { return JSONObject(joining: json, ["permitted": true]) }
    // Of a gateway's words only the known ones are shown.
    let names = Self.rights.filter { $0 == right || allowed.contains($0) }.map { "\"\($0)\"" }
    let line = "allow = [\(names.joined(separator: ", "))]"
    return JSONObject(joining: json, ["permitted": false, "permits": line])
  }

  /// All rights, in the order of a gateway's own line.
  private static let rights = ["send", "sync", "status", "documents", "settings"]
}
