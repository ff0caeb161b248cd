// SPDX-License-Identifier: MIT

/// Handles the broker's packets on an established connection.
extension MQTTClient {
  func take(_ event: MQTTEvent) throws(MQTTError) {
    switch event {
    case .connected: throw .protocolError("a second greeting")
    case .disconnected(let code, let reason, let server): fail(Self.ended(code, reason, server))
    case .acknowledged(let id, let code, let reason): try acknowledged(id, MQTTAnswer(code, reason))
    case .message(let message, let id, let isRepeated): try came(message, id, isRepeated)
    case .pong:
      ponged()
      expectNext()
    case .subscribed(let id, let code, let reason):
      guard subscribing.remove(id) != nil else { throw .protocolError("an answer without a subscription") }
      answers &+= 1
      expectNext()
      if code == 0, needsQuality1 {
        fail(.refused("the broker grants the subscription QoS 0 only, which repeats nothing"))
      }
      guard code >= 0x80 else { return }
      fail(.refused("the broker refuses the subscription (\(MQTTReason.words(code, reason)))"))
    }
  }

  func acknowledged(_ id: UInt16, _ answer: MQTTAnswer) throws(MQTTError) {
    guard let promise = waiting.removeValue(forKey: id) else {
      throw .protocolError("an acknowledgement of a packet that is not in flight")
    }
    answers &+= 1
    expectNext()
    promise.keep(answer)
    if !queued.isEmpty {
      let (message, answer) = queued.removeFirst()
      publish(message, answer)
      flush()
    }
    vacancy.resume()
  }

  func came(_ message: MQTTMessage, _ id: UInt16?, _ isRepeated: Bool) throws(MQTTError) {
    if let id {
      guard !incoming.contains(id) else {
        // Old brokers redeliver unacknowledged messages on the same connection; this one is in progress.
        guard isRepeated else { throw .init(code: 0x91, description: "two messages with one identifier") }
        return
      }
      guard incoming.count < maxReceived else {
        throw .init(code: 0x93, description: "more messages in flight than allowed")
      }
      incoming.insert(id)
    }
    let connection = stream
    onMessage(message) { [weak self] in
      // On another connection the acknowledgement would apply to another message.
      guard let self, let id, self.stream === connection, self.incoming.remove(id) != nil else { return }
      self.send(.acknowledge(id: id))
    }
  }

  // MARK: What is due

  /// What is due now that something was answered.
  func expectNext() {
    if !waiting.isEmpty { return expect("no acknowledgement") }
    if !subscribing.isEmpty { return expect("no answer to the subscription") }
    expect(pingedAfter == nil ? nil : "no answer to a ping")
  }

  /// `nil`: no answer is due.
  func expect(_ words: String?) {
    let isNew = (expected == nil) != (words == nil)
    expected = words
    if isNew { expectation.resume() }
  }
}
