// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

extension Synchronizer {
  /// Something waits in the radio's queue, or may wait.
  func messageWaiting() {
    guard held == nil, connection.state == .up else { return }
    perform(drain.messageWaiting())
  }

  private func perform(_ action: MessageDrain.Action) {
    switch action {
    case .none: break
    case .ask where ending != nil: ended(nil)
    case .ask:
      ask(.syncNextMessage) { [weak self] outcome in
        guard let self else { return }
        self.perform(self.drain.received(outcome))
      }
    case .store(let message): arrived(message)
    case .drained where ending != nil, .failed where ending != nil: ended(nil)
    case .drained: finished()
    case .failed: failed("the radio does not hand over its messages")
    }
  }

  /// The daemon ends: what the radio is handing over just now is stored first, nothing more is asked for.
  public func finish(within limit: Duration, _ done: @escaping () -> Void) {
    ending = done
    guard drain.isBusy else { return ended(nil) }
    loop.schedule(after: limit) { [weak self] in self?.ended("the radio did not answer any more") }
  }

  private func ended(_ words: String?) {
    guard let done = ending else { return }
    ending = nil
    if let words { log.info("ending: \(words)") }
    drain = MessageDrain()
    done()
  }

  /// A message on a slot that is empty for all we know: the radio is asked before it is judged.
  private func arrived(_ message: QueuedMessage) {
    guard let slot = message.slot, isEmpty(slot) else { return keep(message) }
    held = message
    ask(.getChannel(slot: slot)) { [weak self] outcome in
      guard let self, self.held == message else { return }
      guard case .replied(.channelInfo(let channel)) = outcome else { return self.keep(message) }
      guard channel.isEmpty else { return self.keep(channel) { self.keep(message) } }
      // Traffic of misconfigured nodes under a key of zeros (companion.md § 9.6).
      self.held = nil
      self.counters.emptySlotMessages += 1
      self.perform(self.drain.committed())
    }
  }

  private func isEmpty(_ slot: UInt8) -> Bool {
    // `try?`: a store that cannot be read fails the write that follows, and the message is held.
    (try? store.channel(slot: slot)).flatMap { $0 }?.isEmpty ?? true
  }

  /// The radio has forgotten the message: it is kept here until the disk has it, and none is asked for meanwhile.
  func keep(_ message: QueuedMessage) {
    held = message
    let moment = now
    var arrival: MessageArrival?
    store.write({ store throws(SQLiteError) in arrival = try store.insert(message, at: moment) }) {
      [weak self] failure in
      guard let self else { return }
      if let failure {
        self.log.error("a message cannot be stored: \(failure). \(failure.remedy)")
        return self.holdOn(failure)
      }
      self.held = nil
      self.count(arrival)
      self.perform(self.drain.committed())
    }
  }

  private func holdOn(_ failure: StoreError) {
    drain = MessageDrain()
    failed("\(failure)")
  }

  private func count(_ arrival: MessageArrival?) {
    switch arrival {
    case .stored: counters.messagesStored += 1
    case .duplicate: counters.duplicates += 1
    case nil: break
    }
    if case .syncing(.messages, let current, _) = state {
      enter(.syncing(.messages, current: current + 1, total: 0))
    }
  }

  /// Replies that nobody here asked for, of another client or late: content all the same (companion.md § 2.2).
  func receivedUnasked(_ reply: Reply) {
    counters.unaskedReplies += 1
    switch reply {
    case .message(let message):
      // Not part of the drain: stored on its own. If that fails the message is lost, and said so.
      let moment = now
      store.write({ store throws(SQLiteError) in _ = try store.insert(message, at: moment) }) { [weak self] failure in
        if let failure { self?.log.error("a message that came unasked was lost: \(failure)") }
      }
    case .contact(let contact): keep(contact, heard: false)
    case .channelInfo(let channel): keep(channel)
    default: break
    }
  }
}

extension QueuedMessage {
  /// The channel slot it came on; `nil` for direct messages.
  var slot: UInt8? {
    switch self {
    case .contact: nil
    case .channel(let message): message.slot
    case .datagram(let datagram): datagram.slot
    }
  }
}
