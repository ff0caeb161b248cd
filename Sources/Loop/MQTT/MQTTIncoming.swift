// SPDX-License-Identifier: MIT

import EventLoop
import Sockets

/// Handles the broker's packets on an established connection.
extension MQTTClient {
  /// No message is taken while more output than this waits: a broker that reads no answers gets no further commands in.
  static let maxUnsent = 256 * 1024

  func isFull(_ stream: any ByteStream) -> Bool {
    heldBytes >= maxHeldBytes || stream.pendingBytes > Self.maxUnsent
  }

  /// Mosquitto 2.0.11 sends more than the receive maximum: what is too much stays with the kernel, which holds the broker back. False: there
  /// was none, and there may be now.
  func hasRoom(_ stream: any ByteStream) async throws(StreamEnd) -> Bool {
    guard isFull(stream), self.stream === stream else { return true }
    guard stream.pendingBytes <= Self.maxUnsent else {
      try await stream.drained()
      return false
    }
    do { try await released.wait() } catch { throw .cancelled }
    return false
  }

  func take(_ event: MQTTEvent) throws(MQTTError) {
    switch event {
    case .connected: throw .protocolError("a second greeting")
    case .disconnected(let code, let reason, let server): fail(Self.ended(code, reason, server))
    case .acknowledged(let id, let code, let reason): acknowledged(id, MQTTAnswer(code, reason))
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

  func acknowledged(_ id: UInt16, _ answer: MQTTAnswer) {
    // Some brokers acknowledge twice, and a second time says nothing.
    guard let promise = waiting.removeValue(forKey: id) else { return }
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
      incoming.insert(id)
    }
    let (connection, hold) = (stream, Hold(message, of: self))
    onMessage(message) { [weak self] in
      // On another connection the acknowledgement would apply to another message.
      guard let self, let id, self.stream === connection, self.incoming.remove(id) != nil else { return }
      withExtendedLifetime(hold) { self.send(.acknowledge(id: id)) }
    }
  }

  /// A message counts until the owner drops the closure that acknowledges it.
  private final class Hold {
    /// About what a task takes that handles a message.
    private static let overhead = 1024

    private weak var client: MQTTClient?
    private let bytes: Int

    init(_ message: MQTTMessage, of client: MQTTClient) {
      self.client = client
      bytes = message.payload.count + message.topic.utf8.count + (message.correlation?.count ?? 0) + Self.overhead
      client.heldBytes += bytes
    }

    deinit {
      client?.heldBytes -= bytes
      client?.released.resume()
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
