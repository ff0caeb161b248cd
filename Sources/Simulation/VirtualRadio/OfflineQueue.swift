// SPDX-License-Identifier: MIT

import Companion

/// The radio's message queue in RAM.
///
/// A full queue replaces its oldest channel message or datagram. If it holds only direct messages, it drops the **new** message. Source:
/// docs/protocol/companion.md § 9.3; firmware `MyMesh::addToOfflineQueue`.
struct OfflineQueue {
  private var frames: [[UInt8]] = []
  let capacity: Int

  init(capacity: Int) { self.capacity = max(1, capacity) }

  var count: Int { frames.count }

  mutating func add(_ message: QueuedMessage) {
    let frame = Reply.message(message).encode()
    if frames.count >= capacity {
      guard let oldest = frames.firstIndex(where: Self.isChannelTraffic) else { return }
      frames.remove(at: oldest)
    }
    frames.append(Array(frame.prefix(SerialFraming.largestFrame)))
  }

  mutating func take() -> [UInt8]? { frames.isEmpty ? nil : frames.removeFirst() }

  private static func isChannelTraffic(_ frame: [UInt8]) -> Bool { [8, 17, 27].contains(frame.first) }
}
