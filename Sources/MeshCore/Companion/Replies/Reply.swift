// SPDX-License-Identifier: MIT

// Replies of the radio. Source: docs/protocol/companion.md § 6; firmware `MyMesh.cpp`, `RESP_CODE_*`.

/// The first byte of a reply, always below 0x80.
public enum ReplyCode: UInt8, CaseIterable, Sendable {
  case ok = 0, error = 1, contactsStart = 2, contact = 3, endOfContacts = 4, selfInfo = 5, sent = 6
  case contactMessage = 7, channelMessage = 8, currentTime = 9, noMoreMessages = 10, exportContact = 11
  case battery = 12, deviceInfo = 13, privateKey = 14, disabled = 15, contactMessageV3 = 16, channelMessageV3 = 17
  case channelInfo = 18, signStart = 19, signature = 20, customVariables = 21, advertPath = 22, tuning = 23
  case stats = 24, autoAdd = 25, allowedRepeatFrequencies = 26, channelData = 27, defaultFloodScope = 28
}

/// The code in an ERR reply. An unknown code counts as a general refusal.
public struct RadioError: Error, Hashable, Sendable, RawRepresentable, CustomStringConvertible {
  public let rawValue: UInt8
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  public static let unsupported = RadioError(rawValue: 1)
  public static let notFound = RadioError(rawValue: 2)
  public static let tableFull = RadioError(rawValue: 3)
  public static let badState = RadioError(rawValue: 4)
  public static let fileError = RadioError(rawValue: 5)
  public static let illegalArgument = RadioError(rawValue: 6)

  public var description: String {
    switch self {
    case .unsupported: "unsupported command (or a frame too short for it)"
    case .notFound: "not found"
    // For a contact, a packet or a text: the command decides.
    case .tableFull: "it has no room for that"
    case .badState: "bad state"
    case .fileError: "the radio's flash failed"
    case .illegalArgument: "illegal argument"
    default: "error \(rawValue)"
    }
  }
}

/// SENT (6): queued for transmission, not yet transmitted.
public struct Sent: Equatable, Sendable {
  public var flood: Bool
  /// Text: the expected ack. Login: the first bytes of the server's key. Other requests: their tag. CLI text: 0.
  public var ackOrTag: AckCode
  /// Milliseconds that the radio suggests to wait: the round trip in an idle mesh.
  public var suggestedTimeout: UInt32

  public init(flood: Bool, ackOrTag: AckCode, suggestedTimeout: UInt32) {
    self.flood = flood
    self.ackOrTag = ackOrTag
    self.suggestedTimeout = suggestedTimeout
  }
}

/// BATT_AND_STORAGE (12). Radios before 1.7.1 end after the voltage.
public struct Battery: Equatable, Sendable {
  /// 0: the radio does not know it.
  public var millivolts: UInt16
  public var usedKibibytes: UInt32?
  public var totalKibibytes: UInt32?

  public init(millivolts: UInt16, usedKibibytes: UInt32? = nil, totalKibibytes: UInt32? = nil) {
    self.millivolts = millivolts
    self.usedKibibytes = usedKibibytes
    self.totalKibibytes = totalKibibytes
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    millivolts = try reader.u16("battery_mv")
    guard !reader.isAtEnd else { return }
    usedKibibytes = try reader.u32("used_kib")
    totalKibibytes = try reader.u32("total_kib")
  }

  func write(to writer: inout FrameWriter) {
    writer.u16(millivolts)
    guard let usedKibibytes, let totalKibibytes else { return }
    writer.u32(usedKibibytes)
    writer.u32(totalKibibytes)
  }
}

/// A range of frequencies in kHz, both ends included.
public struct FrequencyRange: Equatable, Sendable {
  public var lowest: UInt32
  public var highest: UInt32

  public init(lowest: UInt32, highest: UInt32) {
    self.lowest = lowest
    self.highest = highest
  }
}

/// A reply to a command, or an unsolicited one.
public enum Reply: Equatable, Sendable {
  case ok
  /// `nil`: very old firmware sends no code.
  case error(RadioError?)
  /// The number of **all** contacts, whatever `since` was.
  case contactsStart(total: UInt32)
  case contact(Contact)
  /// The highest `lastmod` that was sent; 0 if there was none.
  case endOfContacts(lastModified: UInt32)
  case selfInfo(SelfInfo)
  case sent(Sent)
  case message(QueuedMessage)
  case currentTime(UInt32)
  case noMoreMessages
  case exportContact(card: [UInt8])
  case battery(Battery)
  case deviceInfo(DeviceInfo)
  /// 64 bytes, expanded form. **Secret.**
  case privateKey([UInt8])
  case disabled
  case channelInfo(Channel)
  case signStart(limit: UInt32)
  case signature([UInt8])
  /// `name:value,name:value`; may be empty.
  case customVariables(Text)
  /// When the advert was heard, by the radio's clock, and its path (the sender's side first).
  case advertPath(time: UInt32, path: Path)
  case tuning(Tuning)
  case stats(Stats)
  case autoAdd(AutoAdd)
  case allowedRepeatFrequencies([FrequencyRange])
  case defaultFloodScope(FloodScope?)
  /// An unknown code with its payload, unchanged.
  case unknown(code: UInt8, payload: [UInt8])
}

extension Reply {
  /// Decodes a reply. Throws if a mandatory field is missing; longer frames are accepted.
  public init(decoding frame: [UInt8]) throws(FrameError) {
    guard let first = frame.first else { throw .empty }
    var reader = FrameReader(frame, from: 1)
    guard let code = ReplyCode(rawValue: first) else {
      self = .unknown(code: first, payload: reader.rest())
      return
    }
    if let state = try Self.state(code, &reader) {
      self = state
    } else {
      self = try Self.content(code, &reader)
    }
  }

  private static func content(_ code: ReplyCode, _ reader: inout FrameReader) throws(FrameError) -> Reply {
    switch code {
    case .contact: return .contact(try Contact(reading: &reader, whole: true))
    case .contactMessage: return .message(.contact(try ContactMessage(reading: &reader, withSNR: false)))
    case .contactMessageV3: return .message(.contact(try ContactMessage(reading: &reader, withSNR: true)))
    case .channelMessage: return .message(.channel(try ChannelMessage(reading: &reader, withSNR: false)))
    case .channelMessageV3: return .message(.channel(try ChannelMessage(reading: &reader, withSNR: true)))
    case .channelData: return .message(.datagram(try ChannelDatagram(reading: &reader)))
    case .selfInfo: return .selfInfo(try SelfInfo(reading: &reader))
    case .deviceInfo: return .deviceInfo(try DeviceInfo(reading: &reader))
    case .channelInfo: return .channelInfo(try Channel(reading: &reader))
    case .exportContact: return .exportContact(card: reader.rest())
    case .privateKey: return .privateKey(try reader.bytes(64, "private_key"))
    case .signature: return .signature(try reader.bytes(64, "signature"))
    case .customVariables: return .customVariables(reader.text())
    case .advertPath:
      let time = try reader.u32("time")
      let length = PathLength(raw: try reader.u8("path_len"))
      return .advertPath(time: time, path: try Path(reading: &reader, length: length))
    case .stats: return .stats(try Stats(reading: &reader))
    case .defaultFloodScope: return .defaultFloodScope(try FloodScope.read(&reader))
    default: return .unknown(code: code.rawValue, payload: reader.rest())
    }
  }

  private static func state(_ code: ReplyCode, _ reader: inout FrameReader) throws(FrameError) -> Reply? {
    switch code {
    case .ok: return .ok
    case .error: return .error(reader.isAtEnd ? nil : RadioError(rawValue: try reader.u8("error")))
    case .contactsStart: return .contactsStart(total: try reader.u32("total"))
    case .endOfContacts: return .endOfContacts(lastModified: try reader.u32("lastmod"))
    case .sent:
      return .sent(
        Sent(
          flood: try reader.u8("flood") != 0, ackOrTag: AckCode(value: UInt32(try reader.big(4, "ack_or_tag"))),
          suggestedTimeout: try reader.u32("timeout")))
    case .currentTime: return .currentTime(try reader.u32("time"))
    case .noMoreMessages: return .noMoreMessages
    case .battery: return .battery(try Battery(reading: &reader))
    case .disabled: return .disabled
    case .signStart:
      _ = try reader.u8("reserved")
      return .signStart(limit: try reader.u32("limit"))
    case .tuning: return .tuning(try Tuning(reading: &reader))
    case .autoAdd: return .autoAdd(try AutoAdd(reading: &reader))
    case .allowedRepeatFrequencies:
      var ranges: [FrequencyRange] = []
      while reader.remaining >= 8 {
        ranges.append(FrequencyRange(lowest: try reader.u32("lowest"), highest: try reader.u32("highest")))
      }
      return .allowedRepeatFrequencies(ranges)
    default: return nil
    }
  }

  /// The frame without marker and length.
  public func encode() -> [UInt8] {
    switch self {
    case .ok: Self.frame(.ok) { _ in }
    case .error(let error): Self.frame(.error) { if let error { $0.u8(error.rawValue) } }
    case .contactsStart(let number): Self.frame(.contactsStart) { $0.u32(number) }
    case .contact(let contact): Self.frame(.contact) { contact.write(to: &$0) }
    case .endOfContacts(let number): Self.frame(.endOfContacts) { $0.u32(number) }
    case .selfInfo(let info): Self.frame(.selfInfo) { info.write(to: &$0) }
    case .sent(let sent):
      Self.frame(.sent) {
        $0.u8(sent.flood ? 1 : 0)
        $0.raw(sent.ackOrTag.bytes)
        $0.u32(sent.suggestedTimeout)
      }
    case .message(.contact(let message)):
      Self.frame(message.snr == nil ? .contactMessage : .contactMessageV3) { message.write(to: &$0) }
    case .message(.channel(let message)):
      Self.frame(message.snr == nil ? .channelMessage : .channelMessageV3) { message.write(to: &$0) }
    case .message(.datagram(let datagram)): Self.frame(.channelData) { datagram.write(to: &$0) }
    case .currentTime(let number): Self.frame(.currentTime) { $0.u32(number) }
    case .noMoreMessages: Self.frame(.noMoreMessages) { _ in }
    case .exportContact(let bytes): Self.frame(.exportContact) { $0.raw(bytes) }
    case .battery(let battery): Self.frame(.battery) { battery.write(to: &$0) }
    case .deviceInfo(let info): Self.frame(.deviceInfo) { info.write(to: &$0) }
    case .privateKey(let bytes): Self.frame(.privateKey) { $0.fixed(bytes, 64) }
    case .disabled: Self.frame(.disabled) { _ in }
    case .channelInfo(let channel): Self.frame(.channelInfo) { channel.write(to: &$0) }
    case .signStart(let limit):
      Self.frame(.signStart) {
        $0.u8(0)
        $0.u32(limit)
      }
    case .signature(let bytes): Self.frame(.signature) { $0.fixed(bytes, 64) }
    case .customVariables(let text): Self.frame(.customVariables) { $0.raw(text.bytes) }
    case .advertPath(let time, let path):
      Self.frame(.advertPath) {
        $0.u32(time)
        $0.raw([path.length.raw] + path.bytes)
      }
    case .tuning(let tuning): Self.frame(.tuning) { tuning.write(to: &$0) }
    case .stats(let stats): Self.frame(.stats) { stats.write(to: &$0) }
    case .autoAdd(let autoAdd): Self.frame(.autoAdd) { autoAdd.write(to: &$0) }
    case .allowedRepeatFrequencies(let ranges):
      Self.frame(.allowedRepeatFrequencies) { for end in ranges.flatMap({ [$0.lowest, $0.highest] }) { $0.u32(end) } }
    case .defaultFloodScope(let scope): Self.frame(.defaultFloodScope) { scope?.write(to: &$0) }
    case .unknown(let code, let payload): [code] + payload
    }
  }

  private static func frame(_ code: ReplyCode, _ write: (inout FrameWriter) -> Void) -> [UInt8] {
    FrameWriter.frame(code, write)
  }
}
