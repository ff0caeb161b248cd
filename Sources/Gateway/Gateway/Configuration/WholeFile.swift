// SPDX-License-Identifier: MIT

import EventLoop
import SQLite

/// Replaces files as a whole. They are for their owner only.
enum WholeFile {
  static func write(_ bytes: [UInt8], to location: String) throws(SystemError) {
    guard SQLite.WholeFile.replace(location, with: bytes) else { throw SystemError("write \(location)") }
  }
}
