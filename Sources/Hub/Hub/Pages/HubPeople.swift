// SPDX-License-Identifier: MIT

import JSON
import MeshCrypto
import PageServer
import SQLite
import UntrustedText

/// A person who uses the hub's pages.
public struct HubPerson: Sendable, Equatable {
  /// Each role includes those before it.
  public enum Role: String, Sendable, CaseIterable {
    case view
    /// Commands and documents.
    case `operate`
    /// People and tokens.
    case administer

    func allows(_ operation: HubAccess.Operation) -> Bool {
      switch operation {
      case .read, .greet: true
      case .command: self != .view
      case .administer, .measure: self == .administer
      // Gateways have tokens.
      case .write: false
      }
    }
  }

  /// The length of a password in scalars. Source: NIST SP 800-63B, 3.1.1.2.
  private static let passwordCharacters = 8...1024
  /// What a password has to be, for people.
  public static let passwordRule =
    "a password has \(passwordCharacters.lowerBound) to \(passwordCharacters.upperBound) characters, not only blanks, "
    + "and no U+0000"

  /// Whether a person may have this password. Of 12 blanks nobody sees how many they are.
  public static func isPassword(_ text: String) -> Bool {
    passwordCharacters.contains(text.unicodeScalars.count) && !Visible.isBlank(text) && !text.utf8.contains(0)
  }

  /// The stored form of a password. `nil`: there is not enough memory.
  public static func hash(_ password: String) -> String? { PasswordHash.make(password) }

  public var name: String
  public var role: Role
  /// Milliseconds since 1970.
  public var createdAt: Int64
  /// When the person was last active, to a day; `nil`: never.
  public var usedAt: Int64?
  /// How the person signs in.
  public var signInMethod: AuditRecord.SignInMethod = .password
}

/// People and their sessions. The database has only digests of session tokens: a reader of the database gets no session.
extension HubStore {
  /// Most sessions of a person, and most known browsers. The hub deletes the least recently used one.
  private static let sessionsOfOne: Int64 = 32
  public static let mostPeople: Int64 = 1000
  private static let day: Int64 = 86_400_000

  /// The reason of a refused change, in words for people.
  public struct PeopleRefusal: Error, Sendable, CustomStringConvertible {
    public let description: String
    /// The person does not exist.
    public var isUnknown = false
  }

  private static func unknownPerson(_ name: String, _ more: String = "") -> PeopleRefusal {
    PeopleRefusal(description: "nobody is called \(name)\(more)", isUnknown: true)
  }

  public func people() throws(HubDatabaseError) -> [HubPerson] {
    try database.rows("SELECT \(Self.columns) FROM people p ORDER BY name LIMIT ?1", [Self.mostPeople]) {
      Self.person($0)
    }
  }

  private static let columns = "p.name, p.role, p.created_at, p.used_at, p.identity"

  private static func person(_ row: any HubRow) -> HubPerson {
    HubPerson(
      name: row.text(0), role: HubPerson.Role(rawValue: row.text(1)) ?? .view, createdAt: row.integer(2),
      usedAt: row.textIfAny(3).flatMap { Int64($0) }, signInMethod: row.textIfAny(4) == nil ? .password : .oidc)
  }

  /// The hash of a person's password; `nil`: there is no such person, or no password.
  func passwordHash(of name: String) throws(HubDatabaseError) -> String? {
    try database.first("SELECT hash FROM people WHERE name = ?1", name) { $0.textIfAny(0) } ?? nil
  }

  /// Adds a person, or changes the given properties and ends the person's sessions. Returns the reason of a refusal.
  public func setPerson(
    _ name: String, role: HubPerson.Role?, hash: String?, mustBeNew: Bool = false, at now: Int64
  ) throws(HubDatabaseError) -> PeopleRefusal? {
    try transaction { () throws(HubDatabaseError) in
      try database.lock("people")
      let known = try person(name)
      guard !mustBeNew || known == nil else { return PeopleRefusal(description: "\(name) is there already") }
      if let known {
        guard known.signInMethod != .oidc else {
          return PeopleRefusal(description: "\(name) has the role, and no password, by OpenID Connect: see [web.oidc]")
        }
        if let role, role != .administer, known.role == .administer, try isLast(name) { return Self.last }
        try database.run(
          "UPDATE people SET role = ?2, hash = coalesce(CAST(?3 AS TEXT), hash) WHERE name = ?1", name,
          (role ?? known.role).rawValue, hash)
      } else {
        guard let role, let hash else { return Self.unknownPerson(name, ": a new person needs a role and a password") }
        if let full = try noRoomForPeople() { return full }
        if let other = try similar(to: name) {
          return PeopleRefusal(description: "\(other) is there already: \(name) would look like the same person")
        }
        try database.insert(into: "people", ["name": name, "role": role.rawValue, "hash": hash, "created_at": now])
      }
      try forget(name)
      return nil
    }
  }

  /// `nil`: one more person may be added.
  private func noRoomForPeople() throws(HubDatabaseError) -> PeopleRefusal? {
    let count = try number("SELECT count(*) FROM people")
    return count < Self.mostPeople ? nil : PeopleRefusal(description: "there are \(count) people already")
  }

  /// Ends the sessions of a person without a role at the provider.
  func endSessions(of identity: String) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) in
      guard
        let name = try database.first("SELECT name FROM people WHERE identity = ?1", identity, read: { $0.text(0) })
      else { return }
      try forget(name)
    }
  }

  /// Ends a person's sessions and pushes, and forgets the known browsers.
  private func forget(_ name: String) throws(HubDatabaseError) {
    try database.run("DELETE FROM push_subscriptions WHERE person = ?1", name)
    try database.run("DELETE FROM web_sessions WHERE person = ?1", name)
    try database.run("DELETE FROM known_browsers WHERE person = ?1", name)
  }

  /// Removes a person. Returns the reason of a refusal.
  public func removePerson(_ name: String) throws(HubDatabaseError) -> PeopleRefusal? {
    try transaction { () throws(HubDatabaseError) in
      try database.lock("people")
      guard let known = try person(name) else { return Self.unknownPerson(name) }
      if known.role == .administer, try isLast(name) { return Self.last }
      try database.run("DELETE FROM people WHERE name = ?1", name)
      try forget(name)
      return nil
    }
  }

  private static let last = PeopleRefusal(description: "this is the last one who may administer")

  /// Whether nobody else may administer: nobody can remove or demote the last such person.
  private func isLast(_ name: String) throws(HubDatabaseError) -> Bool {
    try database.number("SELECT count(*) FROM people WHERE role = 'administer' AND name <> ?1", name) == 0
  }

  func person(_ name: String) throws(HubDatabaseError) -> HubPerson? {
    try database.first("SELECT \(Self.columns) FROM people p WHERE name = ?1", name, read: Self.person)
  }

  /// The person whose name differs at most in upper and lower case.
  private func similar(to name: String) throws(HubDatabaseError) -> String? {
    try database.first("SELECT name FROM people WHERE lower(name) = lower(?1) LIMIT 1", name) { $0.text(0) }
  }

  /// Returns the person with this identity at the provider, and gives them this role. It adds a new person under this name, or under a similar one if
  /// the name is taken.
  func welcome(
    _ identity: String, called wanted: String, _ role: HubPerson.Role, at now: Int64
  ) throws(HubDatabaseError) -> Result<HubPerson, PeopleRefusal> {
    try transaction { () throws(HubDatabaseError) in
      try database.lock("people")
      let known = try database.first(
        "SELECT \(Self.columns) FROM people p WHERE identity = ?1", identity, read: Self.person)
      if var known {
        guard known.role != role else { return .success(known) }
        try database.run("UPDATE people SET role = ?2 WHERE name = ?1", known.name, role.rawValue)
        try forget(known.name)
        known.role = role
        return .success(known)
      }
      if let full = try noRoomForPeople() { return .failure(full) }
      var (name, number) = (wanted, 1)
      while try similar(to: name) != nil {
        number += 1
        let end = "-\(number)"
        name = String(decoding: wanted.utf8.prefix(64 - end.utf8.count), as: UTF8.self) + end
      }
      try database.insert(
        into: "people", ["name": name, "role": role.rawValue, "identity": identity, "created_at": now])
      return .success(HubPerson(name: name, role: role, createdAt: now, signInMethod: .oidc))
    }
  }

  // MARK: Sessions

  /// The key that signs the cookies of sign-ins by OpenID Connect.
  func signInKey() throws(HubDatabaseError) -> String {
    try database.first("SELECT key FROM journey_key", read: { $0.text(0) }) ?? ""
  }

  /// Begins a session. `endsAt`: the end of the session, also while it is used. `browser`: the token of a browser that now counts as known.
  func beginSession(
    _ token: String, of name: String, endsAt: Int64? = nil, browser: String? = nil, at now: Int64
  ) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.lock("people")
      try database.insert(
        into: "web_sessions",
        ["digest": Self.digest(token), "person": name, "created_at": now, "used_at": now, "ends_at": endsAt])
      try database.run("UPDATE people SET used_at = ?2 WHERE name = ?1", name, now)
      try keepNewest("web_sessions", of: name, and: token)
      guard let browser else { return }
      try database.insert(
        into: "known_browsers", ["digest": Self.digest(browser), "person": name, "used_at": now],
        "ON CONFLICT(digest) DO UPDATE SET \(excluded("used_at", "person"))")
      try keepNewest("known_browsers", of: name, and: browser)
    }
  }

  /// Keeps the row of `token`, which has just been written, whatever time the others have: the clock may have been ahead.
  private func keepNewest(_ table: String, of name: String, and token: String) throws(HubDatabaseError) {
    try database.run(
      """
      DELETE FROM \(table) WHERE person = ?1 AND digest <> ?3 AND digest NOT IN (
      SELECT digest FROM \(table) WHERE person = ?1 AND digest <> ?3 ORDER BY used_at DESC, digest LIMIT ?2)
      """, name, Self.sessionsOfOne - 1, Self.digest(token))
  }

  /// Whether the person has signed in before in the browser with this token.
  func isKnown(_ browser: String, to name: String) throws(HubDatabaseError) -> Bool {
    try database.number(
      "SELECT count(*) FROM known_browsers WHERE digest = ?1 AND person = ?2", Self.digest(browser), name) == 1
  }

  /// The people of these sessions, by the tokens; `since`: a session without use since then has ended. `isStale`: the caller has to note the use with
  /// `useSession`.
  func sessions(
    _ tokens: Set<String>, since: Int64, at now: Int64
  ) throws(HubDatabaseError) -> [String: (person: HubPerson, isStale: Bool)] {
    let digests = Dictionary(uniqueKeysWithValues: tokens.map { (Self.digest($0), $0) })
    var found: [String: (person: HubPerson, isStale: Bool)] = [:]
    let call = HubCall(
      """
      SELECT \(Self.columns), s.used_at, s.digest FROM @rows JOIN web_sessions s ON s.digest = v.digest
      JOIN people p ON p.name = s.person WHERE s.used_at >= @1 AND coalesce(s.ends_at, @2) >= @2
      """, ["digest": Array(digests.keys)], values: [since, now]
    ) { row in
      if let token = digests[row.text(6)] { found[token] = (Self.person(row), now - row.integer(5) > Self.day) }
    }
    try database.read([call])
    return found
  }

  func session(
    _ token: String, since: Int64, at now: Int64
  ) throws(HubDatabaseError) -> (person: HubPerson, isStale: Bool)? {
    try sessions([token], since: since, at: now)[token]
  }

  /// Notes that a session was used today, and deletes ended sessions.
  func useSession(_ token: String, of name: String, since: Int64, at now: Int64) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.run("UPDATE web_sessions SET used_at = ?2 WHERE digest = ?1", Self.digest(token), now)
      try database.run("UPDATE people SET used_at = ?2 WHERE name = ?1", name, now)
      try database.run("DELETE FROM web_sessions WHERE used_at < ?1 OR ends_at < ?2", since, now)
    }
  }

  /// Whether the database has a session with this token, even an ended one.
  func hasSession(_ token: String) throws(HubDatabaseError) -> Bool {
    try database.number("SELECT 1 FROM web_sessions WHERE digest = ?1", Self.digest(token)) == 1
  }

  func endSession(_ token: String) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.run("DELETE FROM push_subscriptions WHERE session = ?1", Self.digest(token))
      try database.run("DELETE FROM web_sessions WHERE digest = ?1", Self.digest(token))
    }
  }

  static func digest(_ token: String) -> String { Digest.sha256(Array(token.utf8)).hex }

  // MARK: Tokens

  /// The hub forgets a token's use after two years.
  private static let tokenMemory = 730 * day

  func tokenUses() throws(HubDatabaseError) -> [String: Int64] {
    try database.dictionary("SELECT name, used_at FROM token_uses") { ($0.text(0), $0.integer(1)) }
  }

  /// `uses`: the last use of each token, by its name.
  func keepTokenUses(_ uses: [String: Int64], at now: Int64) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      for (name, at) in uses.sorted(by: { $0.key < $1.key }) {
        try database.insert(
          into: "token_uses", ["name": name, "used_at": at],
          "ON CONFLICT(name) DO UPDATE SET used_at = excluded.used_at WHERE token_uses.used_at < excluded.used_at")
      }
      try database.run("DELETE FROM token_uses WHERE used_at < ?1", now - Self.tokenMemory)
    }
  }
}

/// Stores the last use of each token, at most once a day, for later starts and for other hubs.
struct TokenUses: Sendable {
  private static let interval: Duration = .seconds(60)
  private static let day: Int64 = 86_400_000

  let stores: HubStores
  let access: HubAccess

  /// Runs until cancelled, and then stores the latest uses.
  func run() async {
    var (kept, goesOn) = ([String: Int64](), true)
    while goesOn {
      // `try?`: it is cancelled while it sleeps.
      goesOn = (try? await Task.sleep(for: Self.interval)) != nil
      let fresh = Self.fresh(access.list.map { ($0.token.name, $0.usedAt) }, kept)
      guard !fresh.isEmpty else { continue }
      do {
        try await stores.writer.keepTokenUses(fresh, at: HubClock.now)
        kept.merge(fresh) { $1 }
      } catch {
        HubLog.write(.debug, "uses of tokens are not written down yet: \(error.message)")
      }
    }
  }

  /// The uses at least a day after the stored ones. Several tokens may have one name.
  static func fresh(_ list: [(name: String, usedAt: Int64?)], _ kept: [String: Int64]) -> [String: Int64] {
    var fresh: [String: Int64] = [:]
    for (name, usedAt) in list {
      guard let usedAt, kept[name].map({ usedAt - $0 >= day }) ?? true else { continue }
      fresh[name] = max(fresh[name] ?? 0, usedAt)
    }
    return fresh
  }
}
