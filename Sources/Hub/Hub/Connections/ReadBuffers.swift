// SPDX-License-Identifier: MIT

import NIOCore

/// Buffers for what a connection reads: as large as what came lately, and gone when that is dealt with.
///
/// NIO keeps up to four of a connection for as long as that is open, each as large as what came when it was made: 64 KiB in a backlog. Here
/// only the first is kept, which is as large as most requests for a link. Source: `NIOPooledRecvBufferAllocator`.
struct ReadBuffers: RecvByteBufferAllocator {
  private static let first = 512

  private var later = AdaptiveRecvByteBufferAllocator()
  private var hasRead = false

  static func use(by channel: any Channel) throws {
    guard let options = channel.syncOptions else { return }
    try options.setOption(.recvAllocator, value: ReadBuffers())
    // So many buffers are kept as may be read at once.
    try options.setOption(.maxMessagesPerRead, value: 1)
  }

  func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
    hasRead ? later.buffer(allocator: allocator) : allocator.buffer(capacity: Self.first)
  }

  /// `nil`: without it no buffer is taken again for its size.
  func nextBufferSize() -> Int? { nil }

  /// True: the next buffer may be larger, so that this one is not taken again.
  mutating func record(actualReadBytes: Int) -> Bool {
    _ = hasRead ? later.record(actualReadBytes: actualReadBytes) : false
    hasRead = true
    return true
  }
}
