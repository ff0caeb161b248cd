// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import MeshCrypto
import SQLite

/// A file beside the database with the names of all databases that were there. At the start it shows that a database is missing or was replaced, and
/// it recognises a restored backup.
struct DatabaseMark: Sendable {
  private static let most = 16

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

  /// The names, the newest last; empty: no database is known.
  var names: [String] {
    let bytes = FileManager.default.contents(atPath: location) ?? Data()
    return String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
  }

  /// Adds a name. It is on disk when the function returns.
  func add(_ name: String) {
    let known = names
    guard !known.contains(name) else { return }
    let bytes = Array((known.suffix(Self.most - 1) + [name]).map { $0 + "\n" }.joined().utf8)
    guard !WholeFile.replace(location, with: bytes) else { return }
    let reason = String(cString: strerror(errno))
    HubLog.write(.warning, "\(location) cannot be written: a database that is gone will not be missed: \(reason)")
  }
}

extension HubStore {
  /// The database's name, which its copies share and no other database has: a random value from the creation of the tables.
  func name() throws(HubDatabaseError) -> String { DatabaseMark.digest(try signInKey()) }

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
