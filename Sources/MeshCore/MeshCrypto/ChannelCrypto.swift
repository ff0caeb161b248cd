// SPDX-License-Identifier: MIT

import Companion

extension ChannelSecret {
  /// The well-known secret of the channel `Public`.
  public static let publicChannel: ChannelSecret =
    ChannelSecret(bytes: Hex.bytes("8b3387e9c5cdea6ac9e5edbaa115cd72") ?? []) ?? .zero

  /// The secret of a hashtag channel, and the key of a region, derived from the name **with** its `#`, byte by byte.
  public static func hashtag(_ name: String) -> ChannelSecret {
    ChannelSecret(bytes: Array(Digest.sha256(Array(name.utf8)).prefix(16))) ?? .zero
  }

  /// The byte that identifies the channel on the air. Collisions are common.
  public var channelHash: UInt8 { Digest.sha256(bytes).first ?? 0 }

  /// Identifies the channel in logs and the journal without revealing the secret: the first 8 bytes of its SHA-256, in
  /// hex.
  public var digest: String { Hex.string(Digest.sha256(bytes).prefix(8)) }

  /// 32 bytes, the key of the MAC.
  fileprivate var padded: [UInt8] { bytes + [UInt8](repeating: 0, count: 16) }
}

/// The plain text of GRP_TXT: time u32, flags u8, `Name: text`.
public struct GroupText: Equatable, Sendable {
  public var time: UInt32
  /// Text type in the upper 6 bits, attempt in the lower 2.
  public var flags: UInt8
  /// Ends at the first NUL.
  public var text: Text

  public init(time: UInt32, flags: UInt8 = 0, text: Text) {
    self.time = time
    self.flags = flags
    self.text = text
  }
}

/// The plain text of GRP_DATA: data type u16, length u8, bytes.
public struct GroupData: Equatable, Sendable {
  public var dataType: UInt16
  public var data: [UInt8]

  public init(dataType: UInt16, data: [UInt8]) {
    self.dataType = dataType
    self.data = data
  }
}

extension GroupEnvelope {
  /// The plain text if `secret` is the channel's, which the MAC shows (a false match is 1 in 65,536).
  public func openText(with secret: ChannelSecret) -> GroupText? {
    guard var reader = plain(with: secret) else { return nil }
    guard let time = try? reader.u32("time"), let flags = try? reader.u8("flags") else { return nil }
    // `try?`: a plain text shorter than its header is invalid; the caller gets `nil`.
    return GroupText(time: time, flags: flags, text: reader.text().beforeNul)
  }

  public func openData(with secret: ChannelSecret) -> GroupData? {
    guard var reader = plain(with: secret) else { return nil }
    guard let type = try? reader.u16("data_type"), let count = try? reader.u8("length"),
      let data = try? reader.bytes(Int(count), "data")
    else { return nil }  // `try?`: as above
    return GroupData(dataType: type, data: data)
  }

  private func plain(with secret: ChannelSecret) -> FrameReader? {
    guard secret.channelHash == channelHash else { return nil }
    return SealedBox.open(mac: mac, cipher: cipher, secret: secret.padded).map { FrameReader($0) }
  }

  public static func seal(_ text: GroupText, with secret: ChannelSecret) -> GroupEnvelope? {
    var writer = FrameWriter()
    writer.u32(text.time)
    writer.u8(text.flags)
    writer.raw(text.text.bytes)
    return seal(writer.bytes, with: secret)
  }

  public static func seal(_ datagram: GroupData, with secret: ChannelSecret) -> GroupEnvelope? {
    var writer = FrameWriter()
    writer.u16(datagram.dataType)
    writer.u8(UInt8(truncatingIfNeeded: datagram.data.count))
    writer.raw(datagram.data)
    return seal(writer.bytes, with: secret)
  }

  private static func seal(_ plain: [UInt8], with secret: ChannelSecret) -> GroupEnvelope? {
    guard let (mac, cipher) = SealedBox.seal(plain, secret: secret.padded) else { return nil }
    return GroupEnvelope(channelHash: secret.channelHash, mac: mac, cipher: cipher)
  }
}
