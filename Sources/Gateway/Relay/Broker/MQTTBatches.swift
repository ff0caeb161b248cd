// SPDX-License-Identifier: MIT

import Deflate
import EventLoop
import JSON
import MQTT
import Store

/// Publishes events to a broker. Several batches may be in flight: each is published after all of the one before, and
/// gets its verdict after it.
extension MQTTCarrier {
  /// A batch's place in the order.
  final class Turn {
    let batch: Batch
    /// So many of its first events are acknowledged.
    var acknowledged = 0
    /// The whole batch is published, or never will be.
    let isPublished = Promise<Void>()
    let isAnswered = Promise<Void>()

    init(_ batch: Batch) { self.batch = batch }
  }

  var mayTakeInPart: Bool { true }

  func taken(of batch: Batch) -> Int64? {
    let first = batch.events.first?.seq
    let same = turns.first { $0.batch.lane == batch.lane && $0.batch.events.first?.seq == first }
    guard let turn = same, turn.acknowledged > 0 else { return nil }
    return turn.batch.events[turn.acknowledged - 1].seq
  }

  func carry(_ batch: Batch) async -> Verdict {
    let (before, turn) = (lastTurn, Turn(batch))
    lastTurn = turn
    turns.append(turn)
    defer {
      turns.removeAll { $0 === turn }
      turn.isPublished.keep(())
      turn.isAnswered.keep(())
      if lastTurn === turn { lastTurn = nil }
    }
    do throws(CancellationError) {
      try await before?.isPublished.value()
      // A cancelled task gets a promise's value, too.
      guard !Task.isCancelled else { throw CancellationError() }
      let verdict = try await publish(batch, turn)
      try await before?.isAnswered.value()
      return verdict
    } catch {
      return .retry(reason: "given up", after: nil)
    }
  }

  /// A published message, and the index of its event in the batch.
  private typealias Flight = (place: Int, answer: Promise<MQTTAnswer?>)

  private func publish(_ batch: Batch, _ turn: Turn) async throws(CancellationError) -> Verdict {
    guard client.isUp else {
      return client.end.map(verdict) ?? .retry(reason: "the broker is not connected", after: nil)
    }
    var (flights, delivery) = ([Flight](), Delivery())
    for place in settings.isCompact ? 0..<1 : batch.events.indices where delivery.isGoingOn {
      // The present radio's packets go with a token of its own, over the next connection.
      guard !hasFormerToken else { return .retry(reason: "the radio was replaced: it has to sign a token", after: nil) }
      guard let messages = messages(of: batch, place) else {
        return .retry(reason: "no memory for compressing", after: nil)
      }
      for message in messages where homeAssistant?.isDescribed(message) != true {
        try await client.untilRoom()
        while let flight = flights.first, flight.answer.isKept {
          try await delivery.take(flights.removeFirst())
          if delivery.isGoingOn { turn.acknowledged = flights.first?.place ?? place }
        }
        guard delivery.isGoingOn else { break }
        flights.append((place, client.publish(message, isFollowed: true)))
        homeAssistant?.published(message)
      }
    }
    client.flush()
    // Messages that are too large for the broker have their answers already. After a refusal, the next batch must wait:
    // it must not overtake the rest of this one.
    for flight in flights where flight.answer.isKept { try await delivery.take(flight) }
    if delivery.isGoingOn { turn.isPublished.keep(()) }
    for (index, flight) in flights.enumerated() {
      try await delivery.take(flight)
      if delivery.isGoingOn, index + 1 < flights.count { turn.acknowledged = flights[index + 1].place }
    }
    if delivery.isGoingOn { turn.acknowledged = batch.events.count }
    return delivery.verdict(of: batch, client.end.map(verdict))
  }

  /// The broker's answers about a batch.
  private struct Delivery {
    /// The first event that the broker refused, and its answer; the first event without an answer.
    var refusal: (event: Int, answer: MQTTAnswer)?
    var lost: Int?

    var isGoingOn: Bool { refusal == nil && lost == nil }

    mutating func take(_ flight: Flight) async throws(CancellationError) {
      guard let answer = try await flight.answer.value() else { return lost = min(lost ?? .max, flight.place) }
      if !answer.isTaken, flight.place < refusal?.event ?? .max { refusal = (flight.place, answer) }
    }

    /// First acknowledges the events before the first failure. The next batch repeats the others.
    func verdict(of batch: Batch, _ failure: Verdict?) -> Verdict {
      let taken = min(refusal?.event ?? .max, lost ?? .max)
      if taken == .max { return .acknowledged(through: batch.last) }
      guard taken == 0 else { return .acknowledged(through: batch.events[taken - 1].seq) }
      guard let answer = refusal?.answer, lost == nil else {
        if case .retry(let words, _)? = failure { return .hungUp(reason: words) }
        return failure ?? .hungUp(reason: "the connection ended")
      }
      switch answer.code {
      case 0x87: return .stopped(reason: "the broker does not allow publishing there (\(answer.message))")
      // The reason may be the message, or not.
      case 0x80, 0x83: return .failing(reason: "the broker cannot accept it now (\(answer.message))")
      // The broker may accept these later; for 0x91, the next attempt has another packet identifier.
      case 0x89, 0x91, 0x93, 0x96, 0x97:
        return .retry(reason: "the broker cannot accept it now (\(answer.message))", after: nil)
      // The topic, the payload or its size: a repetition would be refused again.
      default: return .refused(status: Int(answer.code), reason: "the broker refuses it (\(answer.message))")
      }
    }
  }

  // MARK: Content

  /// The messages for the event at that index, or for all events in the compact form. `nil`: out of memory.
  private func messages(of batch: Batch, _ place: Int) -> [MQTTMessage]? {
    guard settings.isCompact else {
      let event = batch.events[place]
      if let observer { return observer.messages(for: event, store) }
      return (homeAssistant?.messages(for: event, store) ?? []) + [message(event)]
    }
    guard let compact = compact(batch) else { return nil }
    return batch.events.flatMap { homeAssistant?.messages(for: $0, store) ?? [] } + [compact]
  }

  private func message(_ event: JournalEvent) -> MQTTMessage {
    let kind = TopicTemplate.word(of: event.kind)
    let topic = apart(settings.topic.render(kind: kind, gateway: store.gatewayID, body: event.json ?? .null))
    let payload =
      settings.template?.render(event, gateway: store.gatewayID)
      ?? EventEnvelope.encode(event, of: store)
    return recurring(MQTTMessage(topic: topic, payload: payload))
  }

  /// The first byte of a compact payload; JSON never begins with it.
  static let compactMark: UInt8 = 1

  private func compact(_ batch: Batch) -> MQTTMessage? {
    let json = batch.encode(of: store, naming: true)
    guard let packed = Deflater.whole(json, dictionary: LinkDictionary.fromGateway) else { return nil }
    let lane = JSONValue.object([("lane", .string(batch.lane?.rawValue ?? "all"))])
    let topic = apart(settings.topic.render(kind: "compact", gateway: store.gatewayID, body: lane))
    return recurring(MQTTMessage(topic: topic, payload: [Self.compactMark] + packed))
  }

  private func recurring(_ message: MQTTMessage) -> MQTTMessage {
    var message = message
    message.recurs = true
    return message
  }
}
