// SPDX-License-Identifier: MIT

/// What the names of a gateway's own files have after that of its database. Whoever makes one names it by this: neither a backup nor what a command writes
/// can take its place.
public enum OwnSuffix: String, CaseIterable, Sendable {
  case database = ""
  case log = "-wal"
  case sharedMemory = "-shm"
  case lock = ".lock"
  case identity = ".id"
  case mark = ".mark"
  case held = ".held"
  case moving = ".moving"
  case restoring = ".restoring"
  case copying = ".copying"
  case configuration = ".configuration"
  case credentials = ".credentials"
  case web = ".web"
  /// A folder.
  case upstreams = ".upstreams"

  public func of(_ database: String) -> String { database + rawValue }
}
