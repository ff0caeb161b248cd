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

/// The digest of a text by which apps identify its message.
public enum TextDigest {
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
}
