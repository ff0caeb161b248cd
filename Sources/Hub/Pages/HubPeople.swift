// SPDX-License-Identifier: MIT

import MeshCrypto
import SQLite
import Web

/// Somebody who uses the hub's pages.
public struct HubPerson: Sendable, Equatable {
  /// Each may do what those before it may.
  public enum Role: String, Sendable, CaseIterable {
    case view
    /// Commands and documents.
    case `operate`
    /// People and tokens.
    case administer

    func allows(_ deed: HubAccess.Deed) -> Bool {
      switch deed {
      case .read, .measure: true
      case .command: self != .view
      case .administer: self == .administer
      // Gateways have tokens.
      case .write: false
      }
    }
  }

  /// Scalars of a password: as NIST SP 800-63B, 3.1.1.2.
  public static let passwordCharacters = 8...1024

  /// As passwords are stored. `nil`: no memory for it.
  public static func hash(_ password: String) -> String? { PasswordHash.make(password) }

  public var name: String
  public var role: Role
  /// Milliseconds since 1970.
  public var createdAt: Int64
  /// When they were there last, to a day; `nil`: never.
  public var usedAt: Int64?
}

/// People and their sessions. Of a session the digest of its token is stored: whoever reads the database has no session.
extension HubStore {
  /// At once; the one of them that was used longest ago ends for a further one.
  private static let sessionsOfOne: Int64 = 32
  public static let mostPeople: Int64 = 1000
  private static let day: Int64 = 86_400_000

  /// What is refused, as words for people.
  public struct PeopleRefusal: Error, Sendable, CustomStringConvertible {
    public let description: String
  }

  public func people() throws(HubDatabaseError) -> [HubPerson] {
    var found: [HubPerson] = []
    try database.each(
      "SELECT name, role, created_at, used_at FROM people ORDER BY name LIMIT ?1", [.integer(Self.mostPeople)]
    ) {
      (row) throws(HubDatabaseError) in
      found.append(Self.person(row))
      return true
    }
    return found
  }

  private static func person(_ row: any HubRow) -> HubPerson {
    HubPerson(
      name: row.text(0), role: HubPerson.Role(rawValue: row.text(1)) ?? .view, createdAt: row.integer(2),
      usedAt: row.textIfAny(3).flatMap { Int64($0) })
  }

  /// The hash of somebody's password; `nil`: nobody is called so, or they have none.
  func passwordHash(of name: String) throws(HubDatabaseError) -> String? {
    try database.first("SELECT hash FROM people WHERE name = ?1", .text(name)) { $0.textIfAny(0) } ?? nil
  }

  /// Adds somebody, or changes what is given of them. Their sessions end. Returns why it was refused.
  public func setPerson(
    _ name: String, role: HubPerson.Role?, hash: String?, mustBeNew: Bool = false, at now: Int64
  ) throws(HubDatabaseError) -> PeopleRefusal? {
    try transaction { () throws(HubDatabaseError) in
      try database.lock("people")
      let known = try person(name)
      guard !mustBeNew || known == nil else { return PeopleRefusal(description: "\(name) is there already") }
      if let known {
        if let role, role != .administer, known.role == .administer, try isLast(name) { return Self.last }
        try database.run(
          "UPDATE people SET role = ?2, hash = coalesce(CAST(?3 AS TEXT), hash) WHERE name = ?1", .text(name),
          .text((role ?? known.role).rawValue), .optional(hash))
      } else {
        guard let role, let hash else { return PeopleRefusal(description: "a new person needs a role and a password") }
        let count = try database.first("SELECT count(*) FROM people") { $0.integer(0) } ?? 0
        guard count < Self.mostPeople else { return PeopleRefusal(description: "there are \(count) people already") }
        try database.run(
          "INSERT INTO people(name, role, hash, created_at) VALUES (?1, ?2, ?3, ?4)", .text(name), .text(role.rawValue),
          .text(hash), .integer(now))
      }
      try database.run("DELETE FROM web_sessions WHERE person = ?1", .text(name))
      return nil
    }
  }

  /// Returns why it was refused.
  public func removePerson(_ name: String) throws(HubDatabaseError) -> PeopleRefusal? {
    try transaction { () throws(HubDatabaseError) in
      try database.lock("people")
      guard let known = try person(name) else { return PeopleRefusal(description: "nobody is called \(name)") }
      if known.role == .administer, try isLast(name) { return Self.last }
      try database.run("DELETE FROM people WHERE name = ?1", .text(name))
      try database.run("DELETE FROM web_sessions WHERE person = ?1", .text(name))
      return nil
    }
  }

  private static let last = PeopleRefusal(description: "this is the last one who may administer")

  /// Of several who may administer, one is left. Who is alone may go only by the command line, with everybody.
  private func isLast(_ name: String) throws(HubDatabaseError) -> Bool {
    let others = try database.first(
      "SELECT count(*) FROM people WHERE role = 'administer' AND name <> ?1", .text(name)
    ) { $0.integer(0) }
    return (others ?? 0) == 0
  }

  private func person(_ name: String) throws(HubDatabaseError) -> HubPerson? {
    try database.first(
      "SELECT name, role, created_at, used_at FROM people WHERE name = ?1", .text(name), read: Self.person)
  }

  // MARK: Sessions

  /// Begins a session with this token.
  func beginSession(_ token: String, of name: String, at now: Int64) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.lock("people")
      try database.run(
        "INSERT INTO web_sessions(digest, person, created_at, used_at) VALUES (?1, ?2, ?3, ?3)",
        .text(Self.digest(token)), .text(name), .integer(now))
      try database.run("UPDATE people SET used_at = ?2 WHERE name = ?1", .text(name), .integer(now))
      try database.run(
        """
        DELETE FROM web_sessions WHERE person = ?1 AND digest NOT IN (
        SELECT digest FROM web_sessions WHERE person = ?1 ORDER BY used_at DESC, digest LIMIT ?2)
        """, .text(name), .integer(Self.sessionsOfOne))
    }
  }

  /// Whose session this is; `since`: older ones have ended. `isStale`: `useSession` is to be told.
  func session(
    _ token: String, since: Int64, at now: Int64
  ) throws(HubDatabaseError) -> (person: HubPerson, isStale: Bool)? {
    try database.first(
      """
      SELECT p.name, p.role, p.created_at, p.used_at, s.used_at FROM web_sessions s JOIN people p ON p.name = s.person
      WHERE s.digest = ?1 AND s.used_at >= ?2
      """, .text(Self.digest(token)), .integer(since)
    ) { row in (Self.person(row), now - row.integer(4) > Self.day) }
  }

  /// It was used today.
  func useSession(_ token: String, of name: String, since: Int64, at now: Int64) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.run(
        "UPDATE web_sessions SET used_at = ?2 WHERE digest = ?1", .text(Self.digest(token)), .integer(now))
      try database.run("UPDATE people SET used_at = ?2 WHERE name = ?1", .text(name), .integer(now))
      try database.run("DELETE FROM web_sessions WHERE used_at < ?1", .integer(since))
    }
  }

  func endSession(_ token: String) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.run("DELETE FROM web_sessions WHERE digest = ?1", .text(Self.digest(token)))
    }
  }

  private static func digest(_ token: String) -> String {
    Digest.sha256(Array(token.utf8)).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}
