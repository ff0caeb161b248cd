// SPDX-License-Identifier: MIT

// The three kinds of entries in the radio's message queue, each in a short form (for clients below version 3) and in a
// form with SNR. Source: docs/protocol/companion.md § 6 "Messages"; firmware `MyMesh.cpp`, `queueMessage`,
// `onChannelMessageRecv`, `onChannelDataRecv`.

/// The type of a text; the upper 6 bits of the flags byte on the air.
public struct TextType: Hashable, Sendable, RawRepresentable {
  public let rawValue: UInt8
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  /// The recipient's radio acknowledges it.
  public static let plain = TextType(rawValue: 0)
  /// Commands to, and replies from, repeaters, rooms and sensors.
  public static let cliData = TextType(rawValue: 1)
  /// A room's post, with its author's 4-byte key prefix.
  public static let signedPlain = TextType(rawValue: 2)
  /// Newer than 1.17.1, which ignores it: a command to a companion. Nobody has said it.
  public static let cliCommand = TextType(rawValue: 3)

  /// A command or its reply, which may contain a password.
  public var isCommandLine: Bool { self == .cliData || self == .cliCommand }
}

/// CONTACT_MSG_RECV (7) and its V3 (16): a direct message.
public struct ContactMessage: Equatable, Sendable {
  /// `nil` in the short form.
  public var snr: SNR?
  public var sender: KeyPrefix
  public var path: ReceivedPath
  public var textType: TextType
  /// Seconds since 1970 by the sender's clock; in a room's post, by the room's.
  public var senderTime: UInt32
  /// The beginning of the author's key; present only for `signedPlain`.
  public var author: [UInt8]?
  public var text: Text

  public init(
    snr: SNR?, sender: KeyPrefix, path: ReceivedPath, textType: TextType = .plain, senderTime: UInt32,
    author: [UInt8]? = nil, text: Text
  ) {
    self.snr = snr
    self.sender = sender
    self.path = path
    self.textType = textType
    self.senderTime = senderTime
    self.author = author
    self.text = text
  }

  init(reading reader: inout FrameReader, withSNR: Bool) throws(FrameError) {
    if withSNR { snr = try reader.quality() }
    sender = try reader.prefix("sender_prefix")
    path = ReceivedPath(raw: try reader.u8("path_len"))
    textType = TextType(rawValue: try reader.u8("text_type"))
    senderTime = try reader.u32("sender_time")
    if textType == .signedPlain { author = try reader.bytes(4, "author_prefix") }
    text = reader.text()
  }

  func write(to writer: inout FrameWriter) {
    if let snr { writer.quality(snr) }
    writer.prefix(sender)
    writer.u8(path.raw)
    writer.u8(textType.rawValue)
    writer.u32(senderTime)
    if textType == .signedPlain { writer.fixed(author ?? [], 4) }
    writer.raw(text.bytes)
  }
}

/// CHANNEL_MSG_RECV (8) and its V3 (17): `Name: text` on a channel. The name is a claim, not an identity.
public struct ChannelMessage: Equatable, Sendable {
  /// `nil` in the short form.
  public var snr: SNR?
  public var slot: UInt8
  public var path: ReceivedPath
  public var textType: TextType
  public var senderTime: UInt32
  public var text: Text

  public init(
    snr: SNR?, slot: UInt8, path: ReceivedPath, textType: TextType = .plain, senderTime: UInt32, text: Text
  ) {
    self.snr = snr
    self.slot = slot
    self.path = path
    self.textType = textType
    self.senderTime = senderTime
    self.text = text
  }

  init(reading reader: inout FrameReader, withSNR: Bool) throws(FrameError) {
    if withSNR { snr = try reader.quality() }
    slot = try reader.u8("channel")
    path = ReceivedPath(raw: try reader.u8("path_len"))
    textType = TextType(rawValue: try reader.u8("text_type"))
    senderTime = try reader.u32("sender_time")
    text = reader.text()
  }

  func write(to writer: inout FrameWriter) {
    if let snr { writer.quality(snr) }
    writer.u8(slot)
    writer.u8(path.raw)
    writer.u8(textType.rawValue)
    writer.u32(senderTime)
    writer.raw(text.bytes)
  }
}

/// CHANNEL_DATA_RECV (27): a datagram on a channel, without sender, time or acknowledgement.
public struct ChannelDatagram: Equatable, Sendable {
  public var snr: SNR
  public var slot: UInt8
  public var path: ReceivedPath
  /// The number of the application.
  public var dataType: UInt16
  public var data: [UInt8]

  public init(snr: SNR, slot: UInt8, path: ReceivedPath, dataType: UInt16, data: [UInt8]) {
    self.snr = snr
    self.slot = slot
    self.path = path
    self.dataType = dataType
    self.data = data
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    snr = try reader.quality()
    slot = try reader.u8("channel")
    path = ReceivedPath(raw: try reader.u8("path_len"))
    dataType = try reader.u16("data_type")
    let length = try reader.u8("length")
    data = try reader.bytes(Int(length), "data")
  }

  func write(to writer: inout FrameWriter) {
    writer.quality(snr)
    writer.u8(slot)
    writer.u8(path.raw)
    writer.u16(dataType)
    writer.u8(UInt8(truncatingIfNeeded: min(data.count, 255)))
    writer.raw(Array(data.prefix(255)))
  }
}

/// One item of the radio's message queue.
public enum QueuedMessage: Equatable, Sendable {
  case contact(ContactMessage)
  case channel(ChannelMessage)
  case datagram(ChannelDatagram)
}
