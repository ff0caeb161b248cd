// SPDX-License-Identifier: MIT

import Companion

extension Airtime {
  /// The timeout that the firmware suggests (docs/protocol/companion.md § 9.5), in ms.
  static func suggestedTimeout(_ packet: Packet, _ radio: RadioParameters) -> UInt32 {
    let time = milliseconds(bytes: packet.encode().count, radio)
    let wait =
      packet.route.isFlood ? 500 + 16 * time : 500 + (6 * time + 250) * Double(packet.pathLength.hops + 1)
    return UInt32(min(max(wait, 0), 4e9))
  }
}
