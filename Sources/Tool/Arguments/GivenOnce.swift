// SPDX-License-Identifier: MIT

import ArgumentParser
import UntrustedText

/// Names that may be given once, such as the keys of settings: of two values one would count, and nobody would say which.
enum GivenOnce {
  /// `place`: the option or argument, for the message.
  static func check(_ names: [String], _ place: String) throws {
    for (index, name) in names.enumerated() where names[..<index].contains(where: { $0.isExactly(name) }) {
      throw ValidationError("\(place): \(name) is given twice")
    }
  }
}
