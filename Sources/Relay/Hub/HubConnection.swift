// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Store
import Streams
import Timing

/// The live link to a Meshpost hub: one WebSocket for batches, requests and news, both ways. Where a WebSocket does not get
/// through, `HubCarrier` does the same by HTTP, and the link is tried again now and then. Source: docs/hub-protocol.md.
final class HubConnection: Carrier, UpdatesSource {
  struct Settings: Sendable {
    var road: AuthorizedHTTP.Settings
    /// Seconds between pings on an idle link: what is half-open is noticed within that and a few seconds.
    var keepAlive: Int64
    /// `false`: HTTP only.
    var isLive: Bool
    var version: String
  }

  enum Road {
    case none
    case opening(WebSocket)
    case live(WebSocket)
    case http
  }

  /// A message from us that wants an answer.
  struct Asked {
    let done: (JSONValue?) -> Void
    let limit: ProgressLimit
  }

  /// So long nothing may move while an answer to a hello, a request or a ping is due.
  static let patience: Duration = .seconds(15)
  /// A hub that is reached by HTTP only may have been behind a bad proxy: the link is tried again.
  private static let retryLive: Duration = .seconds(900)
  private static let subprotocol = "meshpost.v1"
  /// States that are told; the newest of each name.
  static let maxStates = 16

  let kind = "hub"
  let place: String
  private let settings: Settings
  private let endpoint: (host: String, port: UInt16, tls: Bool)
  private let tls: TLSContext?
  private let path: String
  private let store: Store
  let loop: EventLoop
  private let log: Log
  let http: HubCarrier
  var road = Road.none
  private var greeting: ((Greeting) -> Void)?
  private var batches: [(number: Int, done: (Verdict) -> Void)] = []
  private var batchLimit: ProgressLimit?
  var lastNumber = 0
  var asked: [String: Asked] = [:]
  private var pinger: LoopTimer?
  /// Of the answer to a hello or a ping.
  private var pongLimit: ProgressLimit?
  private var liveAgainAt: MonotonicTime?
  private var liveTimer: LoopTimer?
  private var isCarrying = false
  private var hasToldFallBack = false
  var states: [(name: String, body: [UInt8])] = []
  private var closedBytes: UInt64 = 0
  private var hubWindow = 1
  var onLost: (Verdict) -> Void = { _ in }
  /// Nothing is wrong, but the connection should be made anew.
  var onGreetAgain: () -> Void = {}
  var onCommand: ([UInt8], @escaping ([UInt8]?) -> Void) -> Void = { _, done in done(nil) }
  var onReachable: (Bool) -> Void = { _ in }
  var onHasNew: (_ bucket: String, _ seq: Int64) -> Void = { _, _ in }

  init(_ settings: Settings, store: Store, on loop: EventLoop, log: Log) throws {
    guard let (endpoint, base) = HTTPEndpoint.parse(settings.road.url),
      case .tcp(let host, let port, let tls) = endpoint
    else {
      throw JournalUpstream.SetupError(
        description: "\(ServerAddress.shown(settings.road.url)) is no http:// or https:// URL")
    }
    self.settings = settings
    self.store = store
    self.loop = loop
    self.log = log
    self.endpoint = (host, port, tls)
    self.tls = tls ? try TLSContext(authorities: settings.road.authorities) : nil
    place = ServerAddress.shown(settings.road.url)
    path = "\(base)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    http = try HubCarrier(settings.road, store: store, on: loop)
  }

  var keepsConnection: Bool { true }
  var certificateExpiry: Int64? { tls?.peerExpiry ?? http.certificateExpiry }
  var window: Int { if case .live = road { hubWindow } else { 1 } }

  var bytesSent: UInt64 {
    switch road {
    case .opening(let socket), .live(let socket): closedBytes &+ socket.bytesSent &+ http.bytesSent
    case .none, .http: closedBytes &+ http.bytesSent
    }
  }

  /// `live` or `http`; `nil`: neither yet.
  var linkKind: String? {
    switch road {
    case .live: "live"
    case .http: "http"
    case .none, .opening: nil
    }
  }

  // MARK: Opening

  func greet(_ done: @escaping (Greeting) -> Void) {
    closeSocket()
    greeting = done
    guard settings.isLive, liveAgainAt.map({ loop.now >= $0 }) ?? true else { return greetByHTTP() }
    var headers = HTTPHeaders()
    headers.add("User-Agent", "meshpostd")
    if let file = settings.road.tokenFile {
      guard let token = SecretFile.read(file) else {
        return greeted(.failed(.stopped(reason: "the token file \(file) cannot be read")))
      }
      headers.add("Authorization", "Bearer \(token)")
    }
    let socket = WebSocket(
      WebSocket.Settings(
        host: endpoint.host, port: endpoint.port, target: "\(path)/link", headers: headers,
        subprotocol: Self.subprotocol), tls: tls, on: loop)
    // Weak: a socket that holds itself by its own closures would stay for ever, one for each connection.
    socket.onOpen = { [weak self, weak socket] in if let socket { self?.opened(socket) } }
    socket.onMessage = { [weak self, weak socket] bytes in if let socket { self?.received(bytes, on: socket) } }
    socket.onPong = { [weak self] in self?.heard() }
    socket.onEnd = { [weak self] failure in self?.ended(failure) }
    road = .opening(socket)
    socket.open()
  }

  private func greeted(_ result: Greeting) {
    let done = greeting
    greeting = nil
    done?(result)
  }

  private func opened(_ socket: WebSocket) {
    let hello = JSONWriter.object { json in
      json.field("type", "hello")
      json.field("protocol", 1)
      json.field("gateway", store.gatewayID)
      json.field("epoch", store.epoch)
      json.field("version", settings.version)
      json.field("keep_alive_s", settings.keepAlive)
    }
    socket.send(text: hello)
    pongLimit = limit(Self.patience, on: socket) { [weak self] in self?.giveUp("no welcome in time") }
  }

  /// The same by HTTP.
  private func greetByHTTP() {
    road = .http
    http.greet { [weak self] result in
      guard let self else { return }
      if case .has = result {
        self.greeted(result)
        self.onReachable(true)
        self.tellStates()
        self.liveTimer = self.liveAgainAt.map { time in
          self.loop.schedule(at: time) { [weak self] in self?.tryLiveAgain() }
        }
      } else {
        // It was not the WebSocket that did not get through.
        self.road = .none
        self.liveAgainAt = nil
        self.onReachable(false)
        self.greeted(result)
      }
    }
  }

  // MARK: The end

  /// What is half-open does not end by itself.
  private func giveUp(_ words: String) {
    switch road {
    case .opening(let socket), .live(let socket):
      socket.close()
      ended(.closed(words))
    case .none, .http: break
    }
  }

  private func ended(_ failure: WebSocketFailure) {
    let wasOpening = if case .opening = road { true } else { false }
    onReachable(false)
    forgetSocket()
    var verdict: Verdict
    switch failure {
    case .notUpgraded(let response) where response.status == 401 || response.status == 403:
      verdict = .stopped(reason: "HTTP \(response.status): check the token")
    case .notUpgraded(let response) where [429, 503].contains(response.status):
      verdict = .retry(reason: "HTTP \(response.status)", after: nil)
    case .notUpgraded, .blocked:
      // A server is there, and no WebSocket gets to it.
      if wasOpening, greeting != nil { return fallBack(failure) }
      verdict = .retry(reason: failure.description, after: nil)
    case .unreachable, .closed: verdict = .retry(reason: failure.description, after: nil)
    }
    if greeting != nil { return greeted(.failed(verdict)) }
    let waiting = batches
    batches = []
    guard let first = waiting.first else { return onLost(verdict) }
    if case .closed = failure { verdict = .hungUp(reason: failure.description) }
    // Those behind the first are void.
    first.done(verdict)
  }

  private func fallBack(_ failure: WebSocketFailure) {
    if !hasToldFallBack {
      log.notice("\(place): no live link (\(failure)): going on by plain HTTP; the link is tried again now and then")
    }
    hasToldFallBack = true
    liveAgainAt = loop.now + Self.retryLive
    greetByHTTP()
  }

  private func forgetSocket() {
    if case .opening(let socket) = road { closedBytes &+= socket.bytesSent }
    if case .live(let socket) = road { closedBytes &+= socket.bytesSent }
    road = .none
    pinger?.cancel()
    pongLimit?.cancel()
    batchLimit?.cancel()
    liveTimer?.cancel()
    isCarrying = false
    let unanswered = asked
    asked = [:]
    for question in unanswered.values {
      question.limit.cancel()
      question.done(nil)
    }
  }

  private func closeSocket() {
    switch road {
    case .opening(let socket), .live(let socket): socket.close()
    case .none, .http: break
    }
    batches = []
    forgetSocket()
  }

  func close() {
    closeSocket()
    http.close()
    greeting = nil
  }

  // MARK: Batches

  func carry(_ batch: Batch, _ done: @escaping (Verdict) -> Void) {
    guard case .live(let socket) = road else {
      if case .http = road {
        isCarrying = true
        http.carry(batch) { [weak self] verdict in
          self?.isCarrying = false
          done(verdict)
        }
        return
      }
      return done(.retry(reason: "the link is down", after: nil))
    }
    lastNumber += 1
    batches.append((lastNumber, done))
    socket.send(text: batch.encode(epoch: store.epoch, number: lastNumber))
    if batches.count == 1 { expectAnswer(on: socket) }
  }

  /// The hub's answer to the first batch under way is due. It may take as long as it likes to get there, if it moves.
  private func expectAnswer(on socket: WebSocket) {
    batchLimit?.cancel()
    guard !batches.isEmpty else { return }
    batchLimit = limit(settings.road.timeout, on: socket) { [weak self] in self?.giveUp("no answer in time") }
  }

  func limit(_ patience: Duration, on socket: WebSocket, _ giveUp: @escaping () -> Void) -> ProgressLimit {
    ProgressLimit(patience, on: loop, moved: { [weak socket] in socket?.movedBytes ?? 0 }, giveUp: giveUp)
  }

  /// By and by, when nothing else is under way.
  private func tryLiveAgain() {
    guard case .http = road, settings.isLive else { return }
    guard !isCarrying else {
      liveTimer = loop.schedule(after: Self.patience) { [weak self] in self?.tryLiveAgain() }
      return
    }
    liveAgainAt = loop.now
    onReachable(false)
    onGreetAgain()
  }

  /// An answer to a batch; `nil` when it makes no sense.
  private static func verdict(_ type: String, _ message: JSONValue) -> Verdict? {
    let words = message["error"]?.string ?? type
    switch type {
    case "taken": return message["acknowledged"]?.count.map { .acknowledged(through: $0) }
    case "refused": return .refused(status: Int(message["status"]?.integer ?? 422), reason: words)
    case "busy":
      let seconds = min(max(message["retry_after_s"]?.integer ?? 1, 0), RetryPolicy.longestRetryAfter)
      return .retry(reason: words, after: .seconds(seconds))
    default: return .retry(reason: "the hub misses what came before", after: nil)
    }
  }

  private func answered(_ type: String, _ message: JSONValue, on socket: WebSocket) {
    // Of another number: it was void by then.
    guard let first = batches.first, message["n"]?.integer == Int64(first.number) else { return }
    guard let verdict = Self.verdict(type, message) else { return giveUp("an answer that makes no sense") }
    batches.removeFirst()
    if case .acknowledged = verdict {} else { batches = [] }
    expectAnswer(on: socket)
    first.done(verdict)
  }

  // MARK: What comes

  private func received(_ bytes: [UInt8], on socket: WebSocket) {
    // `try?`: what is no JSON ends the link; there is nothing to tell it by.
    guard let message = try? JSONValue(parsing: bytes), let type = message["type"]?.string else {
      return giveUp("the hub sends what is no message")
    }
    if case .live = road { heard() }
    switch type {
    case "welcome": welcomed(message, socket)
    case "taken", "refused", "busy", "out_of_order": answered(type, message, on: socket)
    case "response":
      guard let id = message["id"]?.string, let question = asked.removeValue(forKey: id) else { return }
      question.limit.cancel()
      question.done(message["ok"]?.bool == true ? message["result"] ?? .null : nil)
    case "request": requested(message, socket)
    case "has_new":
      if let bucket = message["bucket"]?.string, let seq = message["seq"]?.integer,
        (1...CatchUp.maxSeq).contains(seq)
      {
        onHasNew(bucket, seq)
      }
    default: break  // from a newer hub
    }
  }

  private func welcomed(_ message: JSONValue, _ socket: WebSocket) {
    guard case .opening = road else { return }
    // Of nothing that can be it is not gone on from: neither from the beginning, nor anywhere else.
    guard let acknowledged = HubCarrier.acknowledged(message) else { return giveUp("a welcome that makes no sense") }
    pongLimit?.cancel()
    road = .live(socket)
    (liveAgainAt, hasToldFallBack) = (nil, false)
    hubWindow = Int(min(max(message["window"]?.integer ?? 1, 1), 16))
    heard()
    greeted(.has(acknowledged))
    onReachable(true)
    tellStates()
  }

  /// Silence for a while, then a ping, then an answer or the end.
  private func heard() {
    pongLimit?.cancel()
    pinger?.cancel()
    pinger = loop.schedule(after: .seconds(settings.keepAlive)) { [weak self] in self?.ping() }
  }

  private func ping() {
    guard case .live(let socket) = road, pongLimit?.isActive != true else { return }
    socket.ping()
    pongLimit = limit(Self.patience, on: socket) { [weak self] in self?.giveUp("no answer to a ping") }
  }

  /// The network has changed: is the link still one?
  func probe() {
    if case .live = road { ping() }
    if case .http = road { tryLiveAgain() }
  }
}
