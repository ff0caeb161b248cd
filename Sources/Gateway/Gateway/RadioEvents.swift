// SPDX-License-Identifier: MIT

import Companion
import Sync

/// What the radio says reaches those who send, ask, forward and share it.
extension Daemon: SyncObserver {
  public func linkChanged() { radioChanged() }

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
  }

  public func contactCame(_ contact: Contact) {
    messaging.messenger.contactChanged(contact)
    messaging.keeper.look()
    alerts.contactCame(contact)
  }

  public func messageStored(_ message: QueuedMessage) {
    messaging.nodes.requests.received(message)
    proxy.messageStored()
  }

  public func messagesWereLost(_ loss: RadioQueue.Loss) { alerts.messagesWereLost(loss) }

  public func radioReplaced() {
    messaging.radioReplaced()
    proxy.radioReplaced()
  }

  public func radioIsIdle() {
    // Each time: a message that came in between has made others wait, and nothing else tells of its end.
    relay.radioWasRead()
    power.radioIsIdle()
    alerts.radioIsIdle()
    publisher.readBacklog()
  }

  private func radioChanged() {
    publisher.changes.note()
    alerts.radio(
      isUp: connection.state == .up, isScopeStuck: connection.isScopeStuck, message: publisher.summary)
    alerts.messages(synchronizer.withheld, isKnown: connection.state == .up && synchronizer.isServing)
    messaging.messenger.radioChanged()
    if connection.state != .up {
      messaging.nodes.requests.linkLost()
      messaging.routine.linkDown()
    } else if synchronizer.isServing {
      messaging.routine.linkUp()
    }
  }
}
