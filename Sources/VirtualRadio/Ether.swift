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
  /// Repeaters that hear everybody: the first byte of each one's key. They send on what is flooded, once.
  public var repeaters: [UInt8] = []
  /// Packets that a repeater has sent on, for each one the last 160, as firmware remembers them.
  private var repeated: [UInt8: [[UInt8]]] = [:]
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
    spread(packet, to: radios.filter { $0 !== sender }, sender.stored.radio)
  }

  private func spread(_ packet: Packet, to listeners: [VirtualRadio], _ parameters: RadioParameters) {
    let time = Airtime.milliseconds(bytes: packet.encode().count, parameters) * airtimeFactor
    for radio in listeners where Double.random(in: 0..<1, using: &random) >= loss {
      loop.schedule(after: .nanoseconds(Int64(time * 1e6))) { [weak radio] in radio?.heard(packet) }
    }
    guard packet.route.isFlood, packet.pathLength.bytesPerHop == 1, packet.pathLength.hops < 62 else { return }
    for repeater in repeaters where Double.random(in: 0..<1, using: &random) >= loss {
      loop.schedule(after: .nanoseconds(Int64(time * 1e6))) { [weak self] in
        self?.send(packet, by: repeater, parameters)
      }
    }
  }

  private func send(_ packet: Packet, by repeater: UInt8, _ parameters: RadioParameters) {
    let identity = packet.identity
    guard !repeated[repeater, default: []].contains(identity) else { return }
    repeated[repeater, default: []].append(identity)
    if repeated[repeater, default: []].count > 160 { repeated[repeater]?.removeFirst() }
    var next = packet
    next.path.append(repeater)
    next.pathLength = PathLength(raw: UInt8(next.path.count))
    spread(next, to: radios, parameters)
  }
}
