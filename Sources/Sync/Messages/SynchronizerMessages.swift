// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

extension Synchronizer {
  /// Something waits in the radio's queue, or may wait.
  func messageWaiting() {
    guard connection.state == .up, held.isEmpty || isGathering else { return }
    perform(drain.messageWaiting())
  }

  private func perform(_ action: MessageDrain.Action) {
    switch action {
    case .none: break
    case .ask where ending != nil: ended(nil)
    case .ask: askForMessage()
    case .store(let message): arrived(message)
    case .drained where ending != nil, .failed where ending != nil: ended(nil)
    case .drained: finished()
    case .failed: failed("the radio does not hand over its messages")
    }
  }

  /// Whatever has become of the sync meanwhile, a message that comes is kept: the radio has forgotten it.
  private func askForMessage() {
    let attempt = generation
    let asked = loop.now
    let id = connection.submit(.syncNextMessage, .sync) { [weak self] outcome in
      guard let self else { return }
      if case .replied(.noMoreMessages) = outcome { self.queue.wasEmpty(askedAt: asked) }
      if case .failed(.timedOut) = outcome { self.counters.timeouts += 1 }
      if self.generation == attempt { return self.perform(self.drain.received(outcome)) }
      if case .replied(.message(let message)) = outcome { self.arrived(message) }
    }
    guard id == nil else { return }
    loop.later { [weak self] in
      guard let self, self.generation == attempt else { return }
      self.perform(self.drain.received(.failed(.linkLost)))
    }
  }

  /// The daemon ends: what the radio is handing over just now is stored first, nothing more is asked for.
  public func finish(within limit: Duration, _ done: @escaping () -> Void) {
    ending = done
    store.commit(everything: true)
    guard drain.isBusy || !held.isEmpty else { return ended(nil) }
    loop.schedule(after: limit) { [weak self] in self?.ended("the radio did not answer any more") }
  }

  private func ended(_ words: String?) {
    guard let done = ending else { return }
    ending = nil
    if let words, held.isEmpty { log.info("ending: \(words)") }
    if !held.isEmpty { log.error("ending with \(held.count) messages that the disk did not take: they are lost") }
    drain = MessageDrain()
    done()
  }

  /// A message on a slot that is empty for all we know: the radio is asked before it is judged.
  private func arrived(_ message: QueuedMessage) {
    guard let slot = message.slot, isEmpty(slot) else { return keep(message) }
    undecided += 1
    let id = connection.submit(.getChannel(slot: slot), .sync) { [weak self] outcome in
      guard let self else { return }
      self.undecided -= 1
      guard case .replied(.channelInfo(let channel)) = outcome else { return self.keep(message) }
      guard channel.isEmpty else {
        self.keep(channel)
        return self.keep(message)
      }
      // Traffic of misconfigured nodes under a key of zeros (companion.md § 9.6).
      self.counters.emptySlotMessages += 1
      self.perform(self.drain.committed())
    }
    guard id == nil else { return }
    undecided -= 1
    keep(message)
  }

  private func isEmpty(_ slot: UInt8) -> Bool {
    // `try?`: a store that cannot be read fails the write that follows, and the message is held.
    (try? store.channel(slot: slot)).flatMap { $0 }?.isEmpty ?? true
  }

  // MARK: Messages that the radio has forgotten and the disk does not have yet

  /// Keeps a message here until the disk has it; none is asked for meanwhile, so only what comes unasked adds up.
  private func keep(_ message: QueuedMessage) {
    // A predecessor's may be many at once.
    if held.count >= Self.maxGathered, store.gathersMessages { store.commit(everything: true) }
    guard held.count < Self.maxHeld else {
      return log.error("a message that came unasked was lost: \(held.count) wait for the disk already")
    }
    let message = HeldMessage(message: message, radio: store.radio)
    held.append(message)
    store(message)
  }

  private func store(_ message: HeldMessage) {
    let moment = now
    let wait = queue.wait(now: loop.now)
    var arrival: MessageArrival?
    store.write(
      when: .message,
      { store throws(SQLiteError) in
        arrival = try store.insert(message.message, at: moment, wait: wait, by: message.radio)
      }
    ) { [weak self] failure in
      guard let self else { return }
      if let failure { return self.holdOn(failure) }
      if let place = self.held.firstIndex(of: message) { self.held.remove(at: place) }
      self.count(arrival)
      if case .stored = arrival { self.onMessage(message.message) }
      self.fetchNext()
    }
    gather()
  }

  /// Where messages may wait for company, the next is asked for before this one is on disk: so many, and then it is.
  private func gather() {
    guard store.gathersMessages else { return }
    guard held.count < Self.maxGathered else { return loop.later { [store] in store.commit(everything: true) } }
    guard drain.isStoring else { return }
    let attempt = generation
    loop.later { [weak self] in
      guard let self, self.generation == attempt, self.drain.isStoring, !self.held.isEmpty else { return }
      self.perform(self.drain.committed())
    }
  }

  private static let maxGathered = 32

  /// Messages wait for company, and not because the disk refuses them.
  private var isGathering: Bool { store.gathersMessages && store.failure == nil && held.count < Self.maxGathered }

  /// All of them are on disk: ask for the next, or take up what the failure broke off.
  private func fetchNext() {
    guard held.isEmpty else { return }
    if drain.isBusy { return perform(drain.committed()) }
    if ending != nil { return ended(nil) }
    guard connection.state == .up else { return enter(.idle) }
    switch state {
    case .failed: resume()
    case .syncing(.messages, _, _): messageWaiting()
    default: break
    }
  }

  private func holdOn(_ failure: StoreError) {
    drain = MessageDrain()
    failed("a message cannot be stored, and none is taken from the radio meanwhile: \(failure)", failure.remedy)
    heldRetry?.cancel()
    heldRetry = loop.schedule(after: .seconds(2)) { [weak self] in
      guard let self else { return }
      for message in self.held { self.store(message) }
    }
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
    case .message(let message): keep(message)
    case .contact(let contact): keep(contact, heard: false)
    case .channelInfo(let channel): keep(channel)
    default: break
    }
  }
}

/// A message in hand, and the radio that handed it over: another may be attached before the disk takes it.
struct HeldMessage: Equatable {
  let message: QueuedMessage
  let radio: Int64
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
