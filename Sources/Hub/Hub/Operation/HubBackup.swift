// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import SQLite

/// Copies a hub's database while the hub serves: a verified snapshot, which only its owner can read.
public enum HubBackup {
  public struct Failure: Error, CustomStringConvertible {
    /// Whether the copy cannot be written; otherwise the database failed.
    public let isPlace: Bool
    public let description: String

    init(_ description: String, isPlace: Bool = false) { (self.description, self.isPlace) = (description, isPlace) }
  }

  /// Pages of one step: 4 MiB of a hub's database.
  private static let step: Int32 = 4096

  /// Returns the copy's size in bytes. An existing file is not replaced. `patience`: for PostgreSQL, how long the dump may not grow.
  public static func make(
    of configuration: HubConfiguration, to target: String, patience: Duration
  ) throws -> Int64 {
    guard access(target, F_OK) != 0 else { throw Failure("\(target) exists already", isPlace: true) }
    let part = "\(target).part-\(getpid())"
    defer { for suffix in ["", "-journal", "-wal", "-shm"] { unlink(part + suffix) } }
    if HubStore.isServer(configuration.location) {
      try PostgresDump(address: configuration.location, password: configuration.password, patience: patience)
        .make(at: part)
    } else {
      do {
        try copy(configuration.location, to: part)
      } catch let error as SQLiteError {
        throw Failure("\(error)")
      }
    }
    return try publish(part, as: target)
  }

  private static func copy(_ location: String, to part: String) throws {
    guard access(location, R_OK) == 0 else { throw Failure("\(location): \(String(cString: strerror(errno)))") }
    do {
      try DatabaseFile.protect(part)
    } catch {
      throw Failure(error.message, isPlace: true)
    }
    let source = try Database(location: location)
    try source.execute("PRAGMA busy_timeout = 5000; PRAGMA query_only = ON")
    try HubSchema.require(Int64(try source.schemaVersion()))
    // The snapshot lasts until the end: otherwise the copy would begin again after each commit of the hub.
    try source.execute("BEGIN")
    let gateways = try source.value("SELECT count(*) FROM gateways")
    let events = try source.value("SELECT max(id) FROM events")
    do {
      let backup = try OnlineBackup(of: source, to: part)
      while try !backup.step(pages: step) {}
    }
    try source.execute("ROLLBACK")
    let copied = try Database(location: part)
    // One file, without a log beside it.
    try copied.execute("PRAGMA journal_mode = DELETE")
    let found = try copied.value("PRAGMA integrity_check")?.text ?? "nothing"
    guard found == "ok" else { throw Failure("the copy is damaged, and so may be the database: \(found)") }
    guard try copied.value("SELECT count(*) FROM gateways") == gateways,
      try copied.value("SELECT max(id) FROM events") == events
    else { throw Failure("the copy is not what was copied") }
  }

  /// Gives the copy its name once it is on disk. It never replaces another file.
  private static func publish(_ part: String, as target: String) throws -> Int64 {
    func failed(_ what: String) -> Failure {
      Failure("\(what): \(String(cString: strerror(errno)))", isPlace: true)
    }
    guard chmod(part, 0o600) == 0 else { throw failed(part) }
    try sync(part)
    if link(part, target) != 0 {
      guard errno == EPERM || errno == ENOTSUP || errno == ENOSYS else { throw failed(target) }
      // A file system without hard links.
      guard access(target, F_OK) != 0 else { throw Failure("\(target) exists already", isPlace: true) }
      guard rename(part, target) == 0 else { throw failed(target) }
    }
    try sync(URL(filePath: target).deletingLastPathComponent().path(percentEncoded: false))
    var facts = stat()
    guard stat(target, &facts) == 0 else { throw failed(target) }
    return Int64(facts.st_size)
  }

  private static func sync(_ location: String) throws {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    defer { if descriptor >= 0 { close(descriptor) } }
    guard descriptor >= 0, fsync(descriptor) == 0 || errno == EINVAL else {
      throw Failure("\(location): \(String(cString: strerror(errno)))", isPlace: true)
    }
  }
}
