// SPDX-License-Identifier: MIT

import Glibc

/// A line of text in a file of its own, beside the database.
enum SmallFile {
  static func read(_ location: String) -> String? {
    let descriptor = Glibc.open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 512)
    let count = Glibc.read(descriptor, &bytes, bytes.count)
    let text = String(decoding: bytes.prefix(max(0, count)).filter { $0 > 0x20 && $0 < 0x7F }, as: UTF8.self)
    return text.isEmpty ? nil : text
  }

  /// Keeps the old file until the new one is complete: a full disk would leave an empty one.
  static func write(_ location: String, _ text: String) throws(StoreError) {
    let fresh = location + ".new"
    unlink(fresh)
    let descriptor = Glibc.open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o640)
    guard descriptor >= 0 else { throw .file(location) }
    defer { close(descriptor) }
    let bytes = Array((text + "\n").utf8)
    guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0,
      rename(fresh, location) == 0
    else {
      // `file` reads errno.
      let reason = StoreError.file(location)
      unlink(fresh)
      throw reason
    }
    Store.syncFolder(of: location)
  }
}
