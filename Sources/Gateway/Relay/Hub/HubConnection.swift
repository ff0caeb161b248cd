// SPDX-License-Identifier: MIT

import Deflate
import EventLoop
import HTTP
import JSON
import Sockets
import Store
import Timing

/// The live link to a Meshpost hub: one WebSocket for batches, requests and news, both ways. Where a WebSocket does not get
/// through, `HubCarrier` does the same by HTTP, and the link is tried again now and then. Source: docs/hub-protocol.md.
final class HubConnection: MeteredCarrier, UpdatesSource {
  struct Settings: Sendable {
    var server: AuthorizedHTTP.Settings
    /// Seconds between pings on an idle link, at most: what is half-open is noticed within that and a few seconds.
    var keepAlive: Int64
    /// `false`: HTTP only.
    var isLive: Bool
    var version: String
    /// The upstream's: another one may lead to the same hub.
    var name: String
  }

  /// How the hub is reached.
  enum Route {
    case none
    case live(WebSocket)
    case http
  }

  /// So long nothing may move while an answer to a hello, a request or a ping is due.
  static let patience: Duration = .seconds(15)
  /// A hub that is reached by HTTP only may have been behind a bad proxy: the link is tried again.
  static let retryLive: Duration = .seconds(900)
  static let subprotocol = "meshpost.v1"
  /// Windows of 4 KiB up and of 1 KiB down: some 38 KiB while a link is open (docs/decisions/0016).
  static let compression = PerMessageDeflate.Offer(clientBits: 12, serverBits: 10, dictionary: true)
  /// States that are told; the newest of each name.
  static let maxStates = 16
  /// Messages before the welcome, of a hub that has none to send.
  static let maxBeforeWelcome = 64
  /// Bytes for each message or ping besides its own: the frame, and what it costs to look at.
  private static let frameCost = 32

  let kind = "hub"
  let place: String
  let settings: Settings
  let endpoint: (host: String, port: UInt16, tls: Bool)
  let tls: TLSContext?
  let path: String
  let store: Store
  let loop: EventLoop
  let log: Log
  let http: HubOverHTTP
  let meter = TrafficMeter()
  var way = Route.none
  /// Batches that have no answer yet, in order.
  private var batches: [(number: Int, lane: Lane?, last: Int64, answer: Promise<Verdict>)] = []
  var lastNumber = 0
  private var batchesTaken: UInt64 = 0
  /// The hub's requests that are being carried out, and the ends of answers that may not have gone out, as of `bytesSent`.
  var carriedOut = 0
  var answerEnds: [UInt64] = []
  /// One was carried out.
  let answered = Waiter()
  /// Questions that have no answer yet.
  var asked: [String: Promise<JSONValue?>] = [:]
  var lastHeard = MonotonicTime(seconds: 0)
  /// Bytes that the hub may say without being asked, over all connections: 1 MiB at once, and 8 KiB a second.
  private var unasked = Ration(most: 1 << 20, oneIn: .microseconds(122))
  private var unaskedLines = Ration.hourly
  /// The answer to a ping came, or the link is to show that it lives.
  let stirred = Waiter()
  private var (isPinged, isProbed) = (false, false)
  /// What the path is known to keep open, over all connections.
  private var silences: KeepAlive
  var liveAgainAt: MonotonicTime?
  var hasToldFallBack = false
  /// The next link takes the place of the one that the hub has.
  var takesLinkBack = false
  var rivalLines = Ration.hourly
  /// Why there is no live link, if an operator can do something about it.
  var linkTrouble: String?
  var states: [(name: String, body: [UInt8])] = []
  var closedBytes: UInt64 = 0
  var hubWindow = 1
  weak var updates: (any UpdatesListener)?
  weak var commands: (any CommandTaker)?

  init(_ settings: Settings, store: Store, on loop: EventLoop, log: Log) throws {
    guard let (endpoint, base) = HTTPEndpoint.parse(settings.server.url),
      case .tcp(let host, let port, let tls) = endpoint
    else {
      throw Upstream.SetupError(
        description: "\(ServerAddress.shown(settings.server.url)) is not an http:// or https:// URL")
    }
    self.settings = settings
    silences = KeepAlive(longest: .seconds(settings.keepAlive))
    self.store = store
    self.loop = loop
    self.log = log
    self.endpoint = (host, port, tls)
    self.tls = tls ? try TLSContext(authorities: settings.server.authorities) : nil
    place = ServerAddress.shown(settings.server.url)
    path = "\(base)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    http = try HubOverHTTP(settings.server, meter: meter, store: store, on: loop)
  }

  var keepsConnection: Bool { true }
  var serverKeepsCount: Bool { true }
  var updatesSource: (any UpdatesSource)? { self }
  /// Questions and states may not get through although events do.
  var minorTrouble: String? { http.trouble ?? linkTrouble }
  var certificateExpiry: Int64? { tls?.peerExpiry ?? http.certificateExpiry }
  var window: Int { if case .live = way { hubWindow } else { 1 } }

  var bytesSent: UInt64 {
    if case .live(let socket) = way { return closedBytes &+ socket.bytesSent &+ http.bytesSent }
    return closedBytes &+ http.bytesSent
  }

  /// The kernel of a proxy, which may be on this machine, says nothing of the line behind it.
  var hasArrived: Bool {
    guard settings.server.proxy == nil, case .live(let socket) = way else { return false }
    return socket.acknowledgedBytes == socket.bytesSent
  }

  /// `live` or `http`; `nil`: neither yet.
  var link: String? {
    switch way {
    case .live: "live"
    case .http: "http"
    case .none: nil
    }
  }

  // MARK: The link, while it is there

  func hold() async throws(CancellationError) -> ConnectionEnd {
    updates?.reachable(true)
    defer { updates?.reachable(false) }
    publishStates()
    switch way {
    case .none: return .lost(.retry(reason: "the link is down", after: nil))
    case .live(let socket): return try await holdLive(socket)
    case .http:
      guard let liveAgainAt, settings.isLive else {
        while !http.isPutBack, loop.now < http.compareAgainAt {
          try await stirred.wait(until: http.compareAgainAt, on: loop)
        }
        return .outdated
      }
      // By and by, or when the network has changed.
      try await stirred.wait(until: liveAgainAt, on: loop)
      self.liveAgainAt = loop.now
      return .outdated
    }
  }

  private func holdLive(_ socket: WebSocket) async throws(CancellationError) -> ConnectionEnd {
    do {
      try await loop.race({ try await self.receive(on: socket) }, { try await self.keepAlive(socket) })
      return .outdated
    } catch {
      if let cancelled = error as? CancellationError { throw cancelled }
      if let nonsense = error as? Nonsense { socket.close(.closed(nonsense.message)) }
      let failure =
        (error as? Nonsense).map { WebSocketFailure.closed($0.message) } ?? error as? WebSocketFailure ?? .cancelled
      return lost(failure)
    }
  }

  private func receive(on socket: WebSocket) async throws {
    while true {
      let event = try await socket.next()
      lastHeard = loop.now
      if isPinged { stirred.resume() }
      switch event {
      case .message(let bytes):
        if try !take(Self.message(bytes), socket) { try await slowDown(bytes.count) }
      case .ping(let bytes): try await slowDown(bytes)
      case .pong: break
      }
      try await untilRoom(on: socket)
    }
  }

  /// What nobody has asked for is read no faster than a metered line can bear: the rest waits at the hub.
  private func slowDown(_ bytes: Int) async throws(CancellationError) {
    let pause = unasked.wait(for: Int64(bytes + Self.frameCost), at: loop.now)
    guard pause > .zero else { return }
    if unaskedLines.take(at: loop.now) {
      log.warning(
        "\(place): the hub says without being asked more than 8 KiB a second: it is read no faster (logged at most once an hour)"
      )
    }
    try await loop.sleep(for: pause)
  }

  /// Silence for a while, then a ping, then an answer or the end.
  private func keepAlive(_ socket: WebSocket) async throws {
    while true {
      while !isProbed, loop.now < lastHeard + silences.interval {
        try await stirred.wait(until: lastHeard + silences.interval, on: loop)
      }
      isProbed = false
      let (before, silence) = (lastHeard, loop.now - lastHeard)
      isPinged = true
      defer { isPinged = false }
      socket.ping()
      do {
        try await loop.whileMoving(Self.patience, { socket.movedBytes }) {
          while self.lastHeard == before { try await self.stirred.wait() }
        }
        silences.answered(now: loop.now)
      } catch is TimedOut {
        if silences.unanswered(after: silence, now: loop.now) {
          log.info("\(place): a silence of \(Int(silence.inSeconds)) s ended the link; \(silences)")
        }
        throw WebSocketFailure.closed("no answer to a ping")
      }
    }
  }

  /// The network has changed: is the link still one?
  func probe() {
    if case .live = way { isProbed = true }
    stirred.resume()
  }

  /// Whether the hub was asked for it.
  private func take(_ message: JSONValue, _ socket: WebSocket) throws(Nonsense) -> Bool {
    // The number of a batch: all of it is taken.
    if let number = message.count { return try answered(number) { .acknowledged(through: $0) } }
    switch message["type"]?.string ?? "" {
    case "taken", "refused", "busy", "out_of_order", "conflict":
      return try answered(message["n"]?.count) { _ in Self.verdict(message["type"]?.string ?? "", message) }
    case "response":
      guard let id = message["id"]?.string, let question = asked.removeValue(forKey: id) else { return false }
      question.keep(message["ok"]?.bool == true ? message["result"] ?? .null : nil)
      return true
    case "request": requested(message, socket)
    case "has_new":
      if let bucket = message["bucket"]?.string, let seq = message["seq"]?.integer,
        (1...CatchUp.maxSeq).contains(seq)
      {
        updates?.hasNew(bucket, seq)
      }
    default: break  // from a newer hub
    }
    return false
  }

  // MARK: Batches

  func carry(_ batch: Batch) async -> Verdict {
    switch way {
    case .none: return .retry(reason: "the link is down", after: nil)
    case .http: return await http.carry(batch)
    case .live(let socket):
      let answer = Promise<Verdict>()
      lastNumber += 1
      batches.append((lastNumber, batch.lane, batch.events.last?.seq ?? 0, answer))
      socket.send(text: batch.encode(of: store, number: lastNumber))
      do {
        // It may take as long as it likes to get there, if it moves, or if those before it are taken. What else goes to and fro is no progress.
        let end = socket.bytesSent
        let moved = { [weak self] in min(end, socket.acknowledgedBytes) &+ (self?.batchesTaken ?? 0) << 32 }
        return try await loop.whileMoving(settings.server.timeout, moved) { try await answer.value() }
      } catch is TimedOut {
        socket.close(.closed("no answer in time"))
        return .hungUp(reason: WebSocketFailure.closed("no answer in time").description)
      } catch {
        return .retry(reason: "void", after: nil)
      }
    }
  }

  /// False: it answers nothing.
  private func answered(_ number: Int64?, _ verdict: (_ last: Int64) -> Verdict?) throws(Nonsense) -> Bool {
    // Of another number: it was void by then.
    guard let first = batches.first, number == Int64(first.number) else { return false }
    guard let verdict = verdict(first.last) else {
      throw Nonsense(message: "an invalid answer")
    }
    batches.removeFirst()
    if case .acknowledged = verdict { batchesTaken &+= 1 }
    // Those behind one that is not taken are void.
    switch verdict {
    case .acknowledged: break
    case .refused: batches.removeAll { $0.lane == first.lane }
    case .retry, .busy, .hungUp, .diverged, .stopped: batches = []
    }
    first.answer.keep(verdict)
    return true
  }

  // MARK: The end

  private func lost(_ failure: WebSocketFailure) -> ConnectionEnd {
    let reason = failure.description
    let waiting = batches
    closeLink()
    guard let first = waiting.first else { return .lost(.retry(reason: reason, after: nil)) }
    // Those behind the first are void.
    if !first.answer.isKept { first.answer.keep(.hungUp(reason: reason)) }
    return .lost(nil)
  }

  func closeLink() {
    if case .live(let socket) = way {
      closedBytes &+= socket.bytesSent
      socket.close()
    }
    way = .none
    (batches, answerEnds, isProbed) = ([], [], false)
    let unanswered = asked
    asked = [:]
    for question in unanswered.values { question.keep(nil) }
  }

  func close() {
    closeLink()
    http.close()
  }
}
