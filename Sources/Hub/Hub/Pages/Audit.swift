// SPDX-License-Identifier: MIT

import JSON

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
  /// `signed_in`, `sign_in_refused`, `command`, `document`, `person`, `alert`, `gateway`, `push`.
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
      detail: JSONWriter.text(
        JSONObject(
          joining: ["name": person], JSONObject(detail.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }))))
  }
}

/// The audit: the last ten thousand records.
extension HubStore {
  private static let mostRecords: Int64 = 10_000

  public func note(_ record: AuditRecord) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.insert(
        into: "audit",
        [
          "at": record.at, "who": record.who, "way": record.signInMethod.rawValue, "what": record.what,
          "gateway": record.gateway, "detail": record.detail,
        ])
      try database.run("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1", Self.mostRecords)
    }
  }

  /// The newest records first, as many as fit a page. `before`: an `id`.
  public func auditRecords(before: Int64, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM audit WHERE id < ?1 ORDER BY id DESC"
    var last: Int64?
    let page = try page("id, at, who, way, what, gateway, detail", sizes: ["detail"], filter, [before], limit: limit) {
      row -> JSONObject in
      last = row.integer(0)
      return [
        "id": row.integer(0), "at": row.integer(1), "who": row.text(2), "way": row.text(3), "what": row.text(4),
        "gateway": row.textIfAny(5), "detail": RawJSON(row.text(6)),
      ]
    }
    return JSONWriter.object(["audit": page.rows, "next": page.hasMore ? last : nil])
  }
}
