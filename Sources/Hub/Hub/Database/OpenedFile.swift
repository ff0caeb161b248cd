// SPDX-License-Identifier: MIT

import Glibc

/// The identity of the file at a location, at the time of opening.
struct OpenedFile: Sendable {
  private let location: String
  private let facts: stat?

  init(_ location: String) { (self.location, facts) = (location, Self.facts(of: location)) }

  /// Whether the file was removed, moved or replaced: a program that has it open writes into a file without a name.
  var isElsewhere: Bool {
    let now = Self.facts(of: location)
    return now?.st_ino != facts?.st_ino || now?.st_dev != facts?.st_dev
  }

  private static func facts(of location: String) -> stat? {
    var facts = stat()
    return stat(location, &facts) == 0 ? facts : nil
  }
}
