// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc

/// What is said before the program ends, and how it ends.
enum Failure {
  /// Says so on standard error; throw what comes back.
  static func say(_ words: String, _ code: Int32) -> any Error {
    Console.error("meshpost: \(words)")
    return ExitCode(code)
  }

  /// It was said already, by the far end.
  static let saidAlready: any Error = ExitCode(EX_UNAVAILABLE)

  /// A file cannot be written; `errno` says why.
  static func file(_ location: String) -> any Error {
    say("\(location): \(String(cString: strerror(errno)))", EX_IOERR)
  }
}
