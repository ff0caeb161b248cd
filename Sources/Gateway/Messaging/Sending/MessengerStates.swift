// SPDX-License-Identifier: MIT

import Delivery
import Store
import Sync

/// Writes the states of messages to disk, each where it is decided, and in that order. A state that the disk refuses stays in memory, and is written
/// again until the disk takes it; meanwhile the radio gets nothing new.
extension Messenger {
  static let retryInterval: Duration = .seconds(2)

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

  /// Changes a message, and stores it; if its row cannot be read, as soon as it can.
  func change(_ change: StateChange) {
    // After earlier ones of the message.
    guard unapplied.contains(where: { $0.id == change.id }) || !apply(change) else { return }
    unapplied.append(change)
    if applying == nil { applying = loop.begin { await self.applyLater() } }
  }

  /// Returns false if the row cannot be read.
  private func apply(_ change: StateChange) -> Bool {
    let found: OutgoingMessage?
    do {
      found = try unsaved[change.id]?.message ?? store.outgoing(id: change.id)
    } catch {
      if applying == nil { log.error("an outgoing message cannot be read: \(error). Its new state is kept meanwhile") }
      return false
    }
    guard var message = found, change.isWanted(message) else { return true }
    // An attempt that is not on disk has no air time there.
    let unspent = message.state == .sending ? change.unspent : 0
    change.make(&message)
    message.airtime = max(0, message.airtime - unspent)
    save(message, unspent: unspent, isWhole: change.isWhole)
    return true
  }

  /// Ends when all rows were read.
  private func applyLater() async {
    defer { applying = nil }
    while !unapplied.isEmpty {
      // Cancelled: the daemon ends.
      do { try await loop.sleep(for: Self.retryInterval) } catch { return unapplied = [] }
      let waiting = unapplied
      unapplied = []
      for change in waiting where unapplied.contains(where: { $0.id == change.id }) || !apply(change) {
        unapplied.append(change)
      }
    }
  }

  /// Stores a state, and retries until that succeeds. Await the commit if the next step needs it on disk.
  @discardableResult
  func save(
    _ message: OutgoingMessage, airtime: Int64? = nil, unspent: Int64 = 0, isWhole: Bool = false
  ) -> Commit {
    let purpose = Self.purpose(of: message)
    var booking = Booking(isWhole: isWhole)
    if unspent > 0 {
      used.takeBack(unspent, for: purpose)
      booking.add(.init(airtime: unspent, purpose: purpose, isTakenBack: true))
    }
    if let airtime {
      used.add(airtime, for: purpose)
      booking.add(.init(airtime: airtime, purpose: purpose))
    }
    return write(message, booking)
  }

  /// Writes a state, with all that the disk has refused of this message before.
  @discardableResult
  private func write(_ message: OutgoingMessage, _ booking: Booking = Booking()) -> Commit {
    let moment = synchronizer.now
    // Whoever reads events knows that it is held, and reads the end: rounds in between would be most of a journal.
    let isTold = !session.isInLaterRound(message.id)
    let before = unsaved[message.id]
    // An earlier state of the same transaction is written already, and is lost with it.
    var all = before?.commit.isDurable == false ? before?.booking ?? Booking() : Booking()
    all.append(booking)
    let news = before?.isRefused == true ? all : booking
    let commit = store.write { store throws(SQLiteError) in
      try store.updateOutgoing(message, at: moment, isWhole: news.isWhole, isTold: isTold)
      for use in news.uses {
        let purpose = use.purpose.rawValue
        if use.isTakenBack {
          try store.forgetAirtime(use.airtime, channel: message.channel)
          try store.takeBackAirtime(use.airtime, for: purpose)
        } else {
          try store.recordAirtime(use.airtime, channel: message.channel, at: store.elapsed(at: moment))
          try store.addAirtime(.init(milliseconds: use.airtime, packets: 1), for: purpose, at: moment)
        }
      }
    }
    unsaved.note(message, all, in: commit) { loop.begin { await self.keepStates() } }
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
        for message in unsaved.refused { write(message) }
      } else {
        unsaved.stored(commit)
      }
    }
    if unsaved.recovered() { log.notice("sending: states are stored again") }
  }
}
