// SPDX-License-Identifier: MIT

import EventLoop

/// What goes to the broker.
extension MQTTClient {
  /// The broker's answer; `nil`: the connection has ended before it came. `isFollowed`: more comes at once, then `flush` or `untilRoom`;
  /// it may go out together with that.
  public func publish(_ message: MQTTMessage, isFollowed: Bool = false) -> Promise<MQTTAnswer?> {
    let answer = Promise<MQTTAnswer?>()
    publish(message, answer)
    if !isFollowed { flush() }
    return answer
  }

  /// With QoS 1; a refusal ends the connection.
  public func subscribe(_ topic: String) {
    guard isUp else { return }
    let id = freshID()
    subscribing.insert(id)
    send(.subscribe(topic: topic, id: id, version))
  }

  /// What waits for its turn goes first.
  private var hasRoom: Bool { waiting.count < window && queued.isEmpty }

  /// Returns when the broker takes one more at once, or the connection has ended. What was published before goes out first.
  public func untilRoom() async throws(CancellationError) {
    while isUp, !hasRoom {
      flush()
      try await vacancy.wait()
    }
  }

  func publish(_ message: MQTTMessage, _ answer: Promise<MQTTAnswer?>) {
    guard isUp else { return answer.keep(nil) }
    // More at once than the broker takes would end the connection: the rest waits for its turn.
    guard waiting.count < receiveMaximum else {
      guard queued.count < Self.maxQueued else { return answer.keep(MQTTAnswer(0x97)) }
      return queued.append((message, answer))
    }
    let id = freshID()
    var message = message
    if !retains { message.retain = false }
    let alias = message.recurs ? aliases.alias(of: message.topic) : nil
    let bytes = MQTTCommand.publish(message, id: id, isRepeated: false, version, alias: alias).encode()
    // A broker would end the connection over it, again and again.
    if let maxBytes, bytes.count > maxBytes { return answer.keep(MQTTAnswer(0x95)) }
    if let alias { aliases.sent(alias, of: message.topic) }
    waiting[id] = answer
    gather(bytes)
    if waiting.count == 1 { expect("no acknowledgement") }
  }
}
