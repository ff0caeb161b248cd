// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import Streams
import Timing

/// What a broker is told at the beginning.
public struct MQTTOptions: Equatable, Sendable {
  /// Messages from the broker that may wait for our acknowledgement.
  static let receiveMaximum: UInt16 = 16

  public var clientID: String
  public var user: String?
  public var password: [UInt8]?
  /// Seconds; 0: no pings.
  public var keepAlive: UInt16
  /// Seconds that the broker keeps what comes for us while we are away (MQTT 5).
  public var sessionExpiry: UInt32
  public var will: MQTTMessage?

  public init(
    clientID: String, user: String? = nil, password: [UInt8]? = nil, keepAlive: UInt16 = 300,
    sessionExpiry: UInt32 = 86400, will: MQTTMessage? = nil
  ) {
    self.clientID = clientID
    self.user = user
    self.password = password
    self.keepAlive = keepAlive
    self.sessionExpiry = sessionExpiry
    self.will = will
  }
}

/// Why there is no connection, or none any more.
public enum MQTTFailure: Error, Equatable, Sendable, CustomStringConvertible {
  /// No network, time-out, a broker that is going down: worth trying again.
  case unreachable(String)
  /// The broker does not take us: user, password, rights.
  case refused(String)

  public var description: String {
    switch self {
    case .unreachable(let words), .refused(let words): words
    }
  }
}

/// One connection to a broker: MQTT 5, or 3.1.1 where the broker does not know 5. Publishes with QoS 1, any number at
/// once; who uses it keeps to `window`.
///
/// It does not connect again by itself, and keeps nothing: who uses it does.
public final class MQTTClient {
  private static let connectLimit: Duration = .seconds(15)
  /// The broker's answer to hello, to a ping, to a publication.
  private static let patience: Duration = .seconds(20)

  private let host: String
  private let port: UInt16
  private let tls: TLSContext?
  /// Of the WebSocket that carries it; `nil`: plain TCP or TLS.
  private let path: String?
  private let loop: EventLoop
  private var connector: Connector?
  private var stream: (any ByteStream)?
  private var decoder = MQTTDecoder(.v5)
  private var options: MQTTOptions?
  private var limit: LoopTimer?
  private var pinger: LoopTimer?
  private var lastID: UInt16 = 0
  private var waiting: [UInt16: (UInt8) -> Void] = [:]
  private var keepAlive: UInt16 = 0
  /// The largest packet that the broker takes.
  private var mostBytes: Int?
  /// Publications that the broker takes at once; and those that wait for it.
  private var receiveMaximum = 65535
  private var queued: [(message: MQTTMessage, done: (UInt8) -> Void)] = []
  private static let mostQueued = 256
  /// Counts connections.
  private var generation = 0

  public private(set) var version = MQTTVersion.v5
  public private(set) var isUp = false
  /// Publications that may wait for their acknowledgement.
  public private(set) var window = 1
  public private(set) var bytesSent: UInt64 = 0
  public var onUp: () -> Void = {}
  /// Told once; publications that were not acknowledged hear nothing more.
  public var onDown: (MQTTFailure) -> Void = { _ in }
  /// A message came; call the closure when it is safe: only then the broker may forget it.
  public var onMessage: (MQTTMessage, _ acknowledge: @escaping () -> Void) -> Void = { _, acknowledge in acknowledge() }

  public init(host: String, port: UInt16, path: String? = nil, tls: TLSContext?, on loop: EventLoop) {
    self.path = path
    self.host = host
    self.port = port
    self.tls = tls
    self.loop = loop
  }

  public func connect(_ options: MQTTOptions) {
    close()
    self.options = options
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
    stream?.onBytes = { [weak self] bytes in self?.received(bytes) }
    stream?.onClose = { [weak self] words in
      self?.stream = nil
      self?.ended(words ?? "the broker closed the connection")
    }
    stream?.start()
    if let options { send(.connect(options, version)) }
    expect("no answer to hello")
  }

  private func ended(_ words: String) {
    let hint = isUp ? "" : ", before it took us: does it want TLS, or a certificate of ours?"
    down(.unreachable(words + hint))
  }

  private func send(_ command: MQTTCommand) {
    let bytes = command.encode()
    bytesSent &+= UInt64(bytes.count)
    stream?.write(bytes)
  }

  /// Something is due from the broker.
  private func expect(_ words: String) {
    limit?.cancel()
    limit = loop.schedule(after: Self.patience) { [weak self] in self?.down(.unreachable("\(words) in time")) }
  }

  /// `done` hears the broker's code: below 0x80 it has the message.
  public func publish(_ message: MQTTMessage, _ done: @escaping (UInt8) -> Void) {
    guard isUp else { return }
    // More at once than the broker takes would end the connection: the rest waits for its turn.
    guard waiting.count < receiveMaximum else {
      guard queued.count < Self.mostQueued else { return loop.later { done(0x97) } }
      queued.append((message, done))
      return
    }
    repeat { lastID = lastID == .max ? 1 : lastID + 1 } while waiting[lastID] != nil && waiting.count < 65535
    let command = MQTTCommand.publish(message, id: lastID, isRepeated: false, version)
    // A broker would end the connection over it, again and again.
    if let mostBytes, command.encode().count > mostBytes {
      loop.later { done(0x95) }
      return
    }
    waiting[lastID] = done
    send(command)
    if waiting.count == 1 { expect("no acknowledgement") }
    pingLater()
  }

  public func subscribe(_ topic: String) {
    guard isUp else { return }
    lastID = lastID == .max ? 1 : lastID + 1
    send(.subscribe(topic: topic, id: lastID, version))
  }

  /// In order, so that the last will is not published.
  public func close() {
    if isUp { send(.disconnect) }
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
      while stream != nil, let event = try decoder.next() { take(event) }
    } catch {
      down(.unreachable("the broker sends what is no MQTT: \(error)"))
    }
  }

  private func take(_ event: MQTTEvent) {
    switch event {
    case .connected(let code, _, let receiveMaximum, let keepAlive, let mostBytes):
      self.mostBytes = mostBytes.map { Int($0) }
      greeted(code, receiveMaximum, keepAlive)
    case .acknowledged(let id, let code):
      guard let done = waiting.removeValue(forKey: id) else { return }
      if waiting.isEmpty { limit?.cancel() } else { expect("no acknowledgement") }
      done(code)
      if !queued.isEmpty, isUp {
        let (message, done) = queued.removeFirst()
        publish(message, done)
      }
    case .message(let message, let id):
      let connection = generation
      onMessage(message) { [weak self] in
        // An acknowledgement on another connection would be for another message.
        guard let self, let id, self.generation == connection else { return }
        self.send(.acknowledge(id: id))
      }
    case .pong: if waiting.isEmpty { limit?.cancel() }
    case .subscribed(_, let code): if code >= 0x80 { down(.refused("the broker refuses the subscription (\(code))")) }
    case .disconnected(let code): down(.unreachable("the broker ends the connection (\(Self.words(code)))"))
    }
  }

  private func greeted(_ code: UInt8, _ receiveMaximum: UInt16, _ keepAlive: UInt16?) {
    limit?.cancel()
    // 3.1.1 brokers answer 1 (unacceptable protocol version), those that know of 5 answer 0x84.
    if code != 0, version == .v5, code == 0x84 || code == 1 {
      version = .v3
      guard let options else { return }
      return connect(options)
    }
    guard code == 0 else {
      let words = "the broker refuses: \(Self.words(code))"
      let isOurs = [4, 5, 0x85, 0x86, 0x87, 0x8A, 0x8C].contains(code)
      return down(isOurs ? .refused(words) : .unreachable(words))
    }
    isUp = true
    window = Int(min(receiveMaximum, 64))
    self.receiveMaximum = max(1, Int(receiveMaximum))
    self.keepAlive = keepAlive ?? options?.keepAlive ?? 0
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

  /// Codes of CONNACK (3.1.1 and 5), PUBACK and DISCONNECT.
  static func words(_ code: UInt8) -> String {
    switch code {
    case 2, 0x85: "the client id is not allowed"
    case 3, 0x88: "the server is unavailable"
    case 4, 0x86: "user or password is wrong"
    case 5, 0x87: "not authorised"
    case 0x8A: "banned"
    case 0x8B: "it is shutting down"
    case 0x8D: "no ping came in time"
    case 0x8E: "another client took over this client id"
    case 0x95: "the packet is too large"
    case 0x97: "a quota is exceeded"
    default: "code \(code)"
    }
  }
}
