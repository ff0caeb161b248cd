// SPDX-License-Identifier: MIT

import Glibc
import OwnFiles

/// A note beside the database while its files get other names.
///
/// Nothing renames a database and its log at once: a kill or a power cut in between would leave the log without its database, or no database at
/// all. The note is on disk before the first name changes. It goes when the last one is on disk; that of a restoration goes when the restored
/// database has told what it replaced. The next start reads it, and undoes what is not done.
struct MoveNote: Equatable {
  /// A backup that takes the database's place.
  struct Restored: Equatable {
    /// The epoch of the backup: the database in its place has another one as soon as it has told what it replaced.
    let epoch: String
    /// No upstream lacks more events of the replaced database than this; `nil`: unknown.
    let atMost: Int64?
  }

  /// What a start finds of an earlier move.
  enum Found {
    case nothing
    /// The database is in its place again, with its log.
    case undone(words: String)
    /// A backup is in the place of this database.
    case restored(Store.Replaced, epoch: String)
  }

  /// What the files' new names have after the name of the database and a dot.
  let name: String
  /// `nil`: the files are only moved away.
  let restored: Restored?

  init(target: String, of database: String, for restored: Restored?) {
    name = String(decoding: target.utf8.dropFirst(database.utf8.count + 1), as: UTF8.self)
    self.restored = restored
  }

  private init?(_ text: String) {
    let parts = text.split(separator: ",", maxSplits: 2, omittingEmptySubsequences: false).map { String($0) }
    guard let name = parts.first, !name.utf8.isEmpty, !name.utf8.contains(UInt8(ascii: "/")) else { return nil }
    self.name = name
    restored = parts.count == 3 ? Restored(epoch: parts[2], atMost: Int64(parts[1])) : nil
  }

  private var text: String {
    guard let restored else { return name }
    let most = restored.atMost.map { "\($0)" } ?? "unknown"
    return "\(name),\(most),\(restored.epoch)"
  }

  private static func location(_ database: String) -> String { OwnSuffix.moving.of(database) }

  /// Where a backup is prepared.
  static func part(_ database: String) -> String { OwnSuffix.restoring.of(database) }
  /// An empty database beside that, to compare it with.
  static func fresh(_ database: String) -> String { part(database) + ".new" }

  /// Removes a backup that was prepared, and does not take the database's place: it has all the secrets of one. Also a note whose writing was cut off.
  static func removeParts(_ database: String) {
    unlink(location(database) + ".new")
    for name in [part(database), fresh(database)] {
      for suffix in ["", "-wal", "-shm", "-journal"] { unlink(name + suffix) }
    }
  }

  /// `nil`: there is none, or it is none of this program.
  static func read(_ database: String) throws(StoreError) -> MoveNote? {
    let file = Self.location(database)
    guard access(file, F_OK) == 0 else { return nil }
    // Going on as if there were none would begin an empty database.
    guard access(file, R_OK) == 0 else { throw .file(file) }
    return SmallFile.read(file).flatMap { MoveNote($0) }
  }

  func write(_ database: String) throws(StoreError) { try SmallFile.write(Self.location(database), text) }

  static func remove(_ database: String) {
    if unlink(location(database)) == 0 { Store.syncFolder(of: database) }
  }

  private static func exists(_ location: String) -> Bool { access(location, F_OK) == 0 }

  /// Whether the backup has taken the database's place.
  private func isInPlace(_ database: String) -> Bool {
    let target = "\(database).\(name)"
    return restored != nil && Self.exists(database) && !Self.exists(Self.part(database))
      && (Self.exists(target) || Self.exists(target + "-wal"))
  }

  func words(_ database: String) -> String {
    if isInPlace(database) {
      return "a restore was cut off when the backup had its place: the database before it is \(database).\(name)"
    }
    return restored == nil
      ? "the renaming of a damaged database was cut off" : "a restore was cut off before the backup had its place"
  }

  /// Undoes what was cut off, so that the database is whole in its place. Only under the store's lock, while no database is open that was made later.
  static func settle(_ database: String) throws(StoreError) -> Found {
    guard let note = try read(database) else {
      remove(database)
      return .nothing
    }
    let (target, words) = ("\(database).\(note.name)", note.words(database))
    if let restored = note.restored, note.isInPlace(database) {
      let replaced = Store.Replaced(
        location: exists(target) ? target : target + "-wal",
        unsent: restored.atMost.map { [(upstream: "", events: $0)] }, otherGateway: nil)
      return .restored(replaced, epoch: restored.epoch)
    }
    if exists(database), exists(target) {
      // Somebody has put another database into the free place: the log that is left there is not its own.
      try rename(database, to: target, ["-wal"])
    } else {
      try rename(target, to: database, ["", "-wal"])
    }
    remove(database)
    if note.restored != nil { removeParts(database) }
    return .undone(words: words)
  }

  /// Renames the files that are there, unless that name is taken. Each name is on disk before the next one changes.
  static func rename(_ old: String, to new: String, _ suffixes: [String]) throws(StoreError) {
    for suffix in suffixes where exists(old + suffix) && !exists(new + suffix) {
      guard Glibc.rename(old + suffix, new + suffix) == 0 else {
        throw .unavailable("\(old + suffix) cannot be renamed: \(String(cString: strerror(errno)))")
      }
      Store.syncFolder(of: new)
    }
  }
}

extension Store {
  /// What is left of a restoration, or of another change of the database's names, that was cut off, in words. `nil`: nothing, or a process is at it.
  public static func unfinishedMove(_ location: String) -> String? {
    guard !StoreLock.isTaken(location) else { return nil }
    // `try?`: what this user may not read, the start tells.
    let note = try? MoveNote.read(location)
    return note?.words(location)
  }
}
