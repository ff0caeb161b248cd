// SPDX-License-Identifier: MIT

import Companion

extension AckCode {
  /// The acknowledgement code that the recipient of a direct message will send; it is known before sending.
  ///
  /// The first 4 bytes of SHA-256(time u32 LE ‖ attempt & 3 ‖ text ‖ **sender's** key). Attempt 4 has the same code as
  /// attempt 0. Source: docs/protocol/companion.md § 9.4; firmware `BaseChatMesh::composeMsgPacket`.
  public static func expected(time: UInt32, attempt: UInt8, text: Text, sender: PublicKey) -> AckCode {
    var writer = FrameWriter()
    writer.u32(time)
    writer.u8(attempt & 3)
    writer.raw(text.bytes)
    writer.key(sender)
    return AckCode(bytes: Array(Digest.sha256(writer.bytes).prefix(4))) ?? AckCode(value: 0)
  }
}

/// Digests of texts by which apps identify messages.
public enum TextDigest {
  /// The first 4 bytes of SHA-256(text) in upper-case hex, the last part of an app's duplicate key. Source:
  /// docs/protocol/app-conventions.md § 8.
  public static func duplicateKey(_ text: Text) -> String {
    Hex.string(Digest.sha256(text.bytes).prefix(4)).uppercased()
  }

  /// The 8 characters by which a MeshCore One reaction identifies its target. Source: docs/protocol/app-conventions.md
  /// § 2.1.
  public static func reactionHash(_ text: Text, senderTime: UInt32) -> String {
    var writer = FrameWriter()
    writer.raw(text.bytes)
    writer.u32(senderTime)
    let alphabet = Array("0123456789abcdefghjkmnpqrstvwxyz".utf8)
    let bits = Digest.sha256(writer.bytes).prefix(5).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    let characters = stride(from: 35, through: 0, by: -5).map { shift -> UInt8 in
      alphabet[Int((bits >> UInt64(shift)) & 31)]
    }
    return String(decoding: characters, as: UTF8.self)
  }

  /// The 4 hex digits by which a meshcore-open reaction identifies its target; `sender` only in channels. It is the
  /// Dart VM's string hash over UTF-16 units. Source: docs/protocol/app-conventions.md § 2.2.
  public static func openReactionHash(_ text: String, senderTime: UInt32, sender: String?) -> String {
    let units = Array(String(senderTime).utf16) + Array((sender ?? "").utf16) + Array(text.utf16.prefix(5))
    let hash = UInt16(truncatingIfNeeded: dartHash(units))
    return Hex.string([UInt8(hash >> 8), UInt8(hash & 0xFF)])
  }

  static func dartHash(_ units: [UInt16]) -> UInt32 {
    var hash: UInt32 = 0
    for unit in units {
      hash &+= UInt32(unit)
      hash &+= hash << 10
      hash ^= hash >> 6
    }
    hash &+= hash << 3
    hash ^= hash >> 11
    hash &+= hash << 15
    hash &= 0x3FFF_FFFF
    return hash == 0 ? 1 : hash
  }
}
