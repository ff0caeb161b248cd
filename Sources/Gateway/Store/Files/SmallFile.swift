// SPDX-License-Identifier: MIT

import Glibc
import SQLite

/// A line of text in a file of its own, beside the database.
enum SmallFile {
  static func read(_ location: String) -> String? {
    let descriptor = Glibc.open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 1024)
    let count = Glibc.read(descriptor, &bytes, bytes.count)
    let text = String(decoding: bytes.prefix(max(0, count)).filter { $0 > 0x20 && $0 < 0x7F }, as: UTF8.self)
    return text.isEmpty ? nil : text
  }

  /// Keeps the old file until the new one is complete: a full disk would leave an empty one.
  static func write(_ location: String, _ text: String) throws(StoreError) {
    guard WholeFile.replace(location, with: Array((text + "\n").utf8), mode: 0o640) else { throw .file(location) }
  }
}
