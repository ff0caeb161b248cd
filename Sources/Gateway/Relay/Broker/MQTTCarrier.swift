// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import MQTT
import ProxyTunnel
import Sockets
import Store
import Timing
import UntrustedText

/// Publishes events to an MQTT broker with QoS 1. An event is taken when the broker's PUBACK has come, and the cursor moves
/// on only past those before which all are. Source: docs/mqtt.md.
final class MQTTCarrier: MeteredCarrier {
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
    /// Batches, compressed, in place of single events.
    var isCompact = false
    /// Where commands come from; `nil`: none are taken.
    var commandTopic: TopicTemplate?
    /// Where other upstreams of this gateway take commands.
    var foreignCommandTopics: [TopicTemplate] = []
    var homeAssistant: HomeAssistant.Settings?
    /// The path of a WebSocket.
    var path: String?
    var proxy: TunnelSettings?
    var observer: ObserverFeed.Settings?
    var token: ObserverToken.Claims?
    /// Pause between readings of the radio's counters.
    var statsInterval: Duration = .seconds(300)
  }

  /// Bytes of an answer's topic and correlation data: who asks chooses them, and they cost this side's line.
  private static let maxLabel = 1024

  let kind = "mqtt"
  let serverKeepsCount = false
  let keepsConnection = true
  let settings: Settings
  let client: MQTTClient
  let meter = TrafficMeter()
  let store: Store
  /// Batches that may be under way, so that the line is not idle for a round trip between them.
  let window = 4
  private let loop: EventLoop
  private let clock: WallClock
  var homeAssistant: HomeAssistant?
  var observer: ObserverFeed?
  private var token: ObserverToken?
  /// Batches that have no answer yet, and the last of them.
  var carrying = 0
  var lastTurn: Turn?
  private let tls: TLSContext?
  /// The broker's commands that wait for their answers: until `close`. The broker then sends those again.
  private let commandTasks: LoopTasks
  weak var radio: (any RadioAccess)?
  weak var commands: (any CommandTaker)?

  init(_ settings: Settings, tls: TLSContext?, store: Store, on loop: EventLoop) {
    self.settings = settings
    self.tls = tls
    self.store = store
    self.loop = loop
    clock = loop.wallClock
    commandTasks = LoopTasks(on: loop)
    client = MQTTClient(
      host: settings.host, port: settings.port, path: settings.path, tls: tls, proxy: settings.proxy,
      version: settings.version, meter: meter, on: loop)
    client.onMessage = { [weak self] message, acknowledge in self?.commanded(message, acknowledge) }
  }

  var place: String { ServerAddress.shown(settings.url) }
  var certificateExpiry: Int64? { tls?.peerExpiry }
  var bytesSent: UInt64 { client.bytesSent }

  private var statusTopic: String {
    apart(settings.statusTopic.render(kind: "status", gateway: store.gatewayID, body: .null))
  }

  private func status(_ word: String) -> MQTTMessage {
    let payload = JSONWriter.object { json in
      json.field("status", word)
      json.field("gateway", store.gatewayID)
    }
    return MQTTMessage(topic: statusTopic, payload: payload, retain: true)
  }

  private var commandTopic: String? { settings.commandTopic?.renderForCommands(gateway: store.gatewayID) }

  /// What this gateway publishes is never what it reads: a topic that a value from the air makes one of commands gets another end.
  func apart(_ topic: String) -> String {
    let own = settings.commandTopic.map { [$0] } ?? []
    let isRead = (own + settings.foreignCommandTopics).contains {
      $0.renderForCommands(gateway: store.gatewayID).isExactly(topic)
    }
    return isRead ? apart(topic + "_") : topic
  }

  /// The broker keeps a command until it is carried out or refused, and that is on disk.
  private func commanded(_ message: MQTTMessage, _ acknowledge: @escaping () -> Void) {
    // A retained one would be carried out again at each connection.
    guard let topic = commandTopic, message.topic.isExactly(topic), !message.retain else { return acknowledge() }
    commandTasks.begin { [weak self] in
      guard let answer = await self?.commands?.take(message.payload), let self else { return }
      acknowledge()
      let topic = message.responseTopic ?? message.topic + "/result"
      // Who has the answer sent to where commands come from gets none, nor who has more than a label sent back with it.
      guard !answer.isEmpty, self.client.isUp, TopicTemplate.isPublishable(topic), self.apart(topic).isExactly(topic),
        topic.utf8.count + (message.correlation?.count ?? 0) <= Self.maxLabel,
        self.commands?.mayAnswer(atLeast: 0) == true
      else { return }
      _ = self.client.publish(MQTTMessage(topic: topic, payload: answer, correlation: message.correlation))
    }
  }

  // MARK: Connecting

  var needsRadio: Bool { settings.observer != nil || settings.token != nil }

  func greet() async -> Greeting {
    if client.isUp { client.close() }
    if needsRadio, radio?.facts == nil {
      return .failed(.retry(reason: "the feed's radio is unknown: no radio has been connected yet", after: nil))
    }
    if settings.token != nil, let problem = await obtainToken() { return .failed(.retry(reason: problem, after: nil)) }
    do throws(Verdict) {
      try await connect()
      try await introduce()
      return .ready
    } catch {
      return .failed(error)
    }
  }

  private func connect() async throws(Verdict) {
    var (user, password) = (settings.user, token.map { Array($0.password.utf8) })
    if let token { user = token.user }
    if token == nil, let file = settings.passwordFile {
      guard let secret = SecretFile.read(file) else {
        throw .stopped(reason: "the password file \(file) cannot be read")
      }
      password = Array(secret.utf8)
    }
    if let facts = radio?.facts { observer = settings.observer.map { ObserverFeed(settings: $0, facts: facts) } }
    let options = MQTTOptions(
      clientID: settings.clientID, user: user, password: password, keepAlive: settings.keepAlive,
      will: observer?.status("offline", nil, at: clock.milliseconds) ?? status("offline"))
    do throws(MQTTFailure) {
      try await client.connect(options)
    } catch {
      throw verdict(error)
    }
  }

  func verdict(_ failure: MQTTFailure) -> Verdict {
    switch failure {
    case .unreachable(let words): return .retry(reason: words, after: nil)
    case .refused(let words):
      // A token that is not taken is not shown again.
      token = nil
      return .stopped(reason: words)
    }
  }

  /// One after another, whatever the broker says to them: then events may come.
  private func introduce() async throws(Verdict) {
    if let topic = commandTopic { client.subscribe(topic, isOthers: true) }
    homeAssistant = settings.homeAssistant.map {
      HomeAssistant($0, gateway: store.gatewayID, statusTopic: statusTopic, commandTopic: commandTopic)
    }
    let online = observer?.status("online", nil, at: clock.milliseconds) ?? status("online")
    let messages = [online] + (homeAssistant?.greeting(store) ?? [])
    do {
      try await loop.race(
        { try await self.client.run() },
        { for message in messages { _ = try await self.client.publish(message).value() } })
    } catch {
      throw (error as? MQTTFailure).map(verdict) ?? .retry(reason: "given up", after: nil)
    }
  }

  /// Takes what comes; shows how the radio is; ends when its token is about to run out, with a new one in hand.
  func hold() async throws(CancellationError) -> ConnectionEnd {
    var wasCarrying = false
    do {
      try await loop.race(
        {
          defer { wasCarrying = self.carrying > 0 }
          try await self.client.run()
        }, { try await self.publishStats() }, { try await self.untilRenewed() })
      return .outdated
    } catch {
      if let cancelled = error as? CancellationError { throw cancelled }
      let verdict = (error as? MQTTFailure).map(verdict) ?? .retry(reason: "\(error)", after: nil)
      // A batch under way has its answer from what the broker has acknowledged.
      return .lost(wasCarrying ? nil : verdict)
    }
  }

  // MARK: The radio's token

  /// A clock before this was never set (June 2025).
  private static let longAgo: Int64 = 1_750_000_000

  /// `nil`: there is one that is good for a while; else why there is none.
  private func obtainToken() async -> String? {
    let now = clock.seconds
    if let token, now < token.expires - ObserverToken.margin, now > token.expires - ObserverToken.lifetime - 60 {
      return nil
    }
    return await renewToken(now)
  }

  private func renewToken(_ now: Int64) async -> String? {
    guard now > Self.longAgo else { return "the clock is not set: a token would have wrong times" }
    guard let claims = settings.token, let radio, let facts = radio.facts else { return "no radio to sign with" }
    let unsigned = ObserverToken.unsigned(claims, key: facts.key, now: now)
    guard let signature = await radio.sign(Array(unsigned.utf8)) else { return "the radio did not sign the token" }
    token = ObserverToken(unsigned: unsigned, signature: signature, key: facts.key, now: now)
    return nil
  }

  /// Returns before the token runs out, when there is a new one. A radio that is away now may sign in a minute.
  private func untilRenewed() async throws {
    guard let token else { return try await Waiter().wait() }
    try await loop.sleep(for: .seconds(max(1, token.expires - ObserverToken.margin - clock.seconds)))
    while await renewToken(clock.seconds) != nil { try await loop.sleep(for: .seconds(20)) }
  }

  /// How the radio is: now, and now and then.
  private func publishStats() async throws {
    while observer != nil || homeAssistant != nil, let radio {
      let stats = await radio.readStats()
      var messages: [MQTTMessage] = []
      if let observer, let stats { messages.append(observer.status("online", stats, at: clock.milliseconds)) }
      messages += homeAssistant?.state(stats, radio.facts, store, at: clock.milliseconds) ?? []
      for message in messages { _ = client.publish(message) }
      try await loop.sleep(for: settings.statsInterval)
    }
    try await Waiter().wait()
  }

  func close() {
    commandTasks.cancel()
    // An end in order is no reason for the last will.
    if client.isUp {
      _ = client.publish(observer?.status("offline", nil, at: clock.milliseconds) ?? status("offline"))
    }
    client.close()
  }
}
