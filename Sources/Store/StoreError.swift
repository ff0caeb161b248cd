// SPDX-License-Identifier: MIT

import SQLite

/// Why the store cannot do what was asked, in terms an operator can act on.
public enum StoreError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The disk, or the configured quota, is full.
  case full(String)
  /// The medium is read-only or fails.
  case unavailable(String)
  /// The file is damaged; it is set aside and a new one begun.
  case corrupt(String)
  /// Another process has it open for writing.
  case inUse(by: String, location: String)
  /// Another program looks into it, and SQLite lets nobody else in meanwhile; `by`: which, if that can be seen.
  case locked(by: String?)
  case other(String)

  public init(_ error: SQLiteError) {
    self =
      switch error.kind {
      case .full: .full(error.description)
      case .unavailable: .unavailable(error.description)
      case .corrupt: .corrupt(error.description)
      case .busy: .locked(by: nil)
      case .constraint, .other: .other(error.description)
      }
  }

  /// Waiting helps: a program that starts may be started again in a while.
  public var passesByItself: Bool { if case .locked = self { true } else { false } }

  /// One sentence in the imperative.
  public var remedy: String {
    switch self {
    case .full: "Free disk space, or raise store.max_size. Messages stay in the radio meanwhile."
    case .unavailable: "Check the disk or SD card and its mount. Messages stay in the radio meanwhile."
    case .corrupt: "Nothing to do: the damaged file was kept under another name, a new one was begun."
    case .inUse(let owner, _): "Stop \(owner), or give this one another store.location."
    case .locked(let owner):
      "End \(owner ?? "that program (`fuser -v` the file shows it)"); it is tried again by itself."
    case .other: "Report this as a bug, with the log."
    }
  }

  public var description: String {
    switch self {
    case .full(let words): "the store is full (\(words))"
    case .unavailable(let words): "the store cannot be written (\(words))"
    case .corrupt(let words): "the store is damaged (\(words))"
    case .inUse(let owner, let location): "\(location) is in use by \(owner)"
    case .locked(let owner): "the store is open in another program\(owner.map { ": \($0)" } ?? "")"
    case .other(let words): "the store failed (\(words))"
    }
  }
}
