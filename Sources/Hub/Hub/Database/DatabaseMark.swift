// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import MeshCrypto
import SQLite

/// A file with the names of all databases that were in one place, and the newest event. At the start it shows that the database is missing, was
/// replaced, or is an older copy.
struct DatabaseMark: Sendable {
  private static let most = 16
  /// Begins the line of the newest event. No name has a space.
  private static let newestWord = "newest "

  let location: String

  /// `location`: the database's. `nil`: the database is on a server, and systemd gives this hub no folder of its own (`StateDirectory`).
  init?(_ database: String, folder: String? = ProcessInfo.processInfo.environment["STATE_DIRECTORY"]) {
    guard HubStore.isServer(database) else {
      location = database + ".mark"
      return
    }
    guard let folder = folder?.split(separator: ":").first else {
      HubLog.write(
        .notice,
        "STATE_DIRECTORY is not set: the hub cannot tell at its next start whether the database was emptied or replaced"
      )
      return nil
    }
    location = "\(folder)/\(Self.digest(database)).mark"
  }

  /// A digest that does not reveal the text.
  static func digest(_ text: String) -> String { Digest.sha256(Array(text.utf8)).prefix(8).hex }

  private var lines: [String] {
    let bytes = FileManager.default.contents(atPath: location) ?? Data()
    return String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
  }

  /// The names, the newest last; empty: no database is known.
  var names: [String] { lines.filter { !$0.hasPrefix(Self.newestWord) } }

  /// The newest event that was noted, as `HubStore.newestEventMark` has it.
  var newest: String? {
    lines.first { $0.hasPrefix(Self.newestWord) }.map { String($0.dropFirst(Self.newestWord.count)) }
  }

  /// Adds a name. It is on disk when the function returns.
  func add(_ name: String) {
    let known = names
    guard !known.contains(name) else { return }
    write(known.suffix(Self.most - 1) + [name])
  }

  func note(newest: String) {
    if newest != self.newest { write(names + [Self.newestWord + newest]) }
  }

  private func write(_ lines: some Sequence<String>) {
    let bytes = Array(lines.map { $0 + "\n" }.joined().utf8)
    guard !WholeFile.replace(location, with: bytes) else { return }
    let reason = String(cString: strerror(errno))
    HubLog.write(.warning, "\(location) cannot be written: a database that is gone will not be missed: \(reason)")
  }
}

extension HubStore {
  /// The database's name, which its copies share and no other database has: a random value from the creation of the tables.
  func name() throws(HubDatabaseError) -> String { DatabaseMark.digest(try signInKey()) }

  /// The newest event: its number, and a digest of its content; `nil`: there is none.
  func newestEventMark() throws(HubDatabaseError) -> String? {
    try database.first("SELECT id, at, kind, body FROM events ORDER BY id DESC LIMIT 1", read: Self.eventMark)
  }

  private static func eventMark(_ row: any HubRow) -> String {
    "\(row.integer(0)) \(DatabaseMark.digest("\(row.integer(1)) \(row.text(2)) \(row.text(3))"))"
  }

  /// Whether this database never had that event. One that was deleted it had: no number is used again.
  func lacks(_ mark: String) throws(HubDatabaseError) -> Bool {
    guard let id = mark.split(separator: " ").first.flatMap({ Int64($0) }) else { return false }
    let found = try database.first("SELECT id, at, kind, body FROM events WHERE id = ?1", id, read: Self.eventMark)
    if let found { return found != mark }
    let last =
      database.dialect == .sqlite
      ? "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
      : "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('events', 'id')::regclass), 0)"
    return try database.number(last) < id
  }

  /// The text of one of the hub's own open alerts; `nil`: there is none, or it has been acknowledged.
  func unacknowledgedAlert(_ rule: String, _ subject: String) throws(HubDatabaseError) -> String? {
    try database.first(
      """
      SELECT text FROM alerts WHERE gateway = '' AND rule = ?1 AND subject = ?2 AND ended_at IS NULL
      AND acknowledged_at IS NULL
      """, rule, subject
    ) { $0.text(0) }
  }
}
