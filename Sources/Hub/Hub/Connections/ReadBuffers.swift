// SPDX-License-Identifier: MIT

import NIOCore

/// Allocates buffers for a connection's input: as large as recent input, and freed after use.
///
/// NIO keeps up to four buffers of an open connection, each up to 64 KiB. With this allocator it keeps only the first one, which has the size of most
/// requests for a link. Source: `NIOPooledRecvBufferAllocator`.
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

  /// `nil`: so NIO reuses no buffer because of its size.
  func nextBufferSize() -> Int? { nil }

  /// `true` says that the next buffer may be larger, so that NIO does not reuse this one.
  mutating func record(actualReadBytes: Int) -> Bool {
    _ = hasRead ? later.record(actualReadBytes: actualReadBytes) : false
    hasRead = true
    return true
  }
}
