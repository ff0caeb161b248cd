// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import Streams
import Timing

/// One connection to a broker: MQTT 5, or 3.1.1 where the broker does not know 5. Publishes with QoS 1, any number at
/// once; who uses it keeps to `window`.
///
/// It does not connect again by itself, and keeps nothing: who uses it does. What it does not know of a broker it finds out with a
/// connection more: whether it knows version 5, and whether it retains anything.
public final class MQTTClient {
  private static let connectLimit: Duration = .seconds(15)
  /// The broker's answer to hello, to a ping, to a publication: so long nothing may move before it.
  private static let patience: Duration = .seconds(20)
  /// To a hello of a version that it may not know.
  private static let guessPatience: Duration = .seconds(10)
  /// Messages that may wait for us with a broker that has not been told a bound (3.1.1).
  private static let maxIncoming = 1024

  private let host: String
  private let port: UInt16
  private let tls: TLSContext?
  /// Of the WebSocket that carries it; `nil`: plain TCP or TLS.
  private let path: String?
  private let loop: EventLoop
  private let patience: (hello: Duration, guess: Duration)
  private var connector: Connector?
  private var stream: (any ByteStream)?
  private var decoder = MQTTDecoder(.v5)
  private var search: VersionSearch
  private var options: MQTTOptions?
  private var limit: ProgressLimit?
  private var expected = ""
  private var pinger: LoopTimer?
  private var lastID: UInt16 = 0
  private var waiting: [UInt16: (MQTTAnswer) -> Void] = [:]
  private var subscribing: Set<UInt16> = []
  /// Messages of the broker that are not acknowledged yet.
  private var incoming: Set<UInt16> = []
  private var keepAlive = 0
  /// The largest packet that the broker takes.
  private var maxBytes: Int?
  private var retains = true
  /// A client id that the broker gave us.
  private var givenID: String?
  /// Publications that the broker takes at once; and those that wait for it.
  private var receiveMaximum = 65535
  private var queued: [(message: MQTTMessage, done: (MQTTAnswer) -> Void)] = []
  private static let maxQueued = 256
  /// Counts connections.
  private var generation = 0

  public private(set) var isUp = false
  /// Publications that may wait for their acknowledgement.
  public private(set) var window = 1
  public private(set) var bytesSent: UInt64 = 0
  public var onUp: () -> Void = {}
  /// Told once; publications that were not acknowledged hear nothing more.
  public var onDown: (MQTTFailure) -> Void = { _ in }
  /// A message came; call the closure when it is safe: only then the broker may forget it.
  public var onMessage: (MQTTMessage, _ acknowledge: @escaping () -> Void) -> Void = { _, acknowledge in acknowledge() }

  /// `version`: the only one to be spoken; `nil`: 5, or 3.1.1 where that does not work.
  public convenience init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, version: MQTTVersion? = nil, on loop: EventLoop
  ) {
    self.init(
      host: host, port: port, path: path, tls: tls, version: version, patience: (Self.patience, Self.guessPatience),
      on: loop)
  }

  /// `patience`: for the answer to a hello, and to one of a version that is a guess.
  init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, version: MQTTVersion? = nil,
    patience: (hello: Duration, guess: Duration), on loop: EventLoop
  ) {
    self.path = path
    self.host = host
    self.port = port
    self.tls = tls
    self.loop = loop
    self.patience = patience
    search = VersionSearch(version)
  }

  /// The version that is spoken.
  public var version: MQTTVersion { search.version }

  public func connect(_ options: MQTTOptions) {
    close()
    self.options = options
    search.begins(now: loop.now)
    open()
  }

  private func open() {
    if let path {
      let settings = WebSocket.Settings(host: host, port: port, target: path, subprotocol: "mqtt")
      return begin(WebSocketStream(settings, tls: tls, on: loop))
    }
    connector = Connector(host: host, port: port, timeout: Self.connectLimit, on: loop) { [weak self] result in
      guard let self else { return }
      self.connector = nil
      switch result {
      case .success(let socket): self.connected(socket)
      case .failure(let failure): self.down(.unreachable(failure.description))
      }
    }
  }

  /// Once more, with what was learnt.
  private func openAgain() {
    drop()
    open()
  }

  private func connected(_ socket: Int32) {
    let plain = SocketStream(socket, on: loop)
    if let tls {
      guard let secure = TLSStream(plain, tls, host: host) else { return down(.unreachable("TLS is not set up")) }
      begin(secure)
    } else {
      begin(plain)
    }
  }

  private func begin(_ fresh: any ByteStream) {
    stream = fresh
    decoder = MQTTDecoder(version)
    generation += 1
    let connection = generation
    stream?.onBytes = { [weak self] bytes in self?.received(bytes) }
    stream?.onClose = { [weak self] words in
      guard let self, self.generation == connection, let stream = self.stream else { return }
      self.stream = nil
      self.ended(words ?? "the broker closed the connection", heardUs: stream.pendingBytes == 0)
    }
    stream?.start()
    if var options {
      if options.clientID.isEmpty { options.clientID = givenID ?? "" }
      if !retains { options.will?.retain = false }
      send(.connect(options, version))
    }
    limit?.cancel()
    limit = ProgressLimit(search.isGuess ? patience.guess : patience.hello, on: loop) { [weak self] in
      self?.stream?.movedBytes ?? 0
    } giveUp: { [weak self] in
      guard let self else { return }
      if self.search.failed(.silent, now: self.loop.now) { return self.openAgain() }
      self.down(.unreachable("no answer to hello in time"))
    }
  }

  /// `heardUs`: our hello went out; where TLS or a WebSocket did not come about, another version changes nothing.
  private func ended(_ words: String, heardUs: Bool) {
    guard !isUp else { return down(.unreachable(words)) }
    if heardUs, search.failed(.hungUp, now: loop.now) { return openAgain() }
    down(.unreachable(words + ", before it took us: does it want TLS, or a certificate of ours?"))
  }

  private func send(_ command: MQTTCommand) {
    let bytes = command.encode()
    bytesSent &+= UInt64(bytes.count)
    stream?.write(bytes)
  }

  /// Something is due from the broker.
  private func expect(_ words: String) {
    expected = words
    if let limit, limit.isActive { return limit.restart() }
    limit = ProgressLimit(Self.patience, on: loop) { [weak self] in
      self?.stream?.movedBytes ?? 0
    } giveUp: { [weak self] in
      if let self { self.down(.unreachable("\(self.expected) in time")) }
    }
  }

  /// `done` hears the broker's answer.
  public func publish(_ message: MQTTMessage, _ done: @escaping (MQTTAnswer) -> Void) {
    guard isUp else { return }
    // More at once than the broker takes would end the connection: the rest waits for its turn.
    guard waiting.count < receiveMaximum else {
      guard queued.count < Self.maxQueued else { return loop.later { done(MQTTAnswer(0x97)) } }
      queued.append((message, done))
      return
    }
    let id = freshID()
    var message = message
    if !retains { message.retain = false }
    let command = MQTTCommand.publish(message, id: id, isRepeated: false, version)
    // A broker would end the connection over it, again and again.
    if let maxBytes, command.encode().count > maxBytes {
      loop.later { done(MQTTAnswer(0x95)) }
      return
    }
    waiting[id] = done
    send(command)
    if waiting.count == 1 { expect("no acknowledgement") }
    pingLater()
  }

  /// One that is not in use.
  private func freshID() -> UInt16 {
    repeat {
      lastID = lastID == .max ? 1 : lastID + 1
    } while (waiting[lastID] != nil || subscribing.contains(lastID))
      && waiting.count + subscribing.count < 65535
    return lastID
  }

  public func subscribe(_ topic: String) {
    guard isUp else { return }
    let id = freshID()
    subscribing.insert(id)
    send(.subscribe(topic: topic, id: id, version))
  }

  /// In order, so that the last will is not published.
  public func close() {
    if isUp { send(.disconnect(code: 0)) }
    drop()
  }

  private func drop() {
    connector?.cancel()
    connector = nil
    limit?.cancel()
    pinger?.cancel()
    stream?.close()
    stream = nil
    isUp = false
    waiting = [:]
    subscribing = []
    incoming = []
    queued = []
  }

  private func down(_ failure: MQTTFailure) {
    drop()
    onDown(failure)
  }

  // MARK: What comes

  private func received(_ bytes: [UInt8]) {
    decoder.append(bytes)
    do {
      while stream != nil, let event = try decoder.next() { try take(event) }
    } catch {
      // Only a broker that has taken us knows this packet.
      if isUp, version == .v5 { send(.disconnect(code: error.code)) }
      down(.unreachable("the broker sends what is no MQTT: \(error)"))
    }
  }

  private func take(_ event: MQTTEvent) throws(MQTTError) {
    if case .connected(let greeting) = event {
      guard !isUp else { throw .protocolError("a second greeting") }
      return greeted(greeting)
    }
    if case .disconnected(let code, let reason, let server) = event {
      let words = "the broker ends the connection: \(MQTTReason.words(code, reason, server: server))"
      return down(MQTTReason.stopsConnection(code) ? .refused(words) : .unreachable(words))
    }
    guard isUp else { throw .protocolError("something before its greeting") }
    switch event {
    case .connected, .disconnected: break
    case .acknowledged(let id, let code, let reason): try acknowledged(id, MQTTAnswer(code, reason))
    case .message(let message, let id, let isRepeated): try came(message, id, isRepeated)
    case .pong: if waiting.isEmpty { limit?.cancel() }
    case .subscribed(let id, let code, let reason):
      guard subscribing.remove(id) != nil else { throw .protocolError("an answer to no subscription") }
      guard code >= 0x80 else { return }
      down(.refused("the broker refuses the subscription (\(MQTTReason.words(code, reason)))"))
    }
  }

  private func acknowledged(_ id: UInt16, _ answer: MQTTAnswer) throws(MQTTError) {
    guard let done = waiting.removeValue(forKey: id) else {
      throw .protocolError("an acknowledgement of what is not on its way")
    }
    if waiting.isEmpty { limit?.cancel() } else { expect("no acknowledgement") }
    done(answer)
    if !queued.isEmpty, isUp {
      let (message, done) = queued.removeFirst()
      publish(message, done)
    }
  }

  private func came(_ message: MQTTMessage, _ id: UInt16?, _ isRepeated: Bool) throws(MQTTError) {
    if let id {
      guard !incoming.contains(id) else {
        // Old brokers send again what we have not acknowledged yet; it is in hand.
        guard isRepeated else { throw .init(code: 0x91, description: "two messages with one identifier") }
        return
      }
      let most = version == .v5 ? Int(MQTTOptions.receiveMaximum) : Self.maxIncoming
      guard incoming.count < most else { throw .init(code: 0x93, description: "more messages than we take at once") }
      incoming.insert(id)
    }
    let connection = generation
    onMessage(message) { [weak self] in
      // An acknowledgement on another connection would be for another message.
      guard let self, let id, self.generation == connection, self.incoming.remove(id) != nil else { return }
      self.send(.acknowledge(id: id))
    }
  }

  private func greeted(_ greeting: MQTTGreeting) {
    limit?.cancel()
    let code = greeting.code
    // 3.1.1 brokers answer 1 (unacceptable protocol version), those that know of 5 answer 0x84.
    if code == 0x84 || code == 1 {
      if search.failed(.refused, now: loop.now) { return openAgain() }
    } else {
      search.answered()
    }
    guard code == 0 else {
      // The will is to be retained: without that it may do.
      if code == 0x9A, retains {
        retains = false
        return openAgain()
      }
      let words = "the broker refuses: \(MQTTReason.words(code, greeting.reason, server: greeting.server))"
      return down(MQTTReason.stopsGreeting(code) ? .refused(words) : .unreachable(words))
    }
    guard greeting.takesQuality1 else {
      send(.disconnect(code: 0))
      return down(.refused("the broker cannot be used: \(MQTTReason.words(0x9B))"))
    }
    isUp = true
    givenID = greeting.clientID ?? givenID
    retains = greeting.retains
    maxBytes = greeting.maxBytes
    receiveMaximum = max(1, greeting.receiveMaximum)
    window = min(receiveMaximum, 64)
    keepAlive = greeting.keepAlive ?? options.map { Int($0.keepAlive) } ?? 0
    pingLater()
    onUp()
  }

  private func pingLater() {
    pinger?.cancel()
    guard keepAlive > 0 else { return }
    pinger = loop.schedule(after: .seconds(Int64(keepAlive))) { [weak self] in
      guard let self, self.isUp else { return }
      self.send(.ping)
      self.expect("no answer to a ping")
      self.pingLater()
    }
  }
}
