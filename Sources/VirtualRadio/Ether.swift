// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// The air that virtual radios share: what one sends, all others hear after its time on air, unless it is lost.
public final class Ether {
  static let snr = SNR(quarters: 39)
  static let rssi: Int8 = -71

  private let loop: EventLoop
  private var random: SeededRandom
  private var radios: [VirtualRadio] = []
  /// Chance of each packet to be lost on its way to each radio.
  public var loss: Double = 0
  /// Real time on air is multiplied by this: 0 = at once.
  public var airtimeFactor: Double

  public init(on loop: EventLoop, seed: UInt64 = 1, airtimeFactor: Double = 0.1) {
    self.loop = loop
    self.airtimeFactor = airtimeFactor
    random = SeededRandom(seed: seed)
  }

  public func add(_ radio: VirtualRadio) {
    radios.append(radio)
    radio.ether = self
  }

  func carry(_ packet: Packet, from sender: VirtualRadio) {
    let time = Airtime.milliseconds(bytes: packet.encode().count, sender.stored.radio) * airtimeFactor
    for radio in radios where radio !== sender && Double.random(in: 0..<1, using: &random) >= loss {
      loop.schedule(after: .nanoseconds(Int64(time * 1e6))) { [weak radio] in radio?.heard(packet) }
    }
  }
}
