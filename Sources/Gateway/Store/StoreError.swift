// SPDX-License-Identifier: MIT

import Glibc
import SQLite

/// Why the store has failed, in terms an operator can act on.
public enum StoreError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The disk, or the configured maximum size, is full.
  case full(String)
  /// The medium is read-only or fails.
  case unavailable(String)
  /// The file is damaged; the gateway sets it aside and creates a new one.
  case corrupt(String)
  /// Another process has it open for writing.
  case inUse(by: String, location: String)
  /// Another program has it open and locked; `by`: that program, if known.
  case locked(by: String?)
  /// A file or folder is missing, belongs to somebody else, or is of the wrong type.
  case misplaced(String)
  /// The file is of a newer version of this program.
  case newer(String)
  case other(String)

  /// A file cannot be opened, created or written; `errno` has the reason.
  static func file(_ location: String) -> StoreError {
    let words = "\(location): \(String(cString: strerror(errno)))"
    return switch errno {
    case ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG: .misplaced(words)
    case ENOSPC, EDQUOT: .full(words)
    default: .unavailable(words)
    }
  }

  public init(_ error: SQLiteError) {
    self =
      switch error.kind {
      case .full: .full(error.description)
      case .unavailable: .unavailable(error.description)
      case .corrupt: .corrupt(error.description)
      case .busy: .locked(by: nil)
      case .newer: .newer(error.message)
      case .constraint, .other: .other(error.description)
      }
  }

  /// Waiting helps: the daemon may be started again later.
  public var passesByItself: Bool { if case .locked = self { true } else { false } }

  /// The disk is full, read-only or failing: somebody must fix it, and then the store continues.
  public var isOfDisk: Bool {
    switch self {
    case .full, .unavailable: true
    default: false
    }
  }

  /// The remedy, as one sentence.
  public var remedy: String {
    switch self {
    case .full: "Free disk space, or raise store.max_size. Messages stay in the radio meanwhile."
    case .unavailable: "Check the disk or SD card and its mount. Messages stay in the radio meanwhile."
    case .corrupt:
      "A damaged database is saved as ….corrupt-TIME, and a new one begun. If that is damaged, too, check the disk."
    case .inUse(let owner, _): "Stop \(owner), or set another store.location."
    case .locked(let owner):
      "Stop \(owner ?? "that program (`fuser -v` on the file shows it)"); the daemon retries automatically."
    case .misplaced: "Check its name, its folder, and who may read and write there."
    case .newer:
      "Install the newer version again. To go on with this one, restore a backup that it has made: `meshpostd --restore FILE`."
    case .other: "Report this as a bug, with the log."
    }
  }

  public var description: String {
    switch self {
    case .full(let words): "the store is full (\(words))"
    case .unavailable(let words): "the disk is read-only or failing (\(words))"
    case .corrupt(let words): "the store is damaged (\(words))"
    case .inUse(let owner, let location): "\(location) is in use by \(owner)"
    case .locked(let owner): "the store is open in another program\(owner.map { ": \($0)" } ?? "")"
    case .misplaced(let words): words
    case .newer(let words): "the store is of a newer version of Meshpost (\(words))"
    case .other(let words): "the store failed (\(words))"
    }
  }
}
