// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Keeps a second process from writing: an flock on a file beside the database. It goes with the process, however
/// that ends. Reading with other tools stays possible.
final class StoreLock {
  private let descriptor: Int32

  init(location: String) throws(StoreError) {
    let lockLocation = location + ".lock"
    // A link in its place would have another file written to.
    descriptor = open(lockLocation, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o640)
    guard descriptor >= 0 else {
      if errno == ELOOP { throw .misplaced("\(lockLocation) is a symbolic link, which is not followed: remove it") }
      throw .file(lockLocation)
    }
    guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
      var text = [UInt8](repeating: 0, count: 64)
      // `deinit` closes it: a second close would be of a file that somebody else has opened meanwhile.
      let count = pread(descriptor, &text, text.count, 0)
      let owner = String(decoding: text.prefix(max(0, count)), as: UTF8.self)
      throw .inUse(by: owner.isEmpty ? "another process" : owner, location: location)
    }
    let owner = Array("process \(getpid())".utf8)
    // Only for the other process's error message: a disk too full to hold it does not matter.
    if ftruncate(descriptor, 0) == 0 { _ = pwrite(descriptor, owner, owner.count, 0) }
  }

  deinit {
    guard descriptor >= 0 else { return }
    // Closing would not do: a child that has not got to its exec yet still has the descriptor, and the lock with it.
    flock(descriptor, LOCK_UN)
    close(descriptor)
  }
}
