// SPDX-License-Identifier: MIT

import EventLoop

/// Reads lines from a descriptor, for one task.
final class LineInput {
  /// The longest line in bytes; longer lines are cut.
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

  /// The next line; `nil`: the input has ended. Bytes after the last end of line are dropped.
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
      // The radios act before the next line is executed.
      try await loop.nextTurn()
    }
  }
}
