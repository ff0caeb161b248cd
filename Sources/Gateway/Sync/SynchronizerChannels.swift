// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

extension Synchronizer {
  /// A slot is asked for so many times.
  private static let maxTries = 2
  /// Where more slots than that are not told, the radio is not well.
  private static let maxLeft = 2

  /// Every slot that the radio has: empty ones lie between used ones. Radios too old to say how many are asked until
  /// they refuse.
  ///
  /// A slot without an answer is asked for again, and then left as it was known: one slot is not a reason to start over.
  func syncChannels() async throws {
    let slots = connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 256
    var (slot, left) = (0, 0)
    while true {
      enter(.syncing(.channels, current: slot, total: slots < 256 ? slots : 0))
      guard slot < min(slots, 256) else { break }
      let outcome = try await askForChannel(UInt8(slot))
      if case .failed(.refused) = outcome { break }
      if case .failed(.timedOut) = outcome, left < Self.maxLeft {
        log.warning("channel \(slot): \(Self.words(outcome)); continuing with the next")
        left += 1
      } else if case .replied(.channelInfo) = outcome {
      } else {
        throw SyncFailure("channel \(slot): \(Self.words(outcome))")
      }
      slot += 1
    }
    let end = slot
    try await store.save { store throws(SQLiteError) in try store.forgetChannels(from: end) }
    try Task.checkCancellation()
  }

  private func askForChannel(_ slot: UInt8) async throws(CancellationError) -> RadioSession.Outcome {
    var outcome = try await ask(.getChannel(slot: slot))
    for _ in 1..<Self.maxTries where outcome == .failed(.timedOut) { outcome = try await ask(.getChannel(slot: slot)) }
    return outcome
  }

  /// Keeps what a slot was set to from here.
  public func changed(_ channel: Channel) async throws(StoreError) {
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in try self.keep(channel, in: store) }
      // Whoever exchanges channels looks which there are.
      observer?.syncChanged()
    } catch {
      // The radio has it: a sync, later, says so to the store.
      failed(SyncFailure(error))
      throw error
    }
  }

  private func keep(_ channel: Channel, in store: Store) throws(SQLiteError) {
    guard try store.setChannel(channel), !channel.isEmpty else { return }
    _ = try store.append(.channel, at: now, body: EventBody.channel(channel))
  }

  func keep(_ channel: Channel) {
    write { store throws(SQLiteError) in try self.keep(channel, in: store) }
  }
}
