// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import SQLite
import Store

/// Replaces files as a whole. They are for their owner only.
enum WholeFile {
  static func write(_ bytes: [UInt8], to location: String) throws(SystemError) {
    guard SQLite.WholeFile.replace(location, with: bytes) else { throw SystemError("write \(location)") }
  }

  /// Makes these folders where they are missing, and writes a file in the last of them.
  static func write(_ text: String, to location: String, making folders: [String]) throws(StoreError) {
    do throws(SystemError) {
      for folder in folders {
        guard mkdir(folder, 0o700) == 0 || errno == EEXIST else { throw SystemError("mkdir \(folder)") }
      }
      try write(Array(text.utf8), to: location)
    } catch {
      throw .unavailable(error.description)
    }
  }
}
