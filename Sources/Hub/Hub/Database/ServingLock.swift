// SPDX-License-Identifier: MIT

import Glibc
import SQLite

/// Keeps a second hub from serving from the same SQLite file, since neither would learn of what the other one queues: an flock on a file beside it. It
/// ends with the process, however that ends. Other commands need none, and neither does `consume`.
public final class ServingLock: Sendable {
  /// Another hub serves from the file.
  public struct Taken: Error, CustomStringConvertible {
    /// What to tell the operator.
    public let description: String
  }

  private static let pause: Duration = .milliseconds(100)

  private let descriptor: Int32

  private init(_ descriptor: Int32) { self.descriptor = descriptor }

  /// Takes the lock of this database, and tries again for a while: the hub before may be about to end. `nil`: it needs none, because it is on a server,
  /// or can have none.
  public static func take(_ location: String, attempts: Int = 20) async throws -> ServingLock? {
    guard !HubStore.isServer(location) else { return nil }
    let file = DatabaseFile.behindLinks(location) + ".lock"
    // A link in its place would make this program write to another file.
    let opened = open(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard opened >= 0 else {
      let code = errno
      let words = "\(file): \(String(cString: strerror(code)))"
      if [ENOSPC, EDQUOT, ELOOP].contains(code) {
        throw HubDatabaseError(kind: .unavailable, message: words, cause: code == ELOOP ? nil : .fullDisk)
      }
      // Without a folder the opening of the database fails, too, and names it. But the file may be that of another user, who served once.
      if code != ENOENT { HubLog.write(.warning, "\(words): start no second hub on this database") }
      return nil
    }
    let lock = ServingLock(opened)
    var left = attempts
    while flock(opened, LOCK_EX | LOCK_NB) != 0 {
      guard errno == EWOULDBLOCK || errno == EINTR else {
        HubLog.write(.warning, "\(file): \(String(cString: strerror(errno))): start no second hub on this database")
        return nil
      }
      left -= 1
      guard left > 0 else { throw lock.taken }
      try await Task.sleep(for: pause)
    }
    let owner = Array("process \(getpid())".utf8)
    // The text is only for the other process's error message: if the disk is too full for it, that does not matter.
    if ftruncate(opened, 0) == 0 { _ = pwrite(opened, owner, owner.count, 0) }
    return lock
  }

  private var taken: Taken {
    var text = [UInt8](repeating: 0, count: 64)
    let count = pread(descriptor, &text, text.count, 0)
    let owner = count > 0 ? String(decoding: text.prefix(count), as: UTF8.self) : "another process"
    return Taken(
      description: "another hub serves from this file already (\(owner)): several hubs can share only PostgreSQL")
  }

  deinit {
    flock(descriptor, LOCK_UN)
    close(descriptor)
  }
}
