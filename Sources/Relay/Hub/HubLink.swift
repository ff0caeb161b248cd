// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Store
import Streams
import Timing

/// The live link to a Meshpost hub: one WebSocket for batches, requests and news, both ways. Where a WebSocket does not get
/// through, `HubCarrier` does the same by HTTP, and the link is tried again now and then. Source: docs/hub-protocol.md.
final class HubLink: Carrier, UpdatesSource {
  struct Settings: Sendable {
    var road: HTTPRoad.Settings
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
    let timer: LoopTimer
  }

  /// An answer to a request, and to a ping, must come within.
  static let patience: Duration = .seconds(15)
  /// A hub that is reached by HTTP only may have been behind a bad proxy: the link is tried again.
  private static let retryLive: Duration = .seconds(900)
  private static let subprotocol = "meshpost.v1"
  /// States that are told; the newest of each name.
  static let mostStates = 16

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
  private var batches: [(number: Int, done: (Verdict) -> Void, timer: LoopTimer)] = []
  var lastNumber = 0
  var asked: [String: Asked] = [:]
  private var pinger: LoopTimer?
  private var pongLimit: LoopTimer?
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
  var roadName: String? {
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
    pongLimit = loop.schedule(after: Self.patience) { [weak self] in self?.giveUp("no welcome in time") }
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
    let verdict: Verdict
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
    for batch in waiting { batch.timer.cancel() }
    // Those behind the first are void.
    if let first = waiting.first { first.done(verdict) } else { onLost(verdict) }
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
    liveTimer?.cancel()
    isCarrying = false
    let unanswered = asked
    asked = [:]
    for question in unanswered.values {
      question.timer.cancel()
      question.done(nil)
    }
  }

  private func closeSocket() {
    switch road {
    case .opening(let socket), .live(let socket): socket.close()
    case .none, .http: break
    }
    for batch in batches { batch.timer.cancel() }
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
    let timer = loop.schedule(after: settings.road.timeout) { [weak self] in self?.giveUp("no answer in time") }
    batches.append((lastNumber, done, timer))
    socket.send(text: batch.encode(epoch: store.epoch, number: lastNumber))
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

  private func answered(_ type: String, _ message: JSONValue) {
    // Of another number: it was void by then.
    guard let first = batches.first, message["n"]?.integer == Int64(first.number) else { return }
    guard let verdict = Self.verdict(type, message) else { return giveUp("an answer that makes no sense") }
    batches.removeFirst().timer.cancel()
    if case .acknowledged = verdict {
    } else {
      for batch in batches { batch.timer.cancel() }
      batches = []
    }
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
    case "taken", "refused", "busy", "out_of_order": answered(type, message)
    case "response":
      guard let id = message["id"]?.string, let question = asked.removeValue(forKey: id) else { return }
      question.timer.cancel()
      question.done(message["ok"]?.bool == true ? message["result"] ?? .null : nil)
    case "request": requested(message, socket)
    case "has_new":
      if let bucket = message["bucket"]?.string, let seq = message["seq"]?.integer,
        (1...CatchUp.mostSeq).contains(seq)
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
    guard case .live(let socket) = road, pongLimit?.isScheduled != true else { return }
    socket.ping()
    pongLimit = loop.schedule(after: Self.patience) { [weak self] in self?.giveUp("no answer to a ping") }
  }

  /// The network has changed: is the link still one?
  func probe() {
    if case .live = road { ping() }
    if case .http = road { tryLiveAgain() }
  }

  private func requested(_ message: JSONValue, _ socket: WebSocket) {
    guard let id = message["id"]?.string else { return }
    guard message["method"]?.string == "command" else {
      return respond(id, [], code: "unknown_method", socket)
    }
    var request = JSONWriter()
    request.value(message["params"] ?? .null)
    onCommand(request.bytes) { [weak self, weak socket] answer in
      guard let self, let socket else { return }
      self.respond(id, answer ?? [], code: "store", socket)
    }
  }

  /// `answer`: an object with `ok`; empty: the request failed with `code`.
  private func respond(_ id: String, _ answer: [UInt8], code: String, _ socket: WebSocket) {
    // `try?`: our own words.
    let fields = (try? JSONValue(parsing: answer))?.fields ?? [("ok", .bool(false)), ("code", .string(code))]
    var json = JSONWriter()
    json.value(.object([("type", .string("response")), ("id", .string(id))] + fields.filter { $0.0 != "id" }))
    socket.send(text: json.bytes)
  }
}
