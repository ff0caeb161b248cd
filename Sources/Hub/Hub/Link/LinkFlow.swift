// SPDX-License-Identifier: MIT

import NIOCore
import NIOWebSocket
import Synchronization

/// A link's batches that are not answered yet, each a task that writes its answer behind those of the ones before.
struct LinkFlow {
  /// Of a batch, when it is stored or refused.
  typealias Answer = @Sendable () async -> [UInt8]

  let outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>
  private var last: Task<Void, Never>?
  private let count = Counter()

  private final class Counter: Sendable {
    let value = Mutex(0)
  }

  init(_ outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>) { self.outbound = outbound }

  /// Returns when one more may be taken.
  func hasRoom(_ admission: Admission) async {
    if count.value.withLock({ $0 }) >= LinkSession.window || admission.isCrowded { await last?.value }
  }

  mutating func add(_ answer: @escaping Answer) {
    count.value.withLock { $0 += 1 }
    last = Task { [last, count, outbound] in
      let bytes = await answer()
      await last?.value
      // `try?`: a link that is gone takes nothing.
      try? await outbound.write(LinkSession.text(bytes))
      count.value.withLock { $0 -= 1 }
    }
  }
}
