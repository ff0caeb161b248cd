// SPDX-License-Identifier: MIT

import Escaping
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
    /// `nil`: 5, or 3.1.1 where that does not work.
    var version: MQTTVersion?
    var topic: TopicTemplate
    var statusTopic: TopicTemplate
    var template: BodyTemplate?
    /// Where commands come from; `nil`: none are taken.
    var commandTopic: TopicTemplate?
    var homeAssistant: HomeAssistant.Settings?
    /// The path of a WebSocket.
    var path: String?
    var observer: ObserverFeed.Settings?
    var token: ObserverToken.Claims?
    /// Between looks at the radio's counters, for those who show them.
    var statsInterval: Duration = .seconds(300)
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
    var refusal: (answer: MQTTAnswer, event: Int)?

    /// Everything before it is with the broker.
    var taken: Int { missing.firstIndex { $0 > 0 } ?? missing.count }
  }

  let kind = "mqtt"
  let keepsConnection = true
  let settings: Settings
  let client: MQTTClient
  let store: Store
  private let loop: EventLoop
  private let clock = WallClock()
  private var greeting: ((Greeting) -> Void)?
  private var delivery: Delivery?
  private var homeAssistant: HomeAssistant?
  private var observer: ObserverFeed?
  private var token: ObserverToken?
  private var renewal: LoopTimer?
  private var statsTimer: LoopTimer?
  /// A batch that came while the connection was made anew.
  private var parked: (batch: Batch, done: (Verdict) -> Void)?
  private var isRenewing = false
  private let tls: TLSContext?
  weak var radio: (any RadioAccess)?
  var onLost: (Verdict) -> Void = { _ in }
  var onCommand: ([UInt8], @escaping ([UInt8]?) -> Void) -> Void = { _, done in done(nil) }

  init(_ settings: Settings, tls: TLSContext?, store: Store, on loop: EventLoop) {
    self.settings = settings
    self.tls = tls
    self.store = store
    self.loop = loop
    client = MQTTClient(
      host: settings.host, port: settings.port, path: settings.path, tls: tls, version: settings.version, on: loop)
    client.onUp = { [weak self] in self?.up() }
    client.onDown = { [weak self] failure in self?.down(failure) }
    client.onMessage = { [weak self] message, acknowledge in self?.commanded(message, acknowledge) }
  }

  var place: String { ServerAddress.shown(settings.url) }
  var certificateExpiry: Int64? { tls?.peerExpiry }
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
    guard let topic = commandTopic, message.topic.isExactly(topic), !message.retain else { return acknowledge() }
    onCommand(message.payload) { [weak self] answer in
      guard let self, let answer else { return }
      acknowledge()
      let topic = message.responseTopic ?? message.topic + "/result"
      guard self.client.isUp, TopicTemplate.isPublishable(topic) else { return }
      self.client.publish(MQTTMessage(topic: topic, payload: answer, correlation: message.correlation)) { _ in }
    }
  }

  func greet(_ done: @escaping (Greeting) -> Void) {
    guard !client.isUp else { return done(.ready) }
    if settings.observer != nil || settings.token != nil, radio?.facts == nil {
      return done(.failed(.retry(reason: "whose feed it is is not known: no radio was connected yet", after: nil)))
    }
    greeting = done
    guard settings.token != nil else { return connect() }
    obtainToken { [weak self] problem in
      guard let self, self.greeting != nil else { return }
      guard let problem else { return self.connect() }
      self.greeting = nil
      done(.failed(.retry(reason: problem, after: nil)))
    }
  }

  private func connect() {
    var (user, password) = (settings.user, token.map { Array($0.password.utf8) })
    if let token { user = token.user }
    if token == nil, let file = settings.passwordFile {
      guard let secret = SecretFile.read(file) else {
        let done = greeting
        greeting = nil
        done?(.failed(.stopped(reason: "the password file \(file) cannot be read")))
        return
      }
      password = Array(secret.utf8)
    }
    if let facts = radio?.facts { observer = settings.observer.map { ObserverFeed(settings: $0, facts: facts) } }
    client.connect(
      MQTTOptions(
        clientID: settings.clientID, user: user, password: password, keepAlive: settings.keepAlive,
        will: observer?.status("offline", nil, at: clock.milliseconds) ?? status("offline")))
  }

  // MARK: The radio's token

  /// A clock before this was never set (June 2025).
  private static let longAgo: Int64 = 1_750_000_000

  /// `nil`: there is one that is good for a while.
  private func obtainToken(_ done: @escaping (String?) -> Void) {
    let now = clock.seconds
    if let token, now < token.expires - ObserverToken.margin, now > token.expires - ObserverToken.lifetime - 60 {
      return done(nil)
    }
    guard now > Self.longAgo else { return done("the clock is not set: a token would have wrong times") }
    guard let claims = settings.token, let radio, let facts = radio.facts else { return done("no radio to sign with") }
    let unsigned = ObserverToken.unsigned(claims, key: facts.key, now: now)
    radio.sign(Array(unsigned.utf8)) { [weak self] signature in
      guard let self else { return }
      guard let signature else { return done("the radio did not sign the token") }
      self.token = ObserverToken(unsigned: unsigned, signature: signature, key: facts.key, now: now)
      done(nil)
    }
  }

  /// Before it runs out: a new one, then a new connection with it. What is to be carried meanwhile waits.
  private func renewLater() {
    renewal?.cancel()
    guard let token else { return }
    let left = max(1, token.expires - ObserverToken.margin - clock.seconds)
    renewal = loop.schedule(after: .seconds(left)) { [weak self] in self?.renew() }
  }

  private func renew() {
    guard client.isUp else { return }
    // Not in the middle of a batch; and a radio that is away now may sign in a minute.
    guard delivery == nil else { return retryRenewal() }
    token = nil
    obtainToken { [weak self] problem in
      guard let self, self.client.isUp else { return }
      guard problem == nil, self.delivery == nil else { return self.retryRenewal() }
      self.isRenewing = true
      self.client.close()
      self.connect()
    }
  }

  private func retryRenewal() {
    renewal = loop.schedule(after: .seconds(20)) { [weak self] in self?.renew() }
  }

  private func up() {
    if let topic = commandTopic { client.subscribe(topic) }
    homeAssistant = settings.homeAssistant.map {
      HomeAssistant($0, gateway: store.gatewayID, statusTopic: statusTopic, commandTopic: commandTopic)
    }
    renewLater()
    let online = observer?.status("online", nil, at: clock.milliseconds) ?? status("online")
    introduce([online] + (homeAssistant?.greeting() ?? []))
    tellStats()
  }

  /// How the radio is: now, and now and then.
  private func tellStats() {
    statsTimer?.cancel()
    guard observer != nil || homeAssistant != nil, let radio else { return }
    statsTimer = loop.schedule(after: settings.statsInterval) { [weak self] in self?.tellStats() }
    radio.readStats { [weak self] stats in
      guard let self, self.client.isUp else { return }
      var messages: [MQTTMessage] = []
      if let observer = self.observer, let stats {
        messages.append(observer.status("online", stats, at: self.clock.milliseconds))
      }
      messages += self.homeAssistant?.state(stats, radio.facts, self.store, at: self.clock.milliseconds) ?? []
      for message in messages { self.client.publish(message) { _ in } }
    }
  }

  /// One after another, whatever the broker says to them: then events may come.
  private func introduce(_ messages: [MQTTMessage]) {
    guard let first = messages.first else {
      let done = greeting
      greeting = nil
      isRenewing = false
      done?(.ready)
      if let (batch, done) = parked {
        parked = nil
        carry(batch, done)
      }
      return
    }
    client.publish(first) { [weak self] _ in self?.introduce(Array(messages.dropFirst())) }
  }

  private func down(_ failure: MQTTFailure) {
    isRenewing = false
    renewal?.cancel()
    statsTimer?.cancel()
    // A token that is not taken is not shown again.
    if case .refused = failure { token = nil }
    let verdict: Verdict =
      switch failure {
      case .unreachable(let words): .retry(reason: words, after: nil)
      case .refused(let words): .stopped(reason: words)
      }
    if let done = greeting {
      greeting = nil
      return done(.failed(verdict))
    }
    if let (_, done) = parked {
      parked = nil
      return done(verdict)
    }
    guard let lost = delivery else { return onLost(verdict) }
    delivery = nil
    // What the broker has acknowledged it has; the rest comes again, some of it perhaps twice.
    if lost.taken > 0 {
      lost.done(.acknowledged(through: lost.batch.events[lost.taken - 1].seq))
      return onLost(verdict)
    }
    if case .unreachable(let words) = failure { return lost.done(.hungUp(reason: words)) }
    lost.done(verdict)
  }

  func carry(_ batch: Batch, _ done: @escaping (Verdict) -> Void) {
    if isRenewing {
      parked = (batch, done)
      return
    }
    guard client.isUp else { return done(.retry(reason: "the broker is away", after: nil)) }
    delivery = Delivery(batch: batch, done: done, missing: batch.events.map { _ in 1 })
    publish()
  }

  private func publish() {
    while let current = delivery, current.refusal == nil, current.outstanding < client.window {
      if let (place, message) = delivery?.queue.popFirst() {
        delivery?.outstanding += 1
        client.publish(message) { [weak self] answer in self?.acknowledged(place, answer) }
        continue
      }
      guard current.next < current.batch.events.count else { return finishIfOver() }
      let event = current.batch.events[current.next]
      let messages = observer?.messages(for: event) ?? (homeAssistant?.messages(for: event) ?? []) + [message(event)]
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

  private func acknowledged(_ place: Int, _ answer: MQTTAnswer) {
    delivery?.outstanding -= 1
    if answer.isTaken {
      delivery?.missing[place] -= 1
    } else if delivery.map({ place < $0.refusal?.event ?? .max }) ?? false {
      delivery?.refusal = (answer, place)
    }
    guard let current = delivery else { return }
    if current.refusal == nil, current.next < current.batch.events.count || !current.queue.isEmpty { return publish() }
    finishIfOver()
  }

  private func finishIfOver() {
    guard let current = delivery, current.outstanding == 0 else { return }
    delivery = nil
    current.done(Self.verdict(of: current))
  }

  private static func verdict(of ended: Delivery) -> Verdict {
    guard let refusal = ended.refusal else { return .acknowledged(through: ended.batch.last) }
    // First what is taken; the refused one is then the next batch's first.
    guard ended.taken == 0 else { return .acknowledged(through: ended.batch.events[ended.taken - 1].seq) }
    let answer = refusal.answer
    switch answer.code {
    case 0x87: return .stopped(reason: "the broker does not let us publish there (\(answer.words))")
    // Of these the broker may think otherwise later; an identifier in use is our own next one's matter.
    case 0x80, 0x83, 0x89, 0x91, 0x93, 0x96, 0x97:
      return .retry(reason: "the broker cannot take it now (\(answer.words))", after: nil)
    // The topic, the payload, its size: the same again would be refused again.
    default: return .refused(status: Int(answer.code), reason: "the broker refuses it (\(answer.words))")
    }
  }

  func close() {
    greeting = nil
    delivery = nil
    parked = nil
    isRenewing = false
    renewal?.cancel()
    statsTimer?.cancel()
    // An end in order is no reason for the last will.
    if client.isUp {
      client.publish(observer?.status("offline", nil, at: clock.milliseconds) ?? status("offline")) { _ in }
    }
    client.close()
  }
}
