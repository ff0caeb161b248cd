// SPDX-License-Identifier: MIT

import Companion
import Glibc

/// A file beside the database whose bytes are allocated while the disk has room: writing over them needs no new room,
/// so what the database cannot take while the disk is full can still be made durable here.
///
/// Two halves are written in turn, and the newest complete one counts: a write that a power cut tears leaves the one
/// before.
struct ReservedFile {
  /// Enough for the inbox's bound, at the size of the longest message.
  static let half = 16 << 10
  /// The checksum, the number of the write and the length; 8 bytes each.
  private static let head = 24

  let location: String
  private var number: UInt64 = 0
  private(set) var content: [UInt8] = []

  init(_ location: String) {
    self.location = location
    guard let descriptor = open() else { return }
    defer { close(descriptor) }
    guard reserve(descriptor) else { return }
    for half in 0..<2 {
      var bytes = [UInt8](repeating: 0, count: Self.half)
      // `try?`: a half that was never written, or is torn, does not count.
      guard pread(descriptor, &bytes, Self.half, half * Self.half) == Self.half,
        let written = (try? Self.read(bytes)) ?? nil, written.number > number
      else { continue }
      (number, content) = written
    }
  }

  private static func read(_ bytes: [UInt8]) throws(FrameError) -> (number: UInt64, content: [UInt8])? {
    var reader = FrameReader(bytes)
    let (sum, number) = (try reader.big(8, "sum"), try reader.big(8, "number"))
    let content = try reader.bytes(Int(clamping: try reader.big(8, "length")), "content")
    return sum == Self.sum(number, content) ? (number, content) : nil
  }

  /// Makes the bytes durable in place of those before; false if they are too many, or the disk refuses even this.
  mutating func write(_ content: [UInt8]) -> Bool {
    guard content.count <= Self.half - Self.head, let descriptor = open() else { return false }
    defer { close(descriptor) }
    let next = number + 1
    var writer = FrameWriter()
    for field in [Self.sum(next, content), next, UInt64(content.count)] { writer.big(field, 8) }
    writer.raw(content)
    guard reserve(descriptor),
      pwrite(descriptor, writer.bytes, writer.bytes.count, Int(next & 1) * Self.half) == writer.bytes.count,
      fdatasync(descriptor) == 0
    else { return false }
    (number, self.content) = (next, content)
    return true
  }

  private func open() -> Int32? {
    let descriptor = Glibc.open(location, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o640)
    return descriptor >= 0 ? descriptor : nil
  }

  /// Zeros that are written take their room at once; a hole, or an allocation without content, may not.
  private func reserve(_ descriptor: Int32) -> Bool {
    let missing = 2 * Self.half - Int(lseek(descriptor, 0, SEEK_END))
    guard missing > 0 else { return true }
    return Glibc.write(descriptor, [UInt8](repeating: 0, count: missing), missing) == missing && fsync(descriptor) == 0
  }

  private static func sum(_ number: UInt64, _ content: [UInt8]) -> UInt64 {
    UInt64(bitPattern: RowChecksum.of(seq: Int64(bitPattern: number), at: 0, kind: "", body: content))
  }
}

/// A message that a radio has handed over, with what is known about it at that moment.
public struct TakenMessage: Equatable, Sendable {
  public var message: QueuedMessage
  public var moment: Moment
  /// How long it was in the radio's queue.
  public var wait: RadioWait
  /// The number of the radio that handed it over.
  public var radio: Int64
  /// The stored channel of its slot is the radio's.
  public var knowsSlot = true

  public init(_ message: QueuedMessage, at moment: Moment, wait: RadioWait, by radio: Int64) {
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
      // Its key: a new database numbers radios anew.
      writer.prefix(radio(held.radio)?.key.prefix ?? KeyPrefix(value: 0))
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
      wait: RadioWait(column: wait == Self.noWait ? nil : wait),
      by: radios.first { $0.key.prefix == prefix }?.id ?? radio)
    taken.knowsSlot = flags & 2 != 0
    return taken
  }
}
