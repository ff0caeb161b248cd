// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Messaging
import RadioSession
import Store
import Sync

extension ClientSession {
  /// A request for the next message confirms the previous one.
  func nextMessage() -> ClientAnswer {
    noteTaking()
    confirm()
    do throws(StoreError) {
      while let message = try gateway.store.message(after: position.next) {
        position.deliver(message.id)
        guard let queued = message.queued(for: version, slot: try gateway.store.slotNow(of: message)) else { continue }
        return .reply(.message(queued))
      }
      confirm()
      keepCursor()
      return .reply(.noMoreMessages)
    } catch {
      return .reply(.error(.fileError))
    }
  }

  private func confirm() {
    position.confirm()
    if position.isDue { keepCursor() }
  }

  /// What was written before counts as received once the client's machine has acknowledged it.
  private func noteTaking() { if outlet.isTaken { position.wasTaken() } }

  /// The client has gone: stores its position, unless it never asked for a message.
  func keepLastCursor() {
    noteTaking()
    if !position.isNew { keepCursor() }
  }

  /// Stores the client's position; after a crash before that, a few messages are delivered twice.
  func keepCursor() {
    if let message = position.takeUnsaved() { gateway.keepCursor(place, message) }
  }

  /// Tells the client that a message is waiting, if one is.
  func hint() {
    guard let newest = gateway.store.ifReadable({ try gateway.store.lastMessageID(ofRadio: gateway.store.radio) }),
      newest > position.last
    else { return }
    outlet.push(Push.messageWaiting.encode())
  }
}

extension SharedMessage {
  /// `nil`: the command is not a message that the gateway keeps. Receivers read a text up to its first NUL.
  init?(_ command: Command) {
    switch command {
    case .sendText(let text) where text.type == .plain:
      self.init(to: .node(text.recipient, attempt: text.attempt), text: text.text.beforeNul, time: text.time)
    case .sendChannelText(.plain, let slot, let time, let text):
      self.init(to: .slot(slot), text: text.beforeNul, time: time)
    default: return nil
    }
  }
}
