// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import Proxies
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
  static let maxQueued = 256
  private static let maxGathered = 16384
  /// Publications under way at most; of a broker of version 3.1.1 it is not known how many it takes.
  private static let widest = (v5: 256, v3: 64)

  private let host: String
  private let port: UInt16
  private let tls: TLSContext?
  /// Of the WebSocket that carries it; `nil`: plain TCP or TLS.
  private let path: String?
  /// The way to the broker leads through it.
  private let proxy: ProxySettings?
  private let meter: TrafficMeter?
  let loop: EventLoop
  private let patience: (hello: Duration, guess: Duration)
  var stream: (any ByteStream)?
  private var decoder = MQTTDecoder(.v5)
  private var search: VersionSearch
  private var lastID: UInt16 = 0
  var waiting: [UInt16: Promise<MQTTAnswer?>] = [:]
  var subscribing: Set<UInt16> = []
  /// A subscription with less than QoS 1 ends the connection.
  public var needsQuality1 = false
  /// Messages of the broker that may wait for us.
  private(set) var maxReceived = 16
  /// Messages of the broker that are not acknowledged yet.
  var incoming: Set<UInt16> = []
  /// What the path is known to keep open, over all connections; `nil`: no pings are wanted.
  private var silences: KeepAlive?
  /// So long we may be silent at most, by what was agreed on; `nil`: for ever.
  private var agreed: Duration?
  /// When something was last sent, and when something last came.
  private var (lastSent, lastHeard) = (MonotonicTime(seconds: 0), MonotonicTime(seconds: 0))
  /// A ping has no answer yet, and this silence was before it.
  var pingedAfter: Duration?
  /// What is due from the broker.
  private var expected: String?
  /// Something is due, or nothing is any more.
  private let expectation = Waiter()
  /// The largest packet that the broker takes.
  private(set) var maxBytes: Int?
  private(set) var retains = true
  /// Whether the broker deals publications of `$share/GROUP/…` out; `nil`: it does not say, as one of version 3.1.1 cannot.
  public private(set) var sharesSubscriptions: Bool?
  /// A client id that the broker gave us.
  private var givenID: String?
  /// Publications that the broker takes at once; and those that wait for it.
  private(set) var receiveMaximum = 65535
  var aliases = TopicAliases(most: 0)
  /// Encoded, and about to go out with what comes next.
  var gathered: [UInt8] = []
  /// One publication more may be under way, or the connection has ended.
  let vacancy = Waiter()
  var queued: [(message: MQTTMessage, answer: Promise<MQTTAnswer?>)] = []
  /// Why the connection was closed from here.
  private var failure: MQTTFailure?

  public private(set) var isUp = false
  /// The broker knew us: what came for us meanwhile comes now.
  public private(set) var hasSession = false
  /// Why the last connection ended; `nil`: it has not, or was closed from here.
  public private(set) var end: MQTTFailure?
  /// Publications that may wait for their acknowledgement.
  public private(set) var window = 1
  public private(set) var bytesSent: UInt64 = 0
  /// A message came; call the closure when it is safe: only then the broker may forget it.
  public var onMessage: (MQTTMessage, _ acknowledge: @escaping () -> Void) -> Void = { _, acknowledge in acknowledge() }

  /// `meter`: counts the connections. `version`: the only one to be spoken; `nil`: 5, or 3.1.1 where that does not work.
  public convenience init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, proxy: ProxySettings? = nil,
    version: MQTTVersion? = nil, meter: TrafficMeter? = nil, on loop: EventLoop
  ) {
    self.init(
      host: host, port: port, path: path, tls: tls, proxy: proxy, version: version,
      patience: (Self.patience, Self.guessPatience), meter: meter,
      on: loop)
  }

  /// `patience`: for the answer to a hello, and to one of a version that is a guess.
  init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, proxy: ProxySettings? = nil,
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

  /// The version that is spoken.
  public var version: MQTTVersion { search.version }

  // MARK: Connecting

  /// Connects and greets; once more, with what was learnt, where the broker does not know the version or retains nothing. Then `run`.
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

  /// False: once more.
  private func greet(_ options: MQTTOptions) async throws -> Bool {
    var options = options
    if options.clientID.isEmpty { options.clientID = givenID ?? "" }
    if !retains { options.will?.retain = false }
    // Room for a longer silence if the path turns out to bear it; the broker misses us after one and a half times that.
    if let silences {
      options.keepAlive = UInt16(clamping: min(Int(options.keepAlive), 2 * Int(silences.interval.inSeconds)))
    }
    let stream = try await open()
    self.stream = stream
    decoder = MQTTDecoder(version, maxBytes: Int(options.maxBytes))
    maxReceived = options.tolerated ?? (version == .v5 ? Int(options.receiveMaximum) : 1024)
    send(.connect(options, version))
    do {
      let hello = search.isGuess ? patience.guess : patience.hello
      let greeting = try await loop.whileMoving(hello, { stream.movedBytes }) { try await self.readGreeting(stream) }
      return try greeted(greeting, options)
    } catch is TimedOut {
      if search.failed(.silent, now: loop.now) { return false }
      throw MQTTFailure.unreachable("no answer to CONNECT in time")
    } catch let end as StreamEnd {
      // Where TLS or a WebSocket did not come about, another version changes nothing.
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

  /// True: it has taken us. False: once more.
  private func greeted(_ greeting: MQTTGreeting, _ options: MQTTOptions) throws(MQTTFailure) -> Bool {
    let code = greeting.code
    // 3.1.1 brokers answer 1 (unacceptable protocol version), those that know of 5 answer 0x84.
    if code == 0x84 || code == 1 {
      if search.failed(.refused, now: loop.now) { return false }
    } else {
      search.answered()
    }
    guard code == 0 else {
      // The will is to be retained: without that it may do.
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
    receiveMaximum = max(1, greeting.receiveMaximum)
    window = min(receiveMaximum, version == .v5 ? Self.widest.v5 : Self.widest.v3)
    aliases = TopicAliases(most: greeting.topicAliases)
    let seconds = Int64(greeting.keepAlive ?? Int(options.keepAlive))
    agreed = seconds > 0 ? .seconds(seconds) : nil
    (lastSent, lastHeard, pingedAfter) = (loop.now, loop.now, nil)
    return true
  }

  // MARK: Connected

  /// Takes what comes, and keeps the connection alive, until it ends. Publications that were not acknowledged get `nil` then. When the task
  /// is cancelled it may be called again: nothing is lost.
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
        while failure == nil, self.stream === stream, let event = try decoder.next() { try take(event) }
      } catch {
        // Only a broker that knows version 5 knows this packet.
        if version == .v5 { send(.disconnect(code: error.code)) }
        throw Self.nonsense(error)
      }
      if let failure { throw failure }
      do throws(StreamEnd) {
        decoder.append(try await stream.read())
        lastHeard = loop.now
      } catch {
        if Task.isCancelled { throw CancellationError() }
        throw error
      }
    }
  }

  /// As seldom as the path and the broker allow.
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
    // A shorter silence says nothing of a longer one.
    if let silence = pingedAfter, let interval = silences?.interval, silence >= interval * 9 / 10 {
      silences?.answered(now: loop.now)
    }
    pingedAfter = nil
  }

  /// What else is known of why a broker that was pinged is gone.
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

  /// What was gathered goes out, in as few TLS records and IP packets as it fits in.
  public func flush() {
    guard !gathered.isEmpty else { return }
    bytesSent &+= UInt64(gathered.count)
    stream?.write(gathered)
    gathered.removeAll(keepingCapacity: gathered.capacity <= Self.maxGathered)
  }

  /// Gives the connection up when something is due and nothing has moved for long.
  private func awaitAnswers() async throws {
    while true {
      guard expected != nil else {
        try await expectation.wait()
        continue
      }
      var progress = Progress(Self.patience, movedBytes, now: loop.now)
      while let due = expected {
        try await expectation.wait(until: progress.nextLook(now: loop.now), on: loop)
        if progress.isOver(movedBytes, now: loop.now), expected != nil {
          throw MQTTFailure.unreachable("\(due) in time\(missed())")
        }
      }
    }
  }

  private var movedBytes: UInt64 { stream?.movedBytes ?? 0 }

  /// `nil`: nothing is due any more.
  func expect(_ words: String?) {
    let isNew = (expected == nil) != (words == nil)
    expected = words
    if isNew { expectation.resume() }
  }

  func fail(_ failure: MQTTFailure) {
    self.failure = self.failure ?? failure
    stream?.close()
  }

  /// An identifier that is not in use.
  func freshID() -> UInt16 {
    repeat {
      lastID = lastID == .max ? 1 : lastID + 1
    } while (waiting[lastID] != nil || subscribing.contains(lastID))
      && waiting.count + subscribing.count < 65535
    return lastID
  }

  /// In order, so that the last will is not published.
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
    for answer in unanswered { answer.keep(nil) }
  }
}
