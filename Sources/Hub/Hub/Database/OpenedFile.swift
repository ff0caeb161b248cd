// SPDX-License-Identifier: MIT

import Glibc

/// The file that a name stood for when it was opened.
struct OpenedFile: Sendable {
  private let location: String
  private let facts: stat?

  init(_ location: String) { (self.location, facts) = (location, Self.facts(of: location)) }

  /// It was removed, moved or replaced: who has it open writes into a file that nobody finds again.
  var isElsewhere: Bool {
    let now = Self.facts(of: location)
    return now?.st_ino != facts?.st_ino || now?.st_dev != facts?.st_dev
  }

  private static func facts(of location: String) -> stat? {
    var facts = stat()
    return stat(location, &facts) == 0 ? facts : nil
  }
}
