// SPDX-License-Identifier: MIT

import Companion

extension Packet {
  /// The packet's identity, the same at every observer: 8 bytes, independent of path, route and transport codes.
  ///
  /// The first 8 bytes of SHA-256(payload type ‖ [TRACE only: path length as u16 LE] ‖ payload). Source: firmware
  /// `Packet.cpp`, `calculatePacketHash`.
  public var identity: [UInt8] {
    var writer = FrameWriter()
    writer.u8(type.rawValue)
    if type == .trace { writer.u16(UInt16(pathLength.raw)) }
    writer.raw(payload)
    return Array(Digest.sha256(writer.bytes).prefix(8))
  }

  /// The first transport code of this packet under a region's key.
  public func transportCode(scopeKey: ChannelSecret) -> UInt16 {
    let mac = Digest.hmacSHA256(key: scopeKey.bytes, [type.rawValue] + payload)
    let code = UInt16(mac[0]) | UInt16(mac[1]) << 8
    return code == 0 ? 1 : code == 0xFFFF ? 0xFFFE : code
  }

  /// Whether the packet was sent in the scope with this key.
  public func isInScope(of scopeKey: ChannelSecret) -> Bool {
    guard let transportCodes else { return false }
    return transportCodes.first == transportCode(scopeKey: scopeKey)
  }
}
