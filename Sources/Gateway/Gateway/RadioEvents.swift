// SPDX-License-Identifier: MIT

import Companion
import JSON
import Store
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
    if case .logRxData(let snr, let rssi, let packet) = push { heard(packet, snr, rssi) }
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
    readBacklog()
  }

  private func radioChanged() {
    stateChange.note()
    alerts.radio(
      isUp: connection.state == .up, isScopeStuck: connection.isScopeStuck, message: summary)
    alerts.messages(synchronizer.withheld, isKnown: connection.state == .up && synchronizer.isServing)
    messaging.messenger.radioChanged()
    if connection.state != .up {
      messaging.nodes.requests.linkLost()
      messaging.routine.linkDown()
    } else if synchronizer.isServing {
      messaging.routine.linkUp()
    }
  }

  /// Packets are journaled only while an upstream wants them: they are many.
  private func heard(_ packet: [UInt8], _ snr: SNR, _ rssi: Int8) {
    counts.heard(snr, rssi)
    taps.heard(packet, snr, rssi, connection.identity?.info.radio)
    guard wantsPackets else { return }
    let moment = synchronizer.now
    let body = JSONWriter.object { json in
      // What comes before the radio has said who it is waited in the port for the one before.
      json.field("radio", store.markInEvent(of: connection.identity?.info.key))
      json.field("raw", Hex.string(packet))
      json.field("snr", snr.decibels)
      json.field("rssi", rssi)
    }
    store.post(when: .heard, "a packet") { store throws(SQLiteError) in
      try store.append(.packet, at: moment, body: body)
    }
  }
}
