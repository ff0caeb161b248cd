// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Sync

/// A state that is in a transaction, or waits for the next because the disk has refused it.
struct Unsaved {
  let message: OutgoingMessage
  let commit: Commit
}

/// The states of messages on disk. Each is written where it is decided, in that order; one that the disk does not take is kept here and
/// written until it does. Meanwhile nothing new is handed to the radio.
extension Messenger {
  private static let retryInterval: Duration = .seconds(2)

  /// The newest state of a row: what the disk has not taken yet goes before what it has.
  func row(_ id: Int64) -> OutgoingMessage? {
    if let row = unsaved[id] { return row.message }
    do {
      return try store.outgoing(id: id)
    } catch {
      log.error("an outgoing message cannot be read: \(error)")
      return nil
    }
  }

  /// Stores a state, retrying until it succeeds. Await the commit where the next step needs it on disk.
  @discardableResult
  func save(_ message: OutgoingMessage, airtime: Int64? = nil, unspent: Int64 = 0) -> Commit {
    let moment = synchronizer.now
    let commit = store.write { store throws(SQLiteError) in
      try store.updateOutgoing(message, at: moment)
      if unspent > 0 { try store.forgetAirtime(unspent, channel: message.channel) }
      if let airtime { try store.recordAirtime(airtime, channel: message.channel, at: store.elapsed(at: moment)) }
    }
    note(message, in: commit)
    return commit
  }

  func note(_ message: OutgoingMessage, in commit: Commit) {
    unsaved[message.id] = Unsaved(message: message, commit: commit)
    if keeping == nil { keeping = loop.begin { await self.keepStates() } }
  }

  /// Until the disk has all of them.
  private func keepStates() async {
    defer { keeping = nil }
    while let commit = unsaved.values.first?.commit {
      if let failure = await commit.failure() {
        logOnce(failure)
        // Cancelled: the daemon ends.
        do { try await loop.sleep(for: Self.retryInterval) } catch { return }
        for refused in unsaved.values where refused.commit.state != .open && !refused.commit.isDurable {
          save(refused.message)
        }
      } else {
        unsaved = unsaved.filter { $0.value.commit !== commit }
      }
    }
    guard loggedDiskFailure else { return }
    loggedDiskFailure = false
    log.notice("sending: states are stored again")
  }

  private func logOnce(_ failure: StoreError) {
    if !loggedDiskFailure {
      log.error("sending: \(failure); no new message is sent until states can be stored. \(failure.remedy)")
    }
    loggedDiskFailure = true
  }
}
