// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import MQTT
import Store
import Streams
import Timing

/// Publishes events to an MQTT broker with QoS 1. An event is taken when the broker's PUBACK has come, and the cursor moves
/// on only past those before which all are. Source: docs/mqtt.md.
final class MQTTCarrier: Carrier {
  struct Settings: Sendable {
    var url: String
    var host: String
    var port: UInt16
    var clientID: String
    var user: String?
    var passwordFile: String?
    var keepAlive: UInt16
    var topic: TopicTemplate
    var statusTopic: TopicTemplate
    var template: BodyTemplate?
    /// Where commands come from; `nil`: none are taken.
    var commandTopic: TopicTemplate?
    var homeAssistant: HomeAssistant.Settings?
  }

  /// A batch on its way.
  private struct Delivery {
    let batch: Batch
    let done: (Verdict) -> Void
    /// The next event whose messages are made; those made wait here, with their event's place.
    var next = 0
    var queue: ArraySlice<(place: Int, message: MQTTMessage)> = []
    var outstanding = 0
    /// Messages of each event that are not acknowledged yet; one at least until they are made.
    var missing: [Int]
    var refusal: (code: UInt8, event: Int)?

    /// Everything before it is with the broker.
    var taken: Int { missing.firstIndex { $0 > 0 } ?? missing.count }
  }

  let kind = "mqtt"
  let keepsConnection = true
  private let settings: Settings
  private let client: MQTTClient
  private let store: Store
  private var greeting: ((Greeting) -> Void)?
  private var delivery: Delivery?
  private var homeAssistant: HomeAssistant?
  var onLost: (Verdict) -> Void = { _ in }
  var onCommand: ([UInt8], @escaping ([UInt8]?) -> Void) -> Void = { _, done in done(nil) }

  init(_ settings: Settings, tls: TLSContext?, store: Store, on loop: EventLoop) {
    self.settings = settings
    self.store = store
    client = MQTTClient(host: settings.host, port: settings.port, tls: tls, on: loop)
    client.onUp = { [weak self] in self?.up() }
    client.onDown = { [weak self] failure in self?.down(failure) }
    client.onMessage = { [weak self] message, acknowledge in self?.commanded(message, acknowledge) }
  }

  var place: String { settings.url }
  var bytesSent: UInt64 { client.bytesSent }

  private var statusTopic: String { settings.statusTopic.render(kind: "status", gateway: store.gatewayID, body: .null) }

  private func status(_ word: String) -> MQTTMessage {
    let payload = JSONWriter.object { json in
      json.field("status", word)
      json.field("gateway", store.gatewayID)
    }
    return MQTTMessage(topic: statusTopic, payload: payload, retain: true)
  }

  private var commandTopic: String? {
    settings.commandTopic?.render(kind: "command", gateway: store.gatewayID, body: .null)
  }

  /// The broker keeps a command until it is carried out or refused, and that is on disk.
  private func commanded(_ message: MQTTMessage, _ acknowledge: @escaping () -> Void) {
    // A retained one would be carried out again at each connection.
    guard message.topic == commandTopic, !message.retain else { return acknowledge() }
    onCommand(message.payload) { [weak self] answer in
      guard let self, let answer else { return }
      acknowledge()
      let topic = message.responseTopic ?? message.topic + "/result"
      guard self.client.isUp, !topic.contains("+"), !topic.contains("#"), !topic.isEmpty else { return }
      self.client.publish(MQTTMessage(topic: topic, payload: answer, correlation: message.correlation)) { _ in }
    }
  }

  func greet(_ done: @escaping (Greeting) -> Void) {
    guard !client.isUp else { return done(.ready) }
    var password: [UInt8]?
    if let file = settings.passwordFile {
      guard let secret = SecretFile.read(file) else {
        return done(.failed(.stopped(reason: "the password file \(file) cannot be read")))
      }
      password = Array(secret.utf8)
    }
    greeting = done
    client.connect(
      MQTTOptions(
        clientID: settings.clientID, user: settings.user, password: password, keepAlive: settings.keepAlive,
        will: status("offline")))
  }

  private func up() {
    if let topic = commandTopic { client.subscribe(topic) }
    homeAssistant = settings.homeAssistant.map {
      HomeAssistant($0, gateway: store.gatewayID, statusTopic: statusTopic, commandTopic: commandTopic)
    }
    introduce([status("online")] + (homeAssistant?.greeting() ?? []))
  }

  /// One after another, whatever the broker says to them: then events may come.
  private func introduce(_ messages: [MQTTMessage]) {
    guard let first = messages.first else {
      let done = greeting
      greeting = nil
      done?(.ready)
      return
    }
    client.publish(first) { [weak self] _ in self?.introduce(Array(messages.dropFirst())) }
  }

  private func down(_ failure: MQTTFailure) {
    let verdict: Verdict =
      switch failure {
      case .unreachable(let words): .retry(reason: words, after: nil)
      case .refused(let words): .stopped(reason: words)
      }
    if let done = greeting {
      greeting = nil
      return done(.failed(verdict))
    }
    guard let lost = delivery else { return onLost(verdict) }
    delivery = nil
    // What the broker has acknowledged it has; the rest comes again, some of it perhaps twice.
    if lost.taken > 0 {
      lost.done(.acknowledged(through: lost.batch.events[lost.taken - 1].seq))
      return onLost(verdict)
    }
    lost.done(verdict)
  }

  func carry(_ batch: Batch, _ done: @escaping (Verdict) -> Void) {
    guard client.isUp else { return done(.retry(reason: "the broker is away", after: nil)) }
    delivery = Delivery(batch: batch, done: done, missing: batch.events.map { _ in 1 })
    publish()
  }

  private func publish() {
    while let current = delivery, current.refusal == nil, current.outstanding < client.window {
      if let (place, message) = delivery?.queue.popFirst() {
        delivery?.outstanding += 1
        client.publish(message) { [weak self] code in self?.acknowledged(place, code) }
        continue
      }
      guard current.next < current.batch.events.count else { return }
      let event = current.batch.events[current.next]
      let messages = (homeAssistant?.messages(for: event) ?? []) + [message(event)]
      delivery?.queue = ArraySlice(messages.map { (current.next, $0) })
      delivery?.missing[current.next] = messages.count
      delivery?.next += 1
    }
  }

  private func message(_ event: JournalEvent) -> MQTTMessage {
    // `try?`: a damaged body has no fields for the topic.
    let body = (try? JSONValue(parsing: event.body)) ?? .null
    let topic = settings.topic.render(kind: event.kind, gateway: store.gatewayID, body: body)
    let payload =
      settings.template?.render(event, gateway: store.gatewayID)
      ?? EventEnvelope.encode(event, gateway: store.gatewayID, epoch: store.epoch)
    return MQTTMessage(topic: topic, payload: payload)
  }

  private func acknowledged(_ place: Int, _ code: UInt8) {
    delivery?.outstanding -= 1
    if code < 0x80 {
      delivery?.missing[place] -= 1
    } else if delivery.map({ place < $0.refusal?.event ?? .max }) ?? false {
      delivery?.refusal = (code, place)
    }
    guard let current = delivery else { return }
    let isOver = current.refusal != nil || (current.next == current.batch.events.count && current.queue.isEmpty)
    guard isOver, current.outstanding == 0 else { return publish() }
    delivery = nil
    current.done(Self.verdict(of: current))
  }

  private static func verdict(of ended: Delivery) -> Verdict {
    guard let refusal = ended.refusal else { return .acknowledged(through: ended.batch.last) }
    // First what is taken; the refused one is then the next batch's first.
    guard ended.taken == 0 else { return .acknowledged(through: ended.batch.events[ended.taken - 1].seq) }
    switch refusal.code {
    case 0x87: return .stopped(reason: "the broker does not let us publish there")
    case 0x80, 0x83, 0x97: return .retry(reason: "the broker cannot take it now (code \(refusal.code))", after: nil)
    default: return .refused(status: Int(refusal.code), reason: "the broker refuses it (code \(refusal.code))")
    }
  }

  func close() {
    greeting = nil
    delivery = nil
    client.close()
  }
}
