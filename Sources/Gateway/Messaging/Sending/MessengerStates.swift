// SPDX-License-Identifier: MIT

import Delivery
import Store
import Sync

/// Writes the states of messages to disk, each where it is decided, and in that order. A state that the disk refuses stays in memory, and is written
/// again until the disk takes it; meanwhile the radio gets nothing new.
extension Messenger {
  private static let retryInterval: Duration = .seconds(2)

  /// The newest state of a row: in memory if the disk does not have it yet.
  func row(_ id: Int64) -> OutgoingMessage? {
    if let row = unsaved[id] { return row.message }
    do {
      return try store.outgoing(id: id)
    } catch {
      log.error("an outgoing message cannot be read: \(error)")
      return nil
    }
  }

  /// Stores a state, and retries until that succeeds. Await the commit if the next step needs it on disk.
  @discardableResult
  func save(
    _ message: OutgoingMessage, airtime: Int64? = nil, unspent: Int64 = 0, isWhole: Bool = false
  ) -> Commit {
    let moment = synchronizer.now
    // Whoever reads events knows that it is held, and reads the end: rounds in between would be most of a journal.
    let isTold = !session.isInLaterRound(message.id)
    let purpose = Self.purpose(of: message)
    if unspent > 0 { used.takeBack(unspent, for: purpose) }
    if let airtime { used.add(airtime, for: purpose) }
    let commit = store.write { store throws(SQLiteError) in
      try store.updateOutgoing(message, at: moment, isWhole: isWhole, isTold: isTold)
      if unspent > 0 {
        try store.forgetAirtime(unspent, channel: message.channel)
        try store.takeBackAirtime(unspent, for: purpose.rawValue)
      }
      if let airtime {
        try store.recordAirtime(airtime, channel: message.channel, at: store.elapsed(at: moment))
        try store.addAirtime(.init(milliseconds: airtime, packets: 1), for: purpose.rawValue, at: moment)
      }
    }
    unsaved.note(message, in: commit) { loop.begin { await self.keepStates() } }
    return commit
  }

  /// Writes states until the disk has all of them.
  private func keepStates() async {
    defer { unsaved.taskEnded() }
    while let commit = unsaved.next {
      if let failure = await commit.failure() {
        if unsaved.failed() {
          log.error("sending: \(failure); no new message is sent until states can be stored. \(failure.remedy)")
        }
        // Cancelled: the daemon ends.
        do { try await loop.sleep(for: Self.retryInterval) } catch { return }
        for message in unsaved.refused { save(message) }
      } else {
        unsaved.stored(commit)
      }
    }
    if unsaved.recovered() { log.notice("sending: states are stored again") }
  }
}
