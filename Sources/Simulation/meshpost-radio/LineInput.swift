// SPDX-License-Identifier: MIT

import EventLoop

/// Lines from a descriptor, for one task.
final class LineInput {
  /// Longer lines are cut: no script line is that long.
  private static let longestLine = 4096

  private let descriptor: Int32
  private let loop: EventLoop
  private var unread: ArraySlice<UInt8> = []
  private var partial: [UInt8] = []

  init(_ descriptor: Int32, on loop: EventLoop) {
    self.descriptor = descriptor
    self.loop = loop
    Descriptor.setNonBlocking(descriptor)
  }

  /// The line that comes next; `nil`: there are no more. What comes after the last end of a line is not one.
  func next() async throws -> String? {
    while true {
      while let byte = unread.popFirst() {
        if byte == 10 {
          defer { partial.removeAll() }
          return String(decoding: partial, as: UTF8.self)
        }
        if partial.count < Self.longestLine { partial.append(byte) }
      }
      switch Descriptor.read(descriptor) {
      case .bytes(let bytes): unread = bytes[...]
      case .wouldBlock:
        _ = try await loop.wait(for: .readable, of: descriptor)
        continue
      case .end, .failed: return nil
      }
      // The radios have their turn before what has come is carried out.
      try await loop.nextTurn()
    }
  }
}
