// SPDX-License-Identifier: MIT

import Companion
import Sync

/// Passes the radio's events on to the parts that send, query, forward and share.
extension Daemon: SyncObserver {
  public func linkChanged() {
    // Not every name of the radio lets messages of other places be sent.
    if synchronizer.isServing, synchronizer.state.isSettled { relay.channelsChanged() }
    radioChanged()
  }

  public func syncChanged() {
    control?.somethingIsNew()
    if synchronizer.isServing, synchronizer.state.isSettled {
      relay.radioIsUp()
      relay.channelsChanged()
      maintenance.memoryWasUsed()
      tellIdleSettings()
    }
    radioChanged()
  }

  public func heard(_ push: Push, in frame: [UInt8]) {
    proxy.heard(push, frame)
    messaging.messenger.received(push)
    messaging.nodes.requests.received(push)
    if case .contactsFull = push {
      alerts.nodeWasNotAdded()
      messaging.keeper.look()
    }
    if case .logRxData(let snr, let rssi, let packet) = push { packets.heard(packet, snr, rssi) }
    messaging.knock.heard(push)
    messaging.survey.received(push)
  }

  public func contactCame(_ contact: Contact) {
    messaging.messenger.contactChanged(contact)
    messaging.keeper.look()
    messaging.routine.contactCame(contact)
    alerts.contactCame(contact)
  }

  public func takesAnswer(_ message: QueuedMessage) -> Bool {
    guard messaging.nodes.requests.takes(message) else { return false }
    senderWasHeard(message)
    return true
  }

  public func messageStored(_ message: QueuedMessage) {
    senderWasHeard(message)
    proxy.messageStored()
  }

  public func messageRepeated(_ message: QueuedMessage) { senderWasHeard(message) }

  private func senderWasHeard(_ message: QueuedMessage) {
    messaging.messenger.messageCame(message)
    if case .contact(let message) = message { messaging.knock.messageCame(from: message.sender) }
  }

  public func messagesWereLost(_ loss: RadioQueue.Loss) { alerts.messagesWereLost(loss) }

  public func radioReplaced() {
    messaging.radioReplaced()
    proxy.radioReplaced()
  }

  public func radioIsIdle() {
    // Called each time: a message may have delayed the others, and no other event reports its end.
    relay.radioWasRead()
    power.radioIsIdle()
    alerts.radioIsIdle()
    messaging.knock.radioIsIdle()
  }

  private func radioChanged() {
    publisher.changes.note()
    alerts.radio(
      isUp: connection.state == .up, isScopeStuck: connection.isScopeStuck, message: publisher.summary)
    alerts.messages(synchronizer.withheld, isKnown: connection.state == .up && synchronizer.isServing)
    alerts.care.listens(connection.state == .up && synchronizer.isServing)
    messaging.messenger.radioChanged()
    if connection.state != .up {
      messaging.nodes.requests.linkLost()
      messaging.knock.linkLost()
      messaging.routine.linkDown()
    } else if synchronizer.isServing {
      messaging.routine.linkUp()
      messaging.knock.linkUp()
    }
  }
}
