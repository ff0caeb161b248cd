// SPDX-License-Identifier: MIT

import EventLoop

/// Packets to the broker.
extension MQTTClient {
  /// Waits for the broker's answer; `nil`: the connection ended first. `isFollowed`: more follows at once, then `flush` or `untilRoom`;
  /// both may be sent together.
  public func publish(_ message: MQTTMessage, isFollowed: Bool = false) -> Promise<MQTTAnswer?> {
    let answer = Promise<MQTTAnswer?>()
    publish(message, answer)
    if !isFollowed { flush() }
    return answer
  }

  /// With QoS 1; a refusal ends the connection. `isOthers`: what this client publishes there itself does not come back, which
  /// only version 5 can ask for.
  public func subscribe(_ topic: String, isOthers: Bool = false) {
    guard isUp else { return }
    let id = freshID()
    subscribing.insert(id)
    send(.subscribe(topic: topic, id: id, version, isOthers: isOthers))
    expectNext()
  }

  /// A packet identifier that is not in use.
  func freshID() -> UInt16 {
    repeat {
      lastID = lastID == .max ? 1 : lastID + 1
    } while (waiting[lastID] != nil || subscribing.contains(lastID))
      && waiting.count + subscribing.count < 65535
    return lastID
  }

  /// Waiting publications go first.
  private var hasRoom: Bool { waiting.count < window && queued.isEmpty }

  /// Returns when the broker accepts one more, or the connection has ended. Earlier publications are sent first.
  public func untilRoom() async throws(CancellationError) {
    while isUp, !hasRoom {
      flush()
      try await vacancy.wait()
    }
  }

  func publish(_ message: MQTTMessage, _ answer: Promise<MQTTAnswer?>) {
    guard isUp else { return answer.keep(nil) }
    // Exceeding the broker's receive maximum would end the connection: the rest waits.
    guard waiting.count < window else {
      guard queued.count < Self.maxQueued else { return answer.keep(MQTTAnswer(0x97)) }
      return queued.append((message, answer))
    }
    let id = freshID()
    var message = message
    if !retains { message.retain = false }
    let alias = message.recurs ? aliases.alias(of: message.topic) : nil
    let bytes = MQTTCommand.publish(message, id: id, isRepeated: false, version, alias: alias).encode()
    // The broker would end the connection because of it, again and again.
    if let maxBytes, bytes.count > maxBytes { return answer.keep(MQTTAnswer(0x95)) }
    if let alias { aliases.sent(alias, of: message.topic) }
    waiting[id] = answer
    gather(bytes)
    if waiting.count == 1 { expect("no acknowledgement") }
  }
}
