// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

extension Synchronizer {
  /// A slot is asked for so many times more.
  private static let maxTries = 1
  /// Where more slots than that are not told, the radio is not well.
  private static let maxLeft = 2

  /// Every slot that the radio has: empty ones lie between used ones. Radios too old to say how many are asked until
  /// they refuse.
  ///
  /// A slot that is not told is asked for again, and then left as it was known: one of them is no reason to begin anew.
  func syncChannels(from slot: Int, tries: Int = 0, left: Int = 0) {
    let slots = connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 256
    enter(.syncing(.channels, current: slot, total: slots < 256 ? slots : 0))
    guard slot < min(slots, 256) else { return finishChannels(at: slot) }
    ask(.getChannel(slot: UInt8(slot))) { [weak self] outcome in
      guard let self else { return }
      switch outcome {
      case .replied(.channelInfo(let channel)):
        self.keep(channel) { [weak self] in self?.syncChannels(from: slot + 1, left: left) }
      case .failed(.refused): self.finishChannels(at: slot)
      case .failed(.timedOut) where tries < Self.maxTries: self.syncChannels(from: slot, tries: tries + 1, left: left)
      case .failed(.timedOut) where left < Self.maxLeft:
        self.log.warning("channel \(slot): \(Self.words(outcome)); going on with the next")
        self.syncChannels(from: slot + 1, left: left + 1)
      default: self.failed("channel \(slot): \(Self.words(outcome))")
      }
    }
  }

  /// Keeps what a slot was set to from here.
  public func changed(_ channel: Channel) async throws(StoreError) {
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in try self.keep(channel, in: store) }
    } catch {
      // The radio has it: a sync, later, says so to the store.
      failed("\(error)")
      throw error
    }
  }

  private func keep(_ channel: Channel, in store: Store) throws(SQLiteError) {
    guard try store.setChannel(channel), !channel.isEmpty else { return }
    _ = try store.append(.channel, at: now, body: EventBody.channel(channel))
  }

  func keep(_ channel: Channel, _ done: @escaping () -> Void = {}) {
    write({ store throws(SQLiteError) in try self.keep(channel, in: store) }, done)
  }

  private func finishChannels(at slot: Int) {
    write({ store throws(SQLiteError) in try store.forgetChannels(from: slot) }) { [weak self] in
      guard let self else { return }
      self.enter(.syncing(.messages, current: 0, total: 0))
      self.messageWaiting()
    }
  }
}
