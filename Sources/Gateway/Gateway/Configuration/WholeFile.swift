// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Store

/// Replaces files as a whole: after a power cut there is the old file or the new one. They are for their owner only.
enum WholeFile {
  static func write(_ bytes: [UInt8], to location: String) throws(SystemError) {
    let fresh = location + ".new"
    // Never write through a file or link that an earlier attempt, or another user, has left.
    unlink(fresh)
    let descriptor = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw SystemError("open \(fresh)") }
    defer { close(descriptor) }
    guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0,
      rename(fresh, location) == 0
    else {
      defer { unlink(fresh) }
      throw SystemError("write \(location)")
    }
    Store.syncFolder(of: location)
  }
}
