// SPDX-License-Identifier: MIT

import Companion

/// A message that a radio has handed over, with what is known about it at that moment.
public struct TakenMessage: Equatable, Sendable {
  public var message: QueuedMessage
  public var moment: Moment
  /// How long it was in the radio's queue.
  public var wait: RadioWait
  /// The beginning of the key of the radio that handed it over; 0: none was known. Not its number: a new database
  /// numbers radios anew.
  public var radio: KeyPrefix
  /// The stored channel of its slot is the radio's.
  public var knowsSlot = true

  public init(_ message: QueuedMessage, at moment: Moment, wait: RadioWait, by radio: KeyPrefix) {
    (self.message, self.moment, self.wait, self.radio) = (message, moment, wait, radio)
  }
}

extension Store {
  /// Where `hold` keeps messages.
  public var reservedLocation: String { reserved.location }

  /// Messages that an earlier run could not store; usually none.
  public var heldMessages: [TakenMessage] {
    var reader = FrameReader(reserved.content)
    var held: [TakenMessage] = []
    // `try?`: the checksum is right, so a newer program wrote what cannot be read.
    while !reader.isAtEnd, let message = (try? readHeld(&reader)) ?? nil { held.append(message) }
    return held
  }

  /// Makes these messages, which the database refuses, durable outside of it, in place of those held before. Returns
  /// whether they are.
  public func hold(_ messages: [TakenMessage]) -> Bool {
    var writer = FrameWriter()
    for held in messages {
      let frame = Reply.message(held.message).encode()
      writer.big(UInt64(bitPattern: held.moment.milliseconds), 8)
      writer.big(UInt64(bitPattern: held.wait.column ?? Self.noWait), 8)
      writer.prefix(held.radio)
      writer.u8((held.moment.trusted ? 1 : 0) | (held.knowsSlot ? 2 : 0))
      writer.u16(UInt16(clamping: frame.count))
      writer.raw(frame)
    }
    return writer.bytes == reserved.content || reserved.write(writer.bytes)
  }

  private static let noWait = Int64.min

  private func readHeld(_ reader: inout FrameReader) throws(FrameError) -> TakenMessage? {
    let moment = Int64(bitPattern: try reader.big(8, "moment"))
    let wait = Int64(bitPattern: try reader.big(8, "wait"))
    let prefix = try reader.prefix()
    let flags = try reader.u8("flags")
    let frame = try reader.bytes(Int(try reader.u16("length")), "frame")
    guard case .message(let message) = try Reply(decoding: frame) else { return nil }
    var taken = TakenMessage(
      message, at: Moment(milliseconds: moment, trusted: flags & 1 != 0),
      wait: RadioWait(column: wait == Self.noWait ? nil : wait), by: prefix)
    taken.knowsSlot = flags & 2 != 0
    return taken
  }
}
