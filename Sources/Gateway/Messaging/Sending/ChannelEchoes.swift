// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import Timing

/// Recognises repeaters that repeat an outgoing channel message: the only sign that it was received.
///
/// It computes the packet's payload as the radio does, and compares heard packets with it. While no message waits for repeats, it ignores all
/// packets.
struct ChannelEchoes {
  private struct Expected {
    let id: Int64
    let payload: [UInt8]
    let until: MonotonicTime
    /// Repeats by their path. A repeater passes a packet on once: a second packet with the same path is that of another
    /// repeater with the same hash. More are not believed: somebody may play one back.
    var repeats: [Path: Int] = [:]
  }

  /// Maximum number of messages looked for at once; the oldest is dropped. And of a message's repeats with different paths; further ones are not
  /// counted.
  static let (most, mostPaths, mostOfPath) = (16, 64, 2)

  private var expected: [Expected] = []

  /// False: the message's packet differs from the one before.
  mutating func expect(
    _ id: Int64, text: Text, time: UInt32, name: Text, secret: ChannelSecret, now: MonotonicTime
  ) -> Bool {
    let whole = Text(bytes: Array((name.bytes + Array(": ".utf8) + text.bytes).prefix(TextLimit.channelWithName)))
    guard let envelope = GroupEnvelope.seal(GroupText(time: time, text: whole), with: secret) else { return true }
    let payload = envelope.encode()
    let isOther = expected.contains { $0.id == id && $0.payload != payload }
    expected.removeAll { $0.until <= now || $0.id == id }
    if expected.count >= Self.most { expected.removeFirst() }
    expected.append(Expected(id: id, payload: payload, until: now + DeliverySettings.grace))
    return !isOther
  }

  /// The payload of a message's packet; `nil`: it is not looked for.
  func payload(of id: Int64) -> [UInt8]? { expected.last { $0.id == id }?.payload }

  /// The sent message that this packet shows a further repeater of; `nil`: none.
  mutating func heard(_ bytes: [UInt8], now: MonotonicTime) -> Int64? {
    guard !expected.isEmpty else { return nil }
    expected.removeAll { $0.until <= now }
    guard let packet = try? Packet(decoding: bytes), packet.type == .groupText, packet.pathLength.hops > 0,
      let place = expected.firstIndex(where: { $0.payload == packet.payload }),
      let path = Path(bytes: packet.path, bytesPerHop: packet.pathLength.bytesPerHop)
    else { return nil }  // `try?`: bytes that are no packet repeat nothing
    let width = packet.pathLength.bytesPerHop
    let known = expected[place].repeats
    guard known[path] != nil || known.count < Self.mostPaths else { return nil }
    let count = (known[path] ?? 0) + 1
    guard count <= Self.mostOfPath else { return nil }
    expected[place].repeats[path] = count
    // A repeater may have heard the packet by several ways, of which it has passed on one.
    let ofRepeater = known.filter { $0.key.bytes.suffix(width) == packet.path.suffix(width) }.values.max() ?? 0
    return count > ofRepeater ? expected[place].id : nil
  }
}
