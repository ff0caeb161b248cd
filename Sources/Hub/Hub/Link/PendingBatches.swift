// SPDX-License-Identifier: MIT

import NIOCore
import NIOWebSocket
import Synchronization

/// A link's unanswered batches. Each is a task, which writes its answer after those of the earlier batches.
struct PendingBatches {
  /// The answer to a batch, once the batch is stored or refused.
  typealias Answer = @Sendable () async -> [UInt8]

  let outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>
  private var last: Task<Void, Never>?
  private let count = Counter()

  private final class Counter: Sendable {
    let value = Mutex(0)
  }

  init(_ outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>) { self.outbound = outbound }

  /// Waits for the batches in flight if the window is full or the hub is crowded.
  func waitForRoom(_ admission: Admission) async {
    if count.value.withLock({ $0 }) >= LinkSession.window || admission.isCrowded { await last?.value }
  }

  mutating func add(_ answer: @escaping Answer) {
    count.value.withLock { $0 += 1 }
    last = Task { [last, count, outbound] in
      let bytes = await answer()
      await last?.value
      // `try?`: a closed link takes no answer.
      try? await outbound.write(LinkSession.text(bytes))
      count.value.withLock { $0 -= 1 }
    }
  }
}
