// SPDX-License-Identifier: MIT

import EventLoop

/// Bounds the bytes of received messages that the owner has in hand.
final class ReceiveBudget {
  /// A message counts until the owner drops the closure that acknowledges it, which has this.
  final class Hold {
    private let budget: ReceiveBudget
    private let bytes: Int

    fileprivate init(_ bytes: Int, of budget: ReceiveBudget) {
      (self.bytes, self.budget) = (bytes, budget)
      budget.heldBytes += bytes
    }

    deinit {
      budget.heldBytes -= bytes
      budget.freed.resume()
    }
  }

  /// An estimate of the memory that a task needs to handle a message.
  private static let overhead = 1024

  var limit = Int.max
  private(set) var heldBytes = 0
  /// Resumed when the owner has let go of a message, or the connection has ended.
  let freed = Waiter()

  var isSpent: Bool { heldBytes >= limit }

  func hold(_ message: MQTTMessage) -> Hold {
    let content = message.payload.count + message.topic.utf8.count + (message.correlation?.count ?? 0)
    return Hold(content + Self.overhead, of: self)
  }
}
