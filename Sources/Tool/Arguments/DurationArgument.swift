// SPDX-License-Identifier: MIT

import ArgumentParser
import UntrustedText

/// A duration in the form that people type: `90s`, `15m`, `2h`, `3d`, `1w`, or a number of seconds.
struct DurationArgument: ExpressibleByArgument {
  static let forms = "90s, 15m, 2h, 3d, or a number of seconds"

  /// At least 1.
  let seconds: Int

  init?(argument: String) {
    let units: [UInt8: Int] = [
      UInt8(ascii: "s"): 1, UInt8(ascii: "m"): 60, UInt8(ascii: "h"): 3600, UInt8(ascii: "d"): 86_400,
      UInt8(ascii: "w"): 604_800,
    ]
    let unit = argument.utf8.last.flatMap { units[$0] }
    let digits = argument.cut(toBytes: argument.utf8.count - (unit == nil ? 0 : 1))
    // Reject signs, and digits of other scripts.
    guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let count = UInt32(digits), count > 0 else {
      return nil
    }
    seconds = Int(count) * (unit ?? 1)
  }

  init(seconds: Int) { self.seconds = seconds }
  var defaultValueDescription: String { "\(seconds)s" }
}
