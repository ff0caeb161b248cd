// SPDX-License-Identifier: MIT

import Companion

/// Time on air of a LoRa packet (Semtech SX1276 data sheet § 4.1.1.6), preamble of 16 symbols, explicit header, CRC.
enum Airtime {
  /// Milliseconds.
  static func of(bytes: Int, _ radio: RadioParameters) -> Double {
    let spreading = Double(radio.spreadingFactor)
    guard radio.bandwidth > 0, (5...12).contains(radio.spreadingFactor) else { return 0 }
    let symbol = Double(1 << Int(radio.spreadingFactor)) / Double(radio.bandwidth) * 1000
    let lowRate: Double = symbol >= 16 ? 1 : 0
    let bits = 8 * Double(bytes) - 4 * spreading + 28 + 16
    let blocks = max(0, (bits / (4 * (spreading - 2 * lowRate))).rounded(.up))
    return (16 + 4.25 + 8 + blocks * Double(radio.codingRate)) * symbol
  }

  /// What the firmware suggests to wait (companion.md § 9.5), in ms.
  static func suggestedTimeout(_ packet: Packet, _ radio: RadioParameters) -> UInt32 {
    let time = of(bytes: packet.encode().count, radio)
    let wait =
      packet.route.isFlood ? 500 + 16 * time : 500 + (6 * time + 250) * Double(packet.pathLength.hops + 1)
    return UInt32(min(max(wait, 0), 4e9))
  }
}
