// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import MQTT
import ProxyTunnel
import Sockets
import Store
import Timing
import UntrustedText

/// Publishes events to an MQTT broker with QoS 1. An event is delivered when its PUBACK has come; the cursor moves only
/// past events whose predecessors are all delivered. Source: docs/mqtt.md.
final class MQTTCarrier: MeteredCarrier {
  /// The most bytes of an answer's topic and correlation data, which the requester chooses.
  private static let maxLabel = 1024

  var kind: String { "mqtt" }
  var serverKeepsCount: Bool { false }
  var keepsConnection: Bool { true }
  private let upstream: UpstreamSettings
  let settings: UpstreamSettings.MQTTSettings
  /// The topic for commands; `nil`: the upstream receives none.
  private let commandsTemplate: TopicTemplate?
  /// Topics on which the gateway's other upstreams take commands.
  private var foreignTopics: [TopicTemplate]
  let client: MQTTClient
  let meter = TrafficMeter()
  let store: Store
  /// Batches in flight: the line is not idle between two batches.
  var window: Int { 4 }
  private let loop: EventLoop
  private let clock: WallClock
  var homeAssistant: HomeAssistant?
  var observer: ObserverFeed?
  private var token: ObserverToken?
  /// The batches without a verdict, and the last batch's turn.
  var turns: [Turn] = []
  var lastTurn: Turn?
  private var tls: TLSContext?
  /// Reads the last answers on an outdated connection, until it is closed.
  private var lastReader: LoopTask?
  /// Tasks that wait for the answers to the broker's commands, until `close`; the broker then resends those commands.
  private let commandTasks: LoopTasks
  private var foreign = ForeignMessages()
  /// Resumed when a new session is needed.
  private let sessionEnd = Waiter()
  weak var radio: (any RadioAccess)?
  weak var commands: CommandIntake?

  init(
    _ upstream: UpstreamSettings, _ settings: UpstreamSettings.MQTTSettings, proxy: TunnelSettings?, store: Store,
    on loop: EventLoop
  ) throws {
    guard let broker = UpstreamSettings.broker(upstream.url) else {
      throw Upstream.SetupError(description: "\(upstream.place) is not an mqtt://, mqtts://, ws:// or wss:// URL")
    }
    if broker.tls {
      tls = try TLSContext(authorities: upstream.authorities, certificate: settings.certificate, key: settings.key)
    }
    (self.upstream, self.settings, commandsTemplate) = (upstream, settings, upstream.commandTopic)
    foreignTopics = settings.foreignCommandTopics
    (self.store, self.loop, clock) = (store, loop, loop.wallClock)
    commandTasks = LoopTasks(on: loop)
    client = MQTTClient(
      host: broker.host, port: broker.port, path: broker.path, tls: tls, proxy: proxy, version: settings.version,
      meter: meter, on: loop)
    client.onMessage = { [weak self] message, acknowledge in self?.commanded(message, acknowledge) }
  }

  var place: String { upstream.place }
  var certificateExpiry: Int64? { tls?.peerExpiry }
  var bytesSent: UInt64 { client.bytesSent }
  var minorTrouble: String? { foreign.trouble(now: loop.now) }

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

  private var commandTopic: String? { commandsTemplate?.renderForCommands(gateway: store.gatewayID) }

  /// The same, also if no command is allowed: the broker may have kept the subscription from when one was.
  private var requestTopic: String? { settings.commandTopic?.renderForCommands(gateway: store.gatewayID) }

  func keepApart(from topics: [TopicTemplate]) { foreignTopics = topics }

  /// Changes a topic at which this gateway receives commands: values from the air could make one.
  func apart(_ topic: String) -> String {
    let own = commandsTemplate.map { [$0] } ?? []
    let isRead = (own + foreignTopics).contains {
      $0.renderForCommands(gateway: store.gatewayID).isExactly(topic)
    }
    return isRead ? apart(topic + "_") : topic
  }

  /// Acknowledges a command when its result is on disk; until then the broker keeps it,
  /// and it is tried again and again. One that is not allowed is refused by the intake, which also tells the operator.
  private func commanded(_ message: MQTTMessage, _ acknowledge: @escaping () -> Void) {
    guard let topic = requestTopic, message.topic.isExactly(topic) else {
      refuseForeign(message.topic)
      return acknowledge()
    }
    // A retained command would be repeated at each connection.
    guard !message.retain else { return acknowledge() }
    commandTasks.begin { [weak self, loop] in
      var kept = await self?.commands?.take(message.payload)
      // The disk refused it. The broker would send it again only over another connection.
      while kept == nil, self != nil {
        // Cancelled: the connection is closed.
        do { try await loop.sleep(for: CommandIntake.pause) } catch { return }
        kept = await self?.commands?.take(message.payload)
      }
      guard let answer = kept, let self else { return }
      acknowledge()
      let topic = message.responseTopic ?? message.topic + "/result"
      // No answer goes to a topic for commands, to a long topic, or with long correlation data.
      guard !answer.isEmpty, self.client.isUp, TopicTemplate.isPublishable(topic), self.apart(topic).isExactly(topic),
        !topic.isExactly(message.topic),
        topic.utf8.count + (message.correlation?.count ?? 0) <= Self.maxLabel,
        self.commands?.mayAnswer(atLeast: 0) == true
      else { return }
      _ = self.client.publish(MQTTMessage(topic: topic, payload: answer, correlation: message.correlation))
    }
  }

  /// Nobody gets an answer: a stranger's subscription may bring everything that the broker has.
  private func refuseForeign(_ topic: String) {
    let remedy = foreign.received(topic, now: loop.now)
    if let trouble = minorTrouble { commands?.refuseForeign(trouble) }
    switch remedy {
    case .none: break
    case .unsubscribe: client.unsubscribe(topic)
    case .newSession: endSession()
    }
  }

  private func endSession() {
    commands?.warn("begins a new session at the broker; commands that still wait in the old one are lost")
    sessionEnd.resume()
  }

  // MARK: Connecting

  var needsRadio: Bool { settings.observer != nil || settings.token != nil }

  var isOfFormerRadio: Bool {
    guard let facts = radio?.facts else { return false }
    return observer.map { $0.facts != facts } ?? (token.map { $0.key != facts.key } ?? false)
  }

  /// The token permits only packets of a radio that was replaced.
  var hasFormerToken: Bool {
    guard let observer, observer.isSigned, let facts = radio?.facts else { return false }
    return observer.facts.key != facts.key
  }

  func greet() async -> Greeting {
    // Two tasks must not read one connection.
    lastReader?.cancel()
    await lastReader?.ended()
    lastReader = nil
    if client.isUp { client.close() }
    observer = nil
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
    if let facts = radio?.facts {
      observer = settings.observer.map {
        ObserverFeed(
          settings: $0, isSigned: settings.token != nil, client: "meshpost/\(upstream.version)", facts: facts)
      }
    }
    let options = MQTTOptions(
      clientID: settings.clientID ?? "meshpost-\(store.gatewayID)-\(upstream.name)", user: user, password: password,
      keepAlive: settings.keepAlive,
      will: observer?.status("offline", nil, at: clock.milliseconds) ?? status("offline"))
    if foreign.needsNewSession { client.forgetSession() }
    do throws(MQTTFailure) {
      try await client.connect(options)
    } catch {
      throw verdict(error)
    }
    if foreign.needsNewSession { foreign.sessionBegan() }
  }

  func verdict(_ failure: MQTTFailure) -> Verdict {
    switch failure {
    case .unreachable(let words): return .retry(reason: words, after: nil)
    case .foreign(let words):
      // Each connection with this session would end so.
      if foreign.demandSession(now: loop.now) { endSession() }
      return .retry(reason: words, after: nil)
    case .refused(let words):
      // The broker refused the token: the next connection needs another one.
      token = nil
      return .stopped(reason: words)
    }
  }

  /// Publishes the first messages and waits for their acknowledgements, whatever they are: then events may follow.
  private func introduce() async throws(Verdict) {
    if let topic = commandTopic {
      client.subscribe(topic, isOthers: true)
    } else if client.hasSession, let topic = requestTopic {
      client.unsubscribe(topic)
    }
    homeAssistant = settings.homeAssistantPrefix.map {
      HomeAssistant(
        prefix: $0, notify: settings.homeAssistantNotify, showsAlerts: upstream.journal.filter.takesAlerts,
        gateway: store.gatewayID, statusTopic: statusTopic,
        commandTopic: upstream.journal.allowed.contains("send") ? commandTopic : nil)
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

  /// Receives messages and publishes the radio's state. Ends before the token expires, once there is a new one, and if a new session is needed.
  func hold() async throws(CancellationError) -> ConnectionEnd {
    var wasCarrying = false
    do {
      try await loop.race(
        {
          defer { wasCarrying = !self.turns.isEmpty }
          try await self.client.run()
        }, { try await self.publishStats() }, { try await self.untilRenewed() },
        { while !self.foreign.needsNewSession { try await self.sessionEnd.wait() } })
      // A cancelled client ends without an error.
      guard !Task.isCancelled else { throw CancellationError() }
      // What is under way is answered on this connection, and the next one waits for that.
      lastReader = loop.begin { [client] in
        // `try?`: the verdicts on the batches report the end.
        try? await client.run()
      }
      return .outdated
    } catch {
      if let cancelled = error as? CancellationError { throw cancelled }
      let verdict = (error as? MQTTFailure).map(verdict) ?? .retry(reason: "\(error)", after: nil)
      // The verdict on the batch in flight reports the end.
      return .lost(wasCarrying ? nil : verdict)
    }
  }

  // MARK: The radio's token

  /// June 2025, in seconds since 1970: a clock before this is not set.
  private static let longAgo: Int64 = 1_750_000_000

  /// Makes a token unless there is a valid one. Returns the problem; `nil`: there is a token.
  private func obtainToken() async -> String? {
    let now = clock.seconds
    if let token, token.key != radio?.facts?.key { self.token = nil }
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
    guard radio.facts?.key == facts.key else { return "the radio was replaced while it signed the token" }
    token = ObserverToken(unsigned: unsigned, signature: signature, key: facts.key, now: now)
    return nil
  }

  /// Returns before the token expires, once there is a new one. A disconnected radio may sign it a minute later.
  private func untilRenewed() async throws {
    guard let token else { return try await Waiter().wait() }
    try await loop.sleep(for: .seconds(max(1, token.expires - ObserverToken.margin - clock.seconds)))
    while await renewToken(clock.seconds) != nil { try await loop.sleep(for: .seconds(20)) }
  }

  /// Publishes the radio's state now and in each `statsInterval`.
  private func publishStats() async throws {
    while observer != nil || homeAssistant != nil, let radio {
      let stats = await radio.readStats()
      var messages: [MQTTMessage] = []
      if let observer, let stats { messages.append(observer.status("online", stats, at: clock.milliseconds)) }
      messages += homeAssistant?.state(stats, radio.facts, store, at: clock.milliseconds) ?? []
      for message in messages { _ = client.publish(message) }
      try await loop.sleep(for: .seconds(settings.statsInterval))
    }
    try await Waiter().wait()
  }

  func close() {
    commandTasks.cancel()
    lastReader?.cancel()
    // Only an unexpected end is a reason for the last will.
    if client.isUp {
      _ = client.publish(observer?.status("offline", nil, at: clock.milliseconds) ?? status("offline"))
    }
    client.close()
  }
}
