// SPDX-License-Identifier: MIT

/// A frame of a WebSocket. Source: RFC 6455 § 5.2.
struct WebSocketFrame: Equatable {
  enum Opcode: UInt8 {
    case continuation = 0
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10

    var isControl: Bool { rawValue >= 8 }
  }

  var isFinal = true
  /// RFC 7692 § 6: the first reserved bit.
  var isCompressed = false
  var opcode: Opcode
  var payload: [UInt8] = []

  /// Encodes the frame as a client must: masked with `mask`, which must be random (§ 5.3).
  func encode(mask: UInt32) -> [UInt8] {
    let key = (0..<4).map { UInt8(truncatingIfNeeded: mask >> (8 * $0)) }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(payload.count + 14)
    bytes.append((isFinal ? 0x80 : 0) | (isCompressed ? 0x40 : 0) | opcode.rawValue)
    // 0x80 is the bit that says "masked".
    switch payload.count {
    case ..<126: bytes.append(0x80 | UInt8(payload.count))
    case ..<65536: bytes += [0xFE, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
    default:
      bytes.append(0xFF)
      for shift in stride(from: 56, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: payload.count >> shift))
      }
    }
    bytes += key
    for (index, byte) in payload.enumerated() { bytes.append(byte ^ key[index & 3]) }
    return bytes
  }
}
