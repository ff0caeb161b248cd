// SPDX-License-Identifier: MIT

import Companion
import Timing

/// What was learnt of a recipient's radio. It outlives the messages to it, within a bound.
struct Peer: Equatable, Sendable {
  /// When it was last certainly heard.
  var heardAt: MonotonicTime?
  /// How often its path was put back since it acknowledged something.
  var restored = 0
  /// The slowest acknowledgements of late, as multiples of the attempt's air time, along the path and flooded.
  private var direct: Double?
  private var flooded: Double?

  /// An attempt was acknowledged after `trip` milliseconds. A slow one is forgotten little by little.
  mutating func acknowledged(after trip: UInt32, airtime: Int64, flooded isFlood: Bool) {
    guard trip > 0, airtime > 0 else { return }
    let multiple = Double(trip) / Double(airtime)
    if isFlood { flooded = max(multiple, (flooded ?? 0) * 0.9) } else { direct = max(multiple, (direct ?? 0) * 0.9) }
  }

  /// How long to wait for an acknowledgement, in milliseconds, at most `suggested`. The radio suggests what the longest chain of busy repeaters may need:
  /// three or four times as long as it takes (a late one counts all the same).
  func patience(suggested: Double, airtime: Int64, flooded isFlood: Bool) -> Double {
    guard airtime > 0, let multiple = isFlood ? flooded : direct else { return suggested }
    return min(suggested, 2000 + 1.5 * multiple * Double(airtime))
  }
}

extension DeliverySession {
  /// Beyond it, what was learnt is forgotten.
  private static let mostPeers = 64
  /// The radio writes all its contacts to its flash memory after each change: a path to a node that stays silent is let go.
  private static let mostRestored = 4

  /// Changes what is known of a recipient.
  mutating func learn(_ key: PublicKey, _ change: (inout Peer) -> Void) {
    if peers[key] == nil, peers.count >= Self.mostPeers { peers.removeAll() }
    change(&peers[key, default: Peer()])
  }

  // MARK: Paths

  /// A flooded attempt is on the air: the radio has no path to this node any more.
  mutating func floodTookPath(to key: PublicKey) {
    guard let bytes = paths[key] else { return }
    (paths[key], shelved[key]) = (nil, bytes)
  }

  /// The flood brought no answer either. What lost a packet there may lose one here, and a packet along a path costs a fraction of a flood, whose copies
  /// also drown the acknowledgement: so the path is tried again in the next round.
  mutating func putPathBack(to key: PublicKey) -> [DeliveryAction] {
    guard let bytes = shelved.removeValue(forKey: key), paths[key] == nil,
      peers[key]?.restored ?? 0 < Self.mostRestored
    else { return [] }
    learn(key) { $0.restored += 1 }
    paths[key] = bytes
    return [.restorePath(key)]
  }
}
