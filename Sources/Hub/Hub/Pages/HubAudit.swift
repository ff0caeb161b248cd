// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// A record of an action of a person or a token at the hub.
public struct AuditRecord: Sendable {
  public enum SignInMethod: String, Sendable {
    case password, token, oidc
    case commandLine = "command_line"
  }

  public var at: Int64
  /// The name of a person or a token; empty: unknown.
  public var who: String
  public var signInMethod: SignInMethod
  /// `signed_in`, `sign_in_refused`, `command`, `document`, `person`, `alert`.
  public var what: String
  public var gateway: String?
  /// JSON, without secrets.
  public var detail = "{}"
}

extension AuditRecord {
  /// The account `user` of this machine added, changed or removed a person.
  public init(person: String, by user: String, _ detail: [String: String], at: Int64) {
    self.init(
      at: at, who: user, signInMethod: .commandLine, what: "person",
      detail: JSONWriterText.object { json in
        json.field("name", person)
        for (name, value) in detail.sorted(by: { $0.key < $1.key }) { json.field(name, value) }
      })
  }
}

/// The audit: the last ten thousand records.
extension HubStore {
  private static let mostRecords: Int64 = 10_000

  public func note(_ record: AuditRecord) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.run(
        "INSERT INTO audit(at, who, way, what, gateway, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)", .integer(record.at),
        .text(record.who), .text(record.signInMethod.rawValue), .text(record.what), .optional(record.gateway),
        .text(record.detail))
      try database.run("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1", .integer(Self.mostRecords))
    }
  }

  /// The newest records first, as many as fit a page. `before`: an `id`.
  public func auditRecords(before: Int64, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2"
    let fit = try fitting("SELECT \(bytes("detail")) \(filter)", [.integer(before), .integer(Int64(limit))])
    var last: Int64?
    let records = try database.rows(
      "SELECT id, at, who, way, what, gateway, detail \(filter)", [.integer(before), .integer(Int64(fit.rows))]
    ) { row in
      last = row.integer(0)
      return JSONWriter.object { json in
        json.field("id", row.integer(0))
        json.field("at", row.integer(1))
        json.field("who", row.text(2))
        json.field("way", row.text(3))
        json.field("what", row.text(4))
        json.field("gateway", row.textIfAny(5))
        json.field("detail", json: Array(row.text(6).utf8))
      }
    }
    return JSONWriter.object { json in
      json.arrayField("audit") { json in for record in records { json.raw(record) } }
      if fit.isCut || fit.rows == limit { json.field("next", last) }
    }
  }
}
