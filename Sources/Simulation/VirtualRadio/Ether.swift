// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import JSON
import MeshCrypto
import Timing

/// The air that virtual radios share. All other radios receive a packet after its air time, unless it is lost.
public final class Ether {
  static let snr = SNR(quarters: 39)
  static let rssi: Int8 = -71

  private let loop: EventLoop
  private var random: SeededRandom
  private var radios: [VirtualRadio] = []
  /// The chance that a radio does not receive a packet, 0 to 1.
  public var loss: Double = 0
  /// Repeaters in range of all radios: the first byte of each key. They forward each flood once.
  public var repeaters: [UInt8] = []
  /// The keys of the regions that the repeaters carry. They drop floods of other regions.
  public var regions: [ChannelSecret] = []
  /// The repeaters also carry floods without a region.
  public var carriesUnscoped = true
  /// The radios are out of each other's range, and communicate only through repeaters.
  public var isFar = false
  /// The last 160 packets that each repeater has forwarded; firmware remembers as many.
  private var repeated: [UInt8: [[UInt8]]] = [:]
  /// The factor for real air times; 0: packets arrive at once.
  public var airtimeFactor: Double

  /// Each radio has one transmitter: a packet waits for the previous one.
  private enum Transmitter: Hashable {
    case radio(ObjectIdentifier)
    case repeater(UInt8)
  }
  private var busyUntil: [Transmitter: MonotonicTime] = [:]

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
    let listeners = isFar ? [] : radios.filter { $0 !== sender }
    spread(packet, by: .radio(ObjectIdentifier(sender)), to: listeners, sender.stored.radio)
  }

  /// Whether a repeater forwards the packet: a flood of a known region, or one without a region if allowed (firmware: `allowPacketForward`).
  private func mayPass(_ packet: Packet) -> Bool {
    packet.route == .transportFlood ? regions.contains { packet.isInScope(of: $0) } : carriesUnscoped
  }

  private func spread(
    _ packet: Packet, by transmitter: Transmitter, to listeners: [VirtualRadio], _ parameters: RadioParameters
  ) {
    let time = Airtime.milliseconds(bytes: packet.encode().count, parameters) * airtimeFactor
    let now = loop.now
    let end = max(now, busyUntil[transmitter] ?? now) + .nanoseconds(max(0, Int64(saturating: time * 1e6)))
    busyUntil[transmitter] = end
    for radio in listeners where Double.random(in: 0..<1, using: &random) >= loss {
      loop.schedule(at: end) { [weak radio] in radio?.heard(packet) }
    }
    guard packet.pathLength.bytesPerHop == 1, packet.pathLength.hops < 62 else { return }
    let isFlood = packet.route.isFlood
    guard isFlood ? mayPass(packet) : isFar && packet.type != .trace else { return }
    for repeater in repeaters where isFlood || packet.path.first == repeater {
      guard Double.random(in: 0..<1, using: &random) >= loss else { continue }
      loop.schedule(at: end) { [weak self] in
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
    if packet.route.isFlood { next.path.append(repeater) } else { next.path.removeFirst() }
    next.pathLength = PathLength(raw: UInt8(next.path.count))
    // A routed packet is for the next hop of its path.
    let listeners = packet.route.isFlood || next.path.isEmpty ? radios : []
    spread(next, by: .repeater(repeater), to: listeners, parameters)
  }
}
