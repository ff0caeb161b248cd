// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

extension Synchronizer {
  /// Every slot that the radio has: empty ones lie between used ones. Radios too old to say how many are asked until
  /// they refuse.
  func syncChannels(from slot: Int) {
    let slots = connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 256
    enter(.syncing(.channels, current: slot, total: slots < 256 ? slots : 0))
    guard slot < min(slots, 256) else { return finishChannels(at: slot) }
    ask(.getChannel(slot: UInt8(slot))) { [weak self] outcome in
      guard let self else { return }
      switch outcome {
      case .replied(.channelInfo(let channel)):
        self.keep(channel) { [weak self] in self?.syncChannels(from: slot + 1) }
      case .failed(.refused): self.finishChannels(at: slot)
      default: self.failed("channel \(slot): \(Self.words(outcome))")
      }
    }
  }

  /// Keeps what a slot was set to from here.
  public func changed(_ channel: Channel, _ done: @escaping () -> Void) { keep(channel, done) }

  func keep(_ channel: Channel, _ done: @escaping () -> Void = {}) {
    let moment = now
    write(
      { store throws(SQLiteError) in
        guard try store.setChannel(channel), !channel.isEmpty else { return }
        _ = try store.append(.channel, at: moment, body: EventBody.channel(channel))
      }, done)
  }

  private func finishChannels(at slot: Int) {
    write({ store throws(SQLiteError) in try store.forgetChannels(from: slot) }) { [weak self] in
      guard let self else { return }
      self.enter(.syncing(.messages, current: 0, total: 0))
      self.messageWaiting()
    }
  }
}
