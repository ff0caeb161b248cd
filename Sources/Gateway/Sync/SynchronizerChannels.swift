// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

/// The slots that the radio has told over this link. One that has no answer may be another channel by now: somebody else has had the radio, or
/// its storage is an older one.
struct ToldSlots {
  /// Before they were asked for, what the store has counts.
  var wereAskedFor = false
  var told: Set<UInt8> = []
}

extension Synchronizer {
  /// The radio did not say what is in the slot: what comes on it is of no known channel, and nothing is sent there.
  public func doubts(_ slot: UInt8) -> Bool { slots.wereAskedFor && !slots.told.contains(slot) }

  /// The radio has nothing in a slot where the store has a channel.
  public func radioDidNotKnowChannel() {
    plan.needs(.channels, now: true)
    woken.resume()
  }

  /// A slot is asked for so many times.
  private static let maxTries = 2
  /// Where more slots than that are not told, the radio is not well.
  private static let maxLeft = 2

  /// Every slot that the radio has: empty ones lie between used ones. Radios too old to say how many are asked until
  /// they refuse.
  ///
  /// A slot without an answer is asked for twice, and then left: one slot is not a reason to start over. It is asked for again later, and is in
  /// doubt until then.
  func syncChannels() async throws {
    defer { slots.wereAskedFor = true }
    let count = min(connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 256, 256)
    let isRetry = plan.isRetry(.channels)
    var (end, left) = (count, [Int]())
    for slot in 0..<count where !isRetry || !slots.told.contains(UInt8(slot)) {
      enter(.syncing(.channels, current: slot, total: count < 256 ? count : 0))
      let outcome = try await askForChannel(UInt8(slot))
      if case .replied(.channelInfo) = outcome { continue }
      // One that refuses ends them, unless one behind it was told.
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

  /// Stores a channel that was set from here.
  public func changed(_ channel: Channel) async throws(StoreError) {
    slots.told.insert(channel.slot)
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in try self.keep(channel, in: store) }
      // Whoever exchanges channels looks which there are.
      observer?.syncChanged()
    } catch {
      // The radio has it: a later sync updates the store.
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
