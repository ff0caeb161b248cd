// SPDX-License-Identifier: MIT

import Companion
import Store

extension ClientSession {
  /// Asking for the next message says that the last one has come.
  func handOverMessage() {
    if let handedOver { advance(to: handedOver) }
    do throws(StoreError) {
      while let message = try parts.store.message(after: handedOver ?? cursor) {
        handedOver = message.id
        guard let queued = message.queued(for: version, slot: try parts.store.slotNow(of: message)) else { continue }
        return reply(.message(queued))
      }
      if let handedOver { advance(to: handedOver) }
      keepCursor()
      reply(.noMoreMessages)
    } catch {
      reply(.error(.fileError))
    }
  }

  private func advance(to id: Int64) {
    cursor = id
    handedOver = nil
    uncounted += 1
    if uncounted >= Self.cursorStep { keepCursor() }
  }

  /// Its place goes to disk; a crash before that hands over a few messages twice.
  func keepCursor() {
    guard uncounted > 0 else { return }
    uncounted = 0
    parts.keepCursor(name, cursor)
  }

  /// Something waits for it.
  func hint() {
    // `try?`: whoever asks for the message hears what is wrong.
    guard let newest = try? parts.store.lastMessageID(), newest > max(cursor, handedOver ?? 0) else { return }
    send(Push.messageWaiting.encode())
  }
}
