// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import OwnFiles

/// Keeps a second process from writing: an flock on a file beside the database. It ends with the process, however that
/// ends. Other tools can still read.
final class StoreLock {
  private let descriptor: Int32

  init(location: String) throws(StoreError) {
    let lockLocation = OwnSuffix.lock.of(location)
    // A link in its place would make this program write to another file.
    descriptor = open(lockLocation, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o640)
    guard descriptor >= 0 else {
      if errno == ELOOP { throw .misplaced("\(lockLocation) is a symbolic link, which is not followed: remove it") }
      throw .file(lockLocation)
    }
    guard Self.take(descriptor) else {
      var text = [UInt8](repeating: 0, count: 64)
      // `deinit` closes the descriptor: a second close would hit a file that somebody has opened meanwhile.
      let count = pread(descriptor, &text, text.count, 0)
      let owner = String(decoding: text.prefix(max(0, count)), as: UTF8.self)
      throw .inUse(by: owner.isEmpty ? "another process" : owner, location: location)
    }
    let owner = Array("process \(getpid())".utf8)
    // The text is only for the other process's error message: if the disk is too full for it, that does not matter.
    if ftruncate(descriptor, 0) == 0 { _ = pwrite(descriptor, owner, owner.count, 0) }
  }

  /// Waits for half a second: a child of a killed process has its descriptors, and with them the lock, until its exec.
  private static func take(_ descriptor: Int32) -> Bool {
    for _ in 0..<50 {
      if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { return true }
      usleep(10_000)
    }
    return false
  }

  /// Whether a process has the store. It makes no file, and lets go of the lock at once: a start that needs it meanwhile tries again.
  static func isTaken(_ location: String) -> Bool {
    let descriptor = open(OwnSuffix.lock.of(location), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    guard flock(descriptor, LOCK_SH | LOCK_NB) == 0 else { return true }
    flock(descriptor, LOCK_UN)
    return false
  }

  deinit {
    guard descriptor >= 0 else { return }
    // Closing would not release it: a child before its exec still has the descriptor, and with it the lock.
    flock(descriptor, LOCK_UN)
    close(descriptor)
  }
}
