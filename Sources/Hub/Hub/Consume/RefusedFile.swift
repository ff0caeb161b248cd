// SPDX-License-Identifier: MIT

import Glibc
import JSON
import SQLite
import Synchronization

/// A file for people with the publications that cannot be stored: a JSON object a line, with the payload in hexadecimal digits. At its limit the file
/// is renamed to `….1`, and a new one begins: together they have at most twice the limit.
final class RefusedFile: Sendable {
  static let maxBytes = 4 << 20
  private static let maxPayload = 64 << 10

  let location: String
  private let bound: Int
  private let lock = Mutex(())

  init(location: String, bound: Int = RefusedFile.maxBytes) { (self.location, self.bound) = (location, bound) }

  /// Returns when the lines are on disk. Then the caller acknowledges the publications to the broker. Of a failure the
  /// file shows nothing, for the broker sends all of them again.
  func append(_ refusals: [(publication: Publication, reason: String)], at now: Int64) throws(HubDatabaseError) {
    var lines: [UInt8] = []
    for (publication, reason) in refusals {
      let line =
        JSONWriter.object([
          "at": now, "topic": publication.topic, "reason": reason, "bytes": publication.payload.count,
          "payload": publication.payload.prefix(Self.maxPayload).hex,
        ]) + [10]
      // More than one file takes are several writes.
      if !lines.isEmpty, lines.count + line.count > bound {
        try keep(lines)
        lines = []
      }
      lines += line
    }
    if !lines.isEmpty { try keep(lines) }
  }

  private func keep(_ lines: [UInt8]) throws(HubDatabaseError) {
    let failure = lock.withLock { _ in write(lines) }
    guard let code = failure else { return }
    throw HubDatabaseError(kind: .unavailable, message: "\(location): \(String(cString: strerror(code)))")
  }

  /// The error's number; `nil`: the lines are on disk.
  func write(_ lines: [UInt8]) -> Int32? {
    var facts = stat()
    var isNew = stat(location, &facts) != 0
    if !isNew, Int(facts.st_size) + lines.count > bound {
      guard rename(location, location + ".1") == 0 else { return errno }
      isNew = true
    }
    let descriptor = open(location, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { return errno }
    defer { close(descriptor) }
    guard WholeFile.writeAll(lines[...], to: descriptor), fsync(descriptor) == 0 else {
      let code = errno
      ftruncate(descriptor, isNew ? 0 : facts.st_size)
      return code
    }
    if isNew { WholeFile.syncFolder(of: location) }
    return nil
  }
}
