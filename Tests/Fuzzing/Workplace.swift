// SPDX-License-Identifier: MIT

import Glibc
import LoopTestSupport

/// Files of this process, in memory, for targets with a database. They end with the process.
enum Workplace {
  nonisolated(unsafe) private static var scratch: Scratch? = {
    atexit { Workplace.scratch = nil }
    return Scratch(inMemory: true)
  }()

  static func location(_ name: String) -> String { scratch?.location(name) ?? "/nowhere" }
}
