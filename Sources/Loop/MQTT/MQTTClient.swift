// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import ProxyTunnel
import Sockets
import Timing

/// One connection to a broker: MQTT 5, or 3.1.1 if the broker does not support 5. Publishes with QoS 1, any number at
/// once; the owner respects `window`.
///
/// It neither reconnects nor stores anything; its owner does. Two capabilities are found by a further connection:
/// whether the broker supports version 5, and retained messages.
public final class MQTTClient {
  private static let connectLimit: Duration = .seconds(15)
  /// Time-out for the answer to CONNECT, PINGREQ and PUBLISH while nothing is transferred.
  private static let patience: Duration = .seconds(20)
  /// For CONNECT of a version that the broker may not support.
  private static let guessPatience: Duration = .seconds(10)
  static let maxQueued = 256
  private static let maxGathered = 16384
  /// Maximum number of publications in flight; a broker of version 3.1.1 does not state its limit.
  private static let widest = (v5: 256, v3: 64)

  private let host: String
  private let port: UInt16
  private let tls: TLSContext?
  /// Of the WebSocket that carries it; `nil`: plain TCP or TLS.
  private let path: String?
  /// The proxy, if any.
  private let proxy: TunnelSettings?
  private let meter: TrafficMeter?
  let loop: EventLoop
  private let patience: (hello: Duration, guess: Duration)
  var stream: (any ByteStream)?
  private var decoder = MQTTDecoder(.v5)
  private var search: VersionSearch
  var lastID: UInt16 = 0
  var waiting: [UInt16: Promise<MQTTAnswer?>] = [:]
  var subscribing: Set<UInt16> = []
  /// A subscription with less than QoS 1 ends the connection.
  public var needsQuality1 = false
  /// Received messages that are not acknowledged yet.
  var incoming: Set<UInt16> = []
  /// Bytes of received messages that the owner has in hand, and their maximum.
  var heldBytes = 0
  private(set) var maxHeldBytes = MQTTOptions(clientID: "").maxHeldBytes
  /// Resumed when the owner has let go of a message, or the connection has ended.
  let released = Waiter()
  /// The idle time that the path supports, learnt over all connections; `nil`: no pings.
  private var silences: KeepAlive?
  /// The negotiated keep-alive; `nil`: none.
  private var agreed: Duration?
  /// Times of the last packet sent and received.
  private var (lastSent, lastHeard) = (MonotonicTime(seconds: 0), MonotonicTime(seconds: 0))
  /// A ping without an answer, and the silence before it.
  var pingedAfter: Duration?
  /// Answers that the broker owes.
  var expected: String?
  /// Answers that came, other than to pings.
  var answers: UInt64 = 0
  /// Resumed when an answer becomes due, or none is due any more.
  let expectation = Waiter()
  /// The broker's maximum packet size.
  private(set) var maxBytes: Int?
  private(set) var retains = true
  /// Whether the broker supports `$share/GROUP/…`; `nil`: unknown, as with version 3.1.1.
  public private(set) var sharesSubscriptions: Bool?
  /// The client id that the broker assigned.
  private var givenID: String?
  var aliases = TopicAliases(most: 0)
  /// Encoded output that is sent with the next packet.
  var gathered: [UInt8] = []
  /// Resumed when one more publication may be sent, or the connection has ended.
  let vacancy = Waiter()
  var queued: [(message: MQTTMessage, answer: Promise<MQTTAnswer?>)] = []
  /// Why the client closed the connection.
  private var failure: MQTTFailure?

  public private(set) var isUp = false
  /// The broker has resumed the session: queued messages follow.
  public private(set) var hasSession = false
  /// Why the last connection ended; `nil`: it has not, or the client closed it.
  public private(set) var end: MQTTFailure?
  /// Maximum number of unacknowledged publications.
  public private(set) var window = 1
  public private(set) var bytesSent: UInt64 = 0
  /// Called for each message; call the closure once it is stored: then the broker may delete it.
  public var onMessage: (MQTTMessage, _ acknowledge: @escaping () -> Void) -> Void = { _, acknowledge in acknowledge() }

  /// `meter`: counts its traffic. `version`: the only one to use; `nil`: 5, or 3.1.1 if that fails.
  public convenience init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, proxy: TunnelSettings? = nil,
    version: MQTTVersion? = nil, meter: TrafficMeter? = nil, on loop: EventLoop
  ) {
    self.init(
      host: host, port: port, path: path, tls: tls, proxy: proxy, version: version,
      patience: (Self.patience, Self.guessPatience), meter: meter,
      on: loop)
  }

  /// `patience`: time-out of CONNECT, and of one whose version is a guess.
  init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, proxy: TunnelSettings? = nil,
    version: MQTTVersion? = nil, patience: (hello: Duration, guess: Duration), meter: TrafficMeter? = nil,
    on loop: EventLoop
  ) {
    self.meter = meter
    self.path = path
    self.proxy = proxy
    self.host = host
    self.port = port
    self.tls = tls
    self.loop = loop
    self.patience = patience
    search = VersionSearch(version)
  }

  /// The version in use.
  public var version: MQTTVersion { search.version }

  // MARK: Connecting

  /// Connects; retries once if the broker rejects the version or retained messages. Then call `run`.
  public func connect(_ options: MQTTOptions) async throws(MQTTFailure) {
    close()
    end = nil
    search.begins(now: loop.now)
    let longest = options.keepAlive > 0 ? Duration.seconds(Int64(options.keepAlive)) : nil
    if silences?.longest != longest { silences = longest.map { KeepAlive(longest: $0) } }
    do {
      while try await !greet(options) { drop() }
    } catch {
      drop()
      throw error as? MQTTFailure ?? .unreachable("given up")
    }
  }

  /// False: try again.
  private func greet(_ options: MQTTOptions) async throws -> Bool {
    var options = options
    if options.clientID.isEmpty { options.clientID = givenID ?? "" }
    if !retains { options.will?.retain = false }
    // The keep-alive leaves room for longer silences; the broker disconnects after one and a half times that.
    if let silences {
      options.keepAlive = UInt16(clamping: min(Int(options.keepAlive), 2 * Int(silences.interval.inSeconds)))
    }
    let stream = try await open()
    self.stream = stream
    decoder = MQTTDecoder(version, maxBytes: Int(options.maxBytes))
    maxHeldBytes = options.maxHeldBytes
    send(.connect(options, version))
    do {
      let hello = search.isGuess ? patience.guess : patience.hello
      let greeting = try await loop.whileMoving(hello, { stream.movedBytes }) { try await self.readGreeting(stream) }
      return try greeted(greeting, options)
    } catch is TimedOut {
      if search.failed(.silent, now: loop.now) { return false }
      throw MQTTFailure.unreachable("no answer to CONNECT in time")
    } catch let end as StreamEnd {
      // A failure of TLS or of the WebSocket does not depend on the version.
      if stream.pendingBytes == 0, end != .cancelled, search.failed(.hungUp, now: loop.now) { return false }
      throw Self.tooEarly(end.reason ?? "the broker closed the connection")
    } catch let error as MQTTError {
      throw Self.nonsense(error)
    }
  }

  private static func tooEarly(_ words: String) -> MQTTFailure {
    .unreachable(words + " before it accepted this client: does it require TLS, or a client certificate?")
  }

  private static func nonsense(_ error: MQTTError) -> MQTTFailure {
    .unreachable("the broker sends data that is not MQTT: \(error)")
  }

  private func open() async throws -> any ByteStream {
    if let path {
      let settings = WebSocket.Settings(host: host, port: port, target: path, subprotocol: "mqtt", proxy: proxy)
      let socket = WebSocket(settings, tls: tls, meter: meter, on: loop)
      do throws(WebSocketFailure) {
        try await socket.open()
      } catch {
        throw Self.tooEarly(error.description)
      }
      return WebSocketStream(socket)
    }
    let socket: Int32
    meter?.attempts()
    do throws(Connector.Failure) {
      socket = try await loop.connect(host: host, port: port, through: proxy, timeout: Self.connectLimit)
    } catch {
      meter?.failed()
      throw MQTTFailure.unreachable(error.description)
    }
    let plain = SocketStream(socket, meter: meter, on: loop)
    guard let tls else { return plain }
    guard let secure = TLSStream(plain, tls, host: host) else { throw MQTTFailure.unreachable("TLS is not set up") }
    return secure
  }

  private func readGreeting(_ stream: any ByteStream) async throws -> MQTTGreeting {
    while true {
      switch try decoder.next() {
      case .connected(let greeting): return greeting
      case .disconnected(let code, let reason, let server): throw Self.ended(code, reason, server)
      case nil: decoder.append(try await stream.read())
      default: throw MQTTError.protocolError("a packet before CONNACK")
      }
    }
  }

  static func ended(_ code: UInt8, _ reason: String?, _ server: String?) -> MQTTFailure {
    let words = "the broker ends the connection: \(MQTTReason.words(code, reason, server: server))"
    return MQTTReason.stopsConnection(code) ? .refused(words) : .unreachable(words)
  }

  /// True: accepted. False: try again.
  private func greeted(_ greeting: MQTTGreeting, _ options: MQTTOptions) throws(MQTTFailure) -> Bool {
    let code = greeting.code
    // 3.1.1 brokers answer 1 (unacceptable protocol version), those that know of 5 answer 0x84.
    if code == 0x84 || code == 1 {
      if search.failed(.refused, now: loop.now) { return false }
    } else {
      search.answered()
    }
    guard code == 0 else {
      // The will asks to be retained; without that it may be accepted.
      if code == 0x9A, retains {
        retains = false
        return false
      }
      let words = "the broker refuses: \(MQTTReason.words(code, greeting.reason, server: greeting.server))"
      throw MQTTReason.stopsGreeting(code) ? .refused(words) : .unreachable(words)
    }
    guard greeting.takesQuality1 else {
      send(.disconnect(code: 0))
      throw .refused("the broker cannot be used: \(MQTTReason.words(0x9B))")
    }
    (isUp, hasSession) = (true, greeting.hasSession)
    givenID = greeting.clientID ?? givenID
    retains = greeting.retains
    sharesSubscriptions = greeting.sharesSubscriptions
    maxBytes = greeting.maxBytes
    window = min(max(1, greeting.receiveMaximum), version == .v5 ? Self.widest.v5 : Self.widest.v3)
    aliases = TopicAliases(most: greeting.topicAliases)
    let seconds = Int64(greeting.keepAlive ?? Int(options.keepAlive))
    agreed = seconds > 0 ? .seconds(seconds) : nil
    (lastSent, lastHeard, pingedAfter) = (loop.now, loop.now, nil)
    return true
  }

  // MARK: Connected

  /// Handles incoming packets and keeps the connection alive until it ends. Unacknowledged publications then get `nil`. After
  /// cancellation it may be called again: nothing is lost.
  public func run() async throws(MQTTFailure) {
    do {
      try await loop.race({ try await self.receive() }, { try await self.ping() }, { try await self.awaitAnswers() })
    } catch {
      if error is CancellationError, isUp { return }
      let words = (error as? StreamEnd)?.reason ?? "the broker closed the connection"
      let failure = failure ?? error as? MQTTFailure ?? .unreachable(words)
      end = failure
      drop()
      throw failure
    }
  }

  private func receive() async throws {
    guard let stream else { throw StreamEnd.cancelled }
    while true {
      do throws(MQTTError) {
        while failure == nil, self.stream === stream, !isFull(stream), let event = try decoder.next() {
          try take(event)
        }
      } catch {
        // Only MQTT 5 has this packet from a broker.
        if version == .v5 { send(.disconnect(code: error.code)) }
        throw Self.nonsense(error)
      }
      if let failure { throw failure }
      do throws(StreamEnd) {
        guard try await hasRoom(stream) else { continue }
        decoder.append(try await stream.read())
        lastHeard = loop.now
      } catch {
        if Task.isCancelled { throw CancellationError() }
        throw error
      }
    }
  }

  /// As rarely as the path and the broker allow.
  private func ping() async throws {
    while let interval = [silences?.interval, agreed].compactMap({ $0 }).min() {
      guard loop.now >= lastSent + interval else {
        try await loop.sleep(until: lastSent + interval)
        continue
      }
      pingedAfter = loop.now - max(lastSent, lastHeard)
      send(.ping)
      expect("no answer to a ping")
    }
    try await Waiter().wait()
  }

  func ponged() {
    // A shorter silence proves nothing about a longer one.
    if let silence = pingedAfter, let interval = silences?.interval, silence >= interval * 9 / 10 {
      silences?.answered(now: loop.now)
    }
    pingedAfter = nil
  }

  /// Further facts about the loss of a broker that was pinged.
  private func missed() -> String {
    guard let silence = pingedAfter, silences?.unanswered(after: silence, now: loop.now) == true, let silences else {
      return ""
    }
    return " after a silence of \(Int(silence.inSeconds)) s; \(silences)"
  }

  func send(_ command: MQTTCommand) {
    gather(command.encode())
    flush()
  }

  func gather(_ bytes: [UInt8]) {
    lastSent = loop.now
    gathered += bytes
    if gathered.count >= Self.maxGathered { flush() }
  }

  /// Sends the collected output in as few TLS records and IP packets as possible.
  public func flush() {
    guard !gathered.isEmpty else { return }
    bytesSent &+= UInt64(gathered.count)
    stream?.write(gathered)
    gathered.removeAll(keepingCapacity: gathered.capacity <= Self.maxGathered)
  }

  /// Closes the connection if an answer is overdue and nothing was transferred for long.
  private func awaitAnswers() async throws {
    while true {
      guard expected != nil else {
        try await expectation.wait()
        continue
      }
      // An answer is progress, however few bytes it has.
      let moved = { self.movedBytes &+ self.answers << 32 }
      var progress = Progress(Self.patience, moved(), now: loop.now)
      while let due = expected {
        try await expectation.wait(until: progress.nextLook(now: loop.now), on: loop)
        if progress.isOver(moved(), now: loop.now), expected != nil {
          throw MQTTFailure.unreachable("\(due) in time\(missed())")
        }
      }
    }
  }

  private var movedBytes: UInt64 { stream?.movedBytes ?? 0 }

  func fail(_ failure: MQTTFailure) {
    self.failure = self.failure ?? failure
    stream?.close()
  }

  /// A clean DISCONNECT, so that the will is not published.
  public func close() {
    if isUp { send(.disconnect(code: 0)) }
    drop()
  }

  private func drop() {
    expected = nil
    stream?.close()
    stream = nil
    isUp = false
    failure = nil
    let unanswered = Array(waiting.values) + queued.map(\.answer)
    waiting = [:]
    subscribing = []
    incoming = []
    (queued, gathered, pingedAfter) = ([], [], nil)
    vacancy.resume()
    released.resume()
    for answer in unanswered { answer.keep(nil) }
  }
}
