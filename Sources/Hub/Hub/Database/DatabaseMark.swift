// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import MeshCrypto

/// Beside the database: which ones there have been. One that is gone at the start is missed by it, and a backup that is put back is known.
struct DatabaseMark: Sendable {
  /// Databases that are remembered.
  private static let most = 16

  let location: String

  /// `location`: of the database. `nil`: of one on a server, and systemd gives this hub no folder of its own (`StateDirectory`).
  init?(_ database: String, folder: String? = ProcessInfo.processInfo.environment["STATE_DIRECTORY"]) {
    guard HubStore.isServer(database) else {
      location = database + ".mark"
      return
    }
    guard let folder = folder?.split(separator: ":").first else { return nil }
    location = "\(folder)/\(Self.digest(database)).mark"
  }

  /// Tells nothing of what is digested.
  static func digest(_ text: String) -> String { RefusedFile.hex(Digest.sha256(Array(text.utf8)).prefix(8)) }

  /// The newest last; empty: nobody knows of one.
  var names: [String] {
    let bytes = FileManager.default.contents(atPath: location) ?? Data()
    return String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
  }

  /// From now on this one is known, whatever becomes of the power.
  func keep(_ name: String) {
    let known = names
    guard !known.contains(name) else { return }
    let bytes = Array((known.suffix(Self.most - 1) + [name]).map { $0 + "\n" }.joined().utf8)
    let fresh = location + ".new"
    unlink(fresh)
    let file = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    let isWritten = file >= 0 && write(file, bytes, bytes.count) == bytes.count && fsync(file) == 0
    if file >= 0 { close(file) }
    guard isWritten, rename(fresh, location) == 0 else {
      return HubLog.write(
        .warning,
        "\(location) cannot be written: a database that is gone will not be missed: \(String(cString: strerror(errno)))"
      )
    }
    let folder = open(
      URL(filePath: location).deletingLastPathComponent().path(percentEncoded: false), O_RDONLY | O_CLOEXEC)
    if folder >= 0 {
      fsync(folder)
      close(folder)
    }
  }
}

extension HubStore {
  /// What tells this database, and its copies, from all others: it was drawn by lot when the tables were made.
  func name() throws(HubDatabaseError) -> String { DatabaseMark.digest(try journeyKey()) }

  /// What an open alert of a hub's own says, until somebody has seen it.
  func unseen(_ rule: String, _ subject: String) throws(HubDatabaseError) -> String? {
    try database.first(
      """
      SELECT text FROM alerts WHERE gateway = '' AND rule = ?1 AND subject = ?2 AND ended_at IS NULL
      AND acknowledged_at IS NULL
      """, .text(rule), .text(subject)
    ) { $0.text(0) }
  }
}
