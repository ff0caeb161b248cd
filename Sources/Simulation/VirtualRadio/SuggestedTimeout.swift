// SPDX-License-Identifier: MIT

import Companion

extension Airtime {
  /// The time-out that the firmware suggests, in milliseconds (docs/protocol/companion.md § 9.5).
  static func suggestedTimeout(_ packet: Packet, _ radio: RadioParameters) -> UInt32 {
    let time = milliseconds(bytes: packet.encode().count, radio)
    let wait =
      packet.route.isFlood ? 500 + 16 * time : 500 + (6 * time + 250) * Double(packet.pathLength.hops + 1)
    return UInt32(min(max(wait, 0), 4e9))
  }
}
