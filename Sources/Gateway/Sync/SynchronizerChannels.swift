// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

/// The slots that the radio has reported over this link. An unreported slot may have another channel by now: another
/// program used the radio, or its flash is older.
struct ToldSlots {
  /// Until the channels were requested, the stored ones count.
  var wereAskedFor = false
  var told: Set<UInt8> = []
}

extension Synchronizer {
  /// The radio did not report this slot: its messages have no known channel, and the gateway sends nothing there.
  public func doubts(_ slot: UInt8) -> Bool { slots.wereAskedFor && !slots.told.contains(slot) }

  /// The radio reports an empty slot where the store has a channel.
  public func radioDidNotKnowChannel() {
    plan.needs(.channels, now: true)
    woken.resume()
  }

  /// Requests for one slot.
  private static let maxTries = 2
  /// If more slots than this have no answer, the part fails at once.
  private static let maxLeft = 2

  /// Requests every slot of the radio, because empty ones lie between used ones. Old radios that do not report their
  /// number of slots are asked until they refuse.
  ///
  /// A slot without an answer is requested twice and then skipped: one slot is no reason to start over. It stays in
  /// doubt until a retry succeeds.
  func syncChannels() async throws {
    defer { slots.wereAskedFor = true }
    let count = min(connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 256, 256)
    let isRetry = plan.isRetry(.channels)
    var (end, left) = (count, [Int]())
    for slot in 0..<count where !isRetry || !slots.told.contains(UInt8(slot)) {
      enter(.syncing(.channels, current: slot, total: count < 256 ? count : 0))
      let outcome = try await askForChannel(UInt8(slot))
      if case .replied(.channelInfo) = outcome { continue }
      // A refused slot is the end, unless the radio has reported a later one.
      if case .failed(.refused) = outcome, slots.told.allSatisfy({ $0 < slot }) {
        end = slot
        break
      }
      guard case .failed(.timedOut) = outcome, left.count < Self.maxLeft else {
        throw SyncFailure("channel \(slot): \(Self.words(outcome))")
      }
      left.append(slot)
    }
    try await store.save { [end] store throws(SQLiteError) in try store.forgetChannels(from: end) }
    try Task.checkCancellation()
    if !left.isEmpty { throw SyncFailure("channel \(left.map { "\($0)" }.joined(separator: ", ")): no answer") }
  }

  private func askForChannel(_ slot: UInt8) async throws(CancellationError) -> RadioSession.Outcome {
    var outcome = try await ask(.getChannel(slot: slot))
    for _ in 1..<Self.maxTries where outcome == .failed(.timedOut) { outcome = try await ask(.getChannel(slot: slot)) }
    return outcome
  }

  /// Stores a channel that the gateway has set in the radio.
  public func changed(_ channel: Channel) async throws(StoreError) {
    slots.told.insert(channel.slot)
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in try self.keep(channel, in: store) }
      // The exchange of channel messages follows the list of channels.
      observer?.syncChanged()
    } catch {
      // The radio has the channel: a later sync updates the store.
      failed(SyncFailure(error))
      throw error
    }
  }

  private func keep(_ channel: Channel, in store: Store) throws(SQLiteError) {
    guard try store.setChannel(channel), !channel.isEmpty else { return }
    _ = try store.append(.channel, at: now, body: EventBody.channel(channel))
  }

  func keep(_ channel: Channel) {
    slots.told.insert(channel.slot)
    write { store throws(SQLiteError) in try self.keep(channel, in: store) }
  }
}
