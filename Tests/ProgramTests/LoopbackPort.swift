// SPDX-License-Identifier: MIT

import EventLoop

/// A loopback port that is free just now.
enum LoopbackPort {
  static func take() throws -> (descriptor: Int32, port: UInt16) { try LoopbackSocket.listen(on: 0) }
}
