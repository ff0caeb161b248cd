// SPDX-License-Identifier: MIT

import Companion
import Messaging
import RadioSession
import Store

extension ClientSession {
  /// A request for the next message confirms the previous one.
  func nextMessage() -> ClientAnswer {
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

extension CompanionProxy.Gateway {
  /// Records a message that the radio accepted from a client as sent by this gateway.
  func noteSent(_ command: Command, _ outcome: RadioSession.Outcome, from client: String) {
    let message: SharedMessage
    switch (command, outcome) {
    case (.sendText(let text), .replied(.sent(let sent))) where text.type == .plain:
      message = SharedMessage(
        to: .node(text.recipient), text: text.text, time: text.time, code: sent.ackOrTag, isFlood: sent.flood)
    case (.sendChannelText(.plain, let slot, let time, let text), .replied(.ok)):
      message = SharedMessage(to: .slot(slot), text: text, time: time, code: nil, isFlood: true)
    default: return
    }
    messenger.noteShared(message, from: client)
  }
}
