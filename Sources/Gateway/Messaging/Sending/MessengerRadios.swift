// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Store
import Sync
import Timing

/// A message belongs to one radio. While another radio is attached the message is held, until its radio is back, or an operator cancels it or lets
/// the attached radio send it.
extension Messenger {
  /// Another radio is attached. Messages of the last one stay on disk as they are.
  public func radioReplaced() {
    isReady = false
    underWay.forget()
    session.forgetMessages()
    echoes = ChannelEchoes()
    resuming?.cancel()
    resuming = nil
    // Rooms have had nothing of this one's key from another radio.
    recallRooms()
    if !takeUp() { resuming = loop.begin { await self.takeUpLater() } }
  }

  /// Takes up the messages of the attached radio. Returns false if they cannot be read.
  private func takeUp() -> Bool {
    do {
      try resume()
      let held = try store.heldCount()
      if held > 0 {
        log.notice("messages held for another radio: \(held); see meshpost sent")
      }
      return true
    } catch {
      if resuming == nil { log.error("waiting messages cannot be read: \(error). Retrying") }
      return false
    }
  }

  /// Ends when they were read.
  private func takeUpLater() async {
    repeat {
      // Cancelled: there is another radio or database, or the daemon ends.
      do { try await loop.sleep(for: Self.retryInterval) } catch { return }
    } while !takeUp()
  }

  /// Whether the attached radio is known, and is to send the message.
  func isOfThisRadio(_ message: OutgoingMessage) -> Bool {
    message.radio == store.radio && synchronizer.isAttached
  }

  func isHeld(_ message: OutgoingMessage) -> Bool { message.radio != store.radio && !message.hasEnded }

  /// Says that a message is held, and for which radio.
  func held(_ message: OutgoingMessage) -> String {
    let radio = store.radio(message.radio)
    return
      "\(message.key) is held for another radio (\(radio.map { "\($0.name.string), \($0.mark)" } ?? "unknown"))"
  }

  // MARK: Decisions of operators

  /// The result for several messages: those that were changed, and the refusals of the others.
  public struct Outcome {
    public var done: [OutgoingMessage] = []
    public var refused: [(key: String, refusal: Refusal)] = []
  }

  /// Lets the attached radio send the message, as if it were new.
  public func adopt(key: String) async throws(Refusal) -> OutgoingMessage {
    let outcome = try await adopt([key])
    if let refused = outcome.refused.first { throw refused.refusal }
    guard let message = outcome.done.first else { throw .notFound(.outgoing(key)) }
    return message
  }

  /// Adopts all messages of other radios, in one transaction.
  public func adoptHeld() async throws(Refusal) -> Outcome { try await adopt(heldKeys()) }

  private func adopt(_ keys: [String]) async throws(Refusal) -> Outcome {
    var outcome = Outcome()
    for key in keys {
      do throws(Refusal) {
        let message = try adopted(find(key))
        try reserve(1)
        outcome.done.append(message)
      } catch {
        outcome.refused.append((key, error))
      }
    }
    guard !outcome.done.isEmpty else { return outcome }
    defer { arriving -= outcome.done.count }
    try await Refusal.saving(in: store) { [messages = outcome.done] store throws(SQLiteError) in
      for message in messages { try store.adoptOutgoing(message) }
    }
    for message in outcome.done {
      unsaved[message.id] = nil
      if message.radio == store.radio { enqueue(message) }
    }
    return outcome
  }

  /// Cancels all messages of other radios.
  public func cancelHeld() throws(Refusal) -> Outcome {
    var outcome = Outcome()
    for key in try heldKeys() {
      do throws(Refusal) {
        outcome.done.append(try cancel(key: key))
      } catch {
        outcome.refused.append((key, error))
      }
    }
    return outcome
  }

  private func adopted(_ message: OutgoingMessage) throws(Refusal) -> OutgoingMessage {
    guard message.radio != store.radio else { throw .invalid("\(message.key) already belongs to this radio") }
    guard !message.hasEnded else { throw .invalid("\(message.key) has ended: \(message.state.rawValue)") }
    if let refusal = try unreachable(message) { throw refusal }
    // This radio's name may leave less room than the name for which the text was measured.
    let limit = channelLimit
    guard message.kind != .channel || message.text.bytes.count <= limit else {
      throw .tooLong(over: message.text.bytes.count - limit, limit: limit)
    }
    var fresh = message
    (fresh.radio, fresh.state, fresh.reason) = (store.radio, .pending, nil)
    (fresh.senderTime, fresh.attempts) = (nil, OutgoingMessage.Attempts())
    fresh.created = synchronizer.now
    fresh.createdElapsed = store.elapsed(at: fresh.created)
    return fresh
  }

  /// Why the attached radio cannot send the message; `nil`: it can.
  private func unreachable(_ message: OutgoingMessage) throws(Refusal) -> Refusal? {
    if let key = message.recipient {
      let stored = try Refusal.translating { () throws(StoreError) in try store.contact(key) }
      guard let stored else { return .notOnRadio(key.hex) }
      return try refusal(of: stored)
    }
    let digest = message.channel ?? ""
    let name = try Refusal.translating { () throws(StoreError) in try store.nameOfChannel(digest) }
    return name == nil ? .notFound(.channel(digest)) : nil
  }

  func heldKeys() throws(Refusal) -> [String] {
    try Refusal.translating { () throws(StoreError) in try store.heldOutgoing().map(\.key) }
  }

  /// Ends a held message: no radio sends it. A channel message that its radio has transmitted, or perhaps, ends as sent, as it does with its own radio: if
  /// it were reported as failed, its sender would send it again.
  @discardableResult
  func end(held message: OutgoingMessage, _ reason: DeliveryFailure) -> OutgoingMessage {
    var message = message
    if message.kind == .channel, Self.mayBeOnAir(message) {
      (message.state, message.attempts.accepted) = (.sent, max(1, message.attempts.accepted))
    } else {
      counts.failed += 1
      (message.state, message.reason) = (.failed, reason.rawValue)
    }
    end(&message)
    save(message)
    return message
  }

  /// Whether its radio has transmitted it, or perhaps: then nobody knows whether it has arrived.
  private static func mayBeOnAir(_ message: OutgoingMessage) -> Bool {
    message.state == .sending || message.attempts.accepted > 0
  }

  /// Ends held messages that have expired, and notes the next expiry.
  func expireHeld() {
    var (over, next): ([OutgoingMessage], MonotonicTime) = ([], .never)
    do {
      for message in try store.heldOutgoing() {
        let time = lastTime(for: message)
        if time <= loop.now { over.append(row(message.id) ?? message) } else { next = min(next, time) }
      }
    } catch {
      log.error("held messages cannot be read: \(error)")
    }
    for message in over where !message.hasEnded {
      end(held: message, Self.mayBeOnAir(message) ? .noAcknowledgement : .expired)
    }
    nextHeldEnd = next < .never ? next + .seconds(1) : nil
    arm()
  }
}
