// SPDX-License-Identifier: MIT

/// A channel slot of the radio: CHANNEL_INFO (18) and SET_CHANNEL (32).
///
///     0     1     2        34
///     code  slot  name 32  secret 16
///
/// The name ends at its first NUL; in CHANNEL_INFO rubbish follows. Source: docs/protocol/companion.md §§ 5.4, 6.
public struct Channel: Equatable, Sendable {
  public var slot: UInt8
  public var name: Text
  public var secret: ChannelSecret

  public init(slot: UInt8, name: Text, secret: ChannelSecret) {
    self.slot = slot
    self.name = name
    self.secret = secret
  }

  /// An unused slot. In 1.17.1 it still decrypts with a key of zeros: messages that arrive there are not for us.
  public var isEmpty: Bool { name.isEmpty && secret.isZero }

  init(reading reader: inout FrameReader) throws(FrameError) {
    slot = try reader.u8("slot")
    name = try reader.fixedText(32, "name")
    secret = ChannelSecret(bytes: try reader.bytes(16, "secret")) ?? .zero
  }

  func write(to writer: inout FrameWriter) {
    writer.u8(slot)
    writer.fixedText(name, 32)
    writer.raw(secret.bytes)
  }
}
