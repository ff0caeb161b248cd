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
    let descriptor = Glibc.open(location, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
    return descriptor >= 0 ? descriptor : nil
  }

  /// Zeros that are written take their room at once; a hole, or an allocation without content, may not.
  private func reserve(_ descriptor: Int32) -> Bool {
    let missing = 2 * Self.half - Int(lseek(descriptor, 0, SEEK_END))
    guard missing > 0 else { return true }
    guard Glibc.write(descriptor, [UInt8](repeating: 0, count: missing), missing) == missing, fsync(descriptor) == 0
    else { return false }
    Store.syncFolder(of: location)
    return true
  }

  private static func sum(_ number: UInt64, _ content: [UInt8]) -> UInt64 {
    UInt64(bitPattern: RowChecksum.of(seq: Int64(bitPattern: number), at: 0, kind: "", body: content))
  }
}
