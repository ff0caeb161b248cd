// SPDX-License-Identifier: MIT

import Companion

/// The copies of a message in its row, and what is known of those that are not kept.
///
///     if an event has told copies, or some are not kept:
///     | 0 u8 | the newest event u48 BE | not kept u16 LE |
///     the copies, each with its length, which is never 0
struct KeptCopies: Equatable {
  /// At most `HeardCopy.most`.
  private(set) var copies: [HeardCopy] = []
  /// Copies that were heard and not kept.
  private(set) var more = 0
  /// The newest event that told copies; 0: none did.
  private(set) var event: Int64 = 0

  /// A greater number is not counted.
  static let mostMore = 255

  init() {}

  init(_ copies: [HeardCopy]) { add(copies) }

  mutating func add(_ added: [HeardCopy], more missed: Int = 0) {
    let room = max(0, HeardCopy.most - copies.count)
    copies += added.prefix(room)
    more = min(Self.mostMore, more + missed + max(0, added.count - room))
  }

  var hasNews: Bool { copies.contains { !$0.isTold } }

  /// This event tells all copies.
  mutating func tell(by seq: Int64) {
    event = seq
    for place in copies.indices { copies[place].isTold = true }
  }

  func encode() -> [UInt8] {
    var writer = hasStart ? FrameWriter(code: 0) : FrameWriter()
    if hasStart {
      writer.big(UInt64(clamping: event), 6)
      writer.u16(UInt16(clamping: more))
    }
    for copy in copies { copy.encode(to: &writer) }
    return writer.bytes
  }

  /// Bytes before the first copy.
  var startBytes: Int { hasStart ? 9 : 0 }
  private var hasStart: Bool { event > 0 || more > 0 }

  /// Reads copies up to the first that is damaged.
  init(decoding bytes: [UInt8]) {
    var reader = FrameReader(bytes)
    if bytes.first == 0 {
      // `try?`: only a damaged row ends within its beginning, and then it has no copies.
      guard (try? reader.u8("mark")) != nil, let event = try? reader.big(6, "event"),
        let more = try? reader.u16("more")
      else { return }
      (self.event, self.more) = (Int64(clamping: event), Int(more))
    }
    copies = HeardCopy.decode(&reader)
  }
}

/// The event of a message's copies as the journal has it: the copies and the message are in the message's row, so they
/// are not written again. The JSON is made when the event is read.
///
///     | 1 u8 | sent u8 | message u48 BE | copies u8 | not kept u16 LE | the event before u48 BE | checksum u32 LE |
struct WaysReference: Equatable {
  private static let mark: UInt8 = 1

  var message: MessageNumber
  /// The event tells the first ones of the row: later copies have an event of their own.
  var count: Int
  var more: Int
  /// The message's event before this one; 0: none.
  var previous: Int64
  /// Of the copies.
  var checksum: UInt32

  /// `kept`: already told by the event. `bytes`: as they are in the row.
  init(of message: MessageNumber, _ kept: KeptCopies, _ bytes: [UInt8], after previous: Int64) {
    (self.message, count, more, self.previous) = (message, kept.copies.count, kept.more, previous)
    checksum = Self.checksum(of: bytes[kept.startBytes...])
  }

  /// The copies that the event tells; `nil`: the row has changed, so it is damaged.
  func copies(in kept: KeptCopies) -> [HeardCopy]? {
    let told = Array(kept.copies.prefix(count))
    var writer = FrameWriter()
    for copy in told { copy.encode(to: &writer) }
    return told.count == count && Self.checksum(of: writer.bytes[...]) == checksum ? told : nil
  }

  private static func checksum(of copies: ArraySlice<UInt8>) -> UInt32 {
    var sum = RowChecksum()
    sum.add(copies)
    return UInt32(truncatingIfNeeded: sum.value ^ sum.value >> 32)
  }

  func encode() -> [UInt8] {
    var writer = FrameWriter()
    writer.u8(Self.mark)
    switch message {
    case .received(let id):
      writer.u8(0)
      writer.big(UInt64(clamping: id), 6)
    case .sent(let id):
      writer.u8(1)
      writer.big(UInt64(clamping: id), 6)
    }
    writer.u8(UInt8(clamping: count))
    writer.u16(UInt16(clamping: more))
    writer.big(UInt64(clamping: previous), 6)
    writer.u32(checksum)
    return writer.bytes
  }

  /// Whether these bytes are a reference: JSON begins with a brace.
  static func isIn(_ body: [UInt8]) -> Bool { body.first == mark }

  /// `nil`: these bytes are none.
  init?(decoding bytes: [UInt8]) {
    // `try?`: the caller takes other bytes for damaged.
    guard Self.isIn(bytes), let read = try? Self(reading: bytes) else { return nil }
    self = read
  }

  private init(reading bytes: [UInt8]) throws(FrameError) {
    var reader = FrameReader(bytes)
    _ = try reader.u8("mark")
    let isSent = try reader.u8("sent") != 0
    let id = Int64(clamping: try reader.big(6, "message"))
    message = isSent ? .sent(id) : .received(id)
    count = Int(try reader.u8("copies"))
    more = Int(try reader.u16("more"))
    previous = Int64(clamping: try reader.big(6, "event"))
    checksum = try reader.u32("checksum")
  }
}
