// SPDX-License-Identifier: MIT

import NIOCore

/// Buffers for a connection's input: as large as recent input, and freed after use.
///
/// NIO keeps up to four buffers of a connection while it is open, each as large as the input when it was made: 64 KiB in a backlog. Here only the
/// first is kept, which is as large as most requests for a link. Source: `NIOPooledRecvBufferAllocator`.
struct ReadBuffers: RecvByteBufferAllocator {
  private static let first = 512

  private var later = AdaptiveRecvByteBufferAllocator()
  private var hasRead = false

  static func use(by channel: any Channel) throws {
    guard let options = channel.syncOptions else { return }
    try options.setOption(.recvAllocator, value: ReadBuffers())
    // NIO keeps as many buffers as may be read at once.
    try options.setOption(.maxMessagesPerRead, value: 1)
  }

  func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
    hasRead ? later.buffer(allocator: allocator) : allocator.buffer(capacity: Self.first)
  }

  /// `nil`: NIO then reuses no buffer because of its size.
  func nextBufferSize() -> Int? { nil }

  /// Returns `true`: the next buffer may be larger, so that this one is not reused.
  mutating func record(actualReadBytes: Int) -> Bool {
    _ = hasRead ? later.record(actualReadBytes: actualReadBytes) : false
    hasRead = true
    return true
  }
}
