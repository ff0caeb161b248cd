// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import HTTP
import JSON
import Store
import Timing

/// Ships the journal to a Meshpost hub by HTTP: one batch under way, one cumulative acknowledgement each.
public final class HubUpstream: Upstream {
  public struct Settings: Sendable {
    public var name: String
    public var url: String
    /// The bearer token's file; read anew at each connection, so that a changed token needs no restart.
    public var tokenFile: String?
    /// A PEM file to trust in place of the system's authorities.
    public var authorities: String?
    public var batchEvents: Int
    public var batchBytes: Int
    public var timeout: Duration

    public init(
      name: String, url: String, tokenFile: String? = nil, authorities: String? = nil, batchEvents: Int = 200,
      batchBytes: Int = 65536, timeout: Duration = .seconds(30)
    ) {
      self.name = name
      self.url = url
      self.tokenFile = tokenFile
      self.authorities = authorities
      self.batchEvents = batchEvents
      self.batchBytes = batchBytes
      self.timeout = timeout
    }
  }

  public struct SetupError: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  private let settings: Settings
  private let path: String
  private let client: HTTPClient
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let clock = WallClock()
  private var random = SystemRandomNumberGenerator()
  private var shipment: Shipment
  private var cursor: Int64
  private var timer: LoopTimer?
  private var inFlight: Batch?
  private var hasMarkedDeadLetters: Bool
  private var troubleLogged: String?
  private var lastSuccess: Int64?
  private var batches: UInt64 = 0
  private var bytesSent: UInt64 = 0
  private var isClosed = false
  private var epochRenewals = 0

  public var name: String { settings.name }

  public init(_ settings: Settings, store: Store, on loop: EventLoop, log: Log) throws {
    guard let (endpoint, path) = HTTPEndpoint.parse(settings.url) else {
      throw SetupError(description: "\(settings.url) is no http:// or https:// URL")
    }
    var tls: TLSContext?
    if case .tcp(_, _, true) = endpoint { tls = try TLSContext(authorities: settings.authorities) }
    self.settings = settings
    self.path = "\(path)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    client = HTTPClient(endpoint, tls: tls, on: loop)
    self.store = store
    self.loop = loop
    self.log = log
    shipment = Shipment(mostEvents: settings.batchEvents)
    cursor = try store.cursor(of: settings.name)
    hasMarkedDeadLetters = true
  }

  public func wake() {
    guard !isClosed else { return }
    let next = shipment.next(hasMore: store.lastSeq > cursor || hasMarkedDeadLetters, now: loop.now)
    switch next {
    case .nothing: break
    case .wake(let time):
      timer?.cancel()
      timer = loop.schedule(at: time) { [weak self] in self?.wake() }
    case .greet: greet()
    case .send(let limit): sendNext(limit)
    }
  }

  public func resume() {
    hasMarkedDeadLetters = true
    shipment.resume()
    wake()
  }

  public func storeReplaced() {
    client.close()
    inFlight = nil
    cursor = 0
    shipment.greetAgain()
    wake()
  }

  public func stop() {
    isClosed = true
    timer?.cancel()
    client.close()
  }

  // MARK: Sending

  private func greet() {
    shipment.greetingSent()
    send(HTTPRequest("GET", "\(path)?epoch=\(store.epoch)")) { [weak self] result in self?.greeted(result) }
  }

  /// The server says what it has of this epoch; either side may have been restored meanwhile.
  private func greeted(_ result: Result<HTTPResponse, HTTPFailure>) {
    if case .success(let response) = result, response.status == 404 { return known(nil) }
    var acknowledged: Int64?
    let verdict = RetryPolicy.verdict(result, now: clock.seconds) { body in
      guard let json = try? JSONValue(parsing: body), json.fields != nil else { return nil }  // `try?`: makes no sense
      acknowledged = json["acknowledged"]?.integer
      return acknowledged ?? 0
    }
    guard case .acknowledged = verdict else { return took(verdict) }
    known(acknowledged)
  }

  private func known(_ acknowledged: Int64?) {
    let through = acknowledged ?? min(cursor, store.epochFirst - 1)
    guard through <= store.lastSeq else { return goneBack(acknowledged: through) }
    shipment.greeted()
    if through != cursor {
      log.notice("\(name): the server has everything up to \(through), not \(cursor): going on from there")
      advance(to: through)
    } else {
      recovered()
      wake()
    }
  }

  /// The server knows numbers of this epoch that we never gave out: our database is an older copy of itself.
  private func goneBack(acknowledged: Int64) {
    log.error(
      "\(name): the server has seq \(acknowledged) of this epoch, the journal ends at \(store.lastSeq): "
        + "the database is an older copy. A new epoch begins")
    epochRenewals += 1
    do {
      try store.renewEpoch()
      shipment.greetAgain()
      // Twice in a row cannot be; a server that says so all the same must not spin us.
      if epochRenewals > 1 {
        shipment.greetingSent()
        took(.retry(reason: "the server claims seqs of an epoch that it cannot know", after: nil))
      } else {
        wake()
      }
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }

  private func sendNext(_ limit: Int) {
    do {
      if let letter = try nextDeadLetter() { return send(Batch(letter), isDeadLetter: true) }
      let limits = Batch.Limits(events: limit, bytes: settings.batchBytes)
      let batch = try Batch(after: cursor, of: store, limits: limits)
      guard !batch.isEmpty else { return }
      send(batch, isDeadLetter: false)
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }

  private func nextDeadLetter() throws(StoreError) -> JournalEvent? {
    guard hasMarkedDeadLetters else { return nil }
    var found: JournalEvent?
    try store.eachDeadLetter(of: name, marked: true, limit: 1) { letter in
      found = letter.event
      return false
    }
    hasMarkedDeadLetters = found != nil
    return found
  }

  private func send(_ batch: Batch, isDeadLetter: Bool) {
    inFlight = batch
    shipment.sent(count: batch.events.count, isDeadLetter: isDeadLetter)
    let body = batch.encode(epoch: store.epoch)
    bytesSent &+= UInt64(body.count)
    send(HTTPRequest("POST", "\(path)/events", body: body)) { [weak self] result in
      guard let self else { return }
      let verdict = RetryPolicy.verdict(result, now: clock.seconds) { body in
        // `try?`: an answer that is no JSON makes no sense, and that is all there is to know.
        (try? JSONValue(parsing: body))?["acknowledged"]?.integer
      }
      self.inFlight = nil
      if isDeadLetter { self.tookDeadLetter(verdict, batch) } else { self.took(verdict, batch) }
    }
  }

  private func send(_ request: HTTPRequest, _ completion: @escaping HTTPClient.Completion) {
    var request = request
    if !request.body.isEmpty { request.headers.add("Content-Type", "application/json") }
    request.headers.add("User-Agent", "meshpostd")
    if let tokenFile = settings.tokenFile {
      guard let token = SecretFile.read(tokenFile) else {
        return took(.stopped(reason: "the token file \(tokenFile) cannot be read"))
      }
      request.headers.add("Authorization", "Bearer \(token)")
    }
    client.send(request, timeout: settings.timeout, completion)
  }

  // MARK: Answers

  private func took(_ verdict: Verdict, _ batch: Batch? = nil) {
    let consequence = shipment.answered(verdict, after: cursor, now: loop.now, using: &random)
    switch consequence {
    case .advance(let through):
      batches &+= 1
      advance(to: min(through, max(batch?.last ?? cursor, cursor)))
    case .bury(let status, let reason):
      guard let batch, let event = batch.events.first else { return wake() }
      bury(event, through: batch.last, status: status, reason: reason)
    case .keep:
      report()
      wake()
    }
  }

  private func tookDeadLetter(_ verdict: Verdict, _ batch: Batch) {
    guard let event = batch.events.first else { return }
    switch shipment.answered(verdict, after: cursor, now: loop.now, using: &random) {
    case .advance:
      store.write({ [name] store throws(SQLiteError) in try store.removeDeadLetter(upstream: name, seq: event.seq) }) {
        [weak self] failure in
        if let failure { self?.log.error("\(failure)") }
        self?.wake()
      }
    case .bury(let status, let reason): bury(event, through: cursor, status: status, reason: reason)
    case .keep:
      report()
      wake()
    }
  }

  private func bury(_ event: JournalEvent, through: Int64, status: Int, reason: String) {
    log.warning("\(name): event \(event.seq) is refused for good (\(reason)); see `meshpost outbox`")
    let at = clock.milliseconds
    store.write({ [name] store throws(SQLiteError) in
      try store.bury(event, upstream: name, status: status, reason: reason, at: at)
      try store.setCursor(of: name, to: through)
    }) { [weak self] failure in self?.moved(to: through, failure) }
  }

  /// The cursor moves in a transaction of its own; if that is lost, events are sent again, which is always safe.
  private func advance(to seq: Int64) {
    lastSuccess = clock.milliseconds
    recovered()
    guard seq != cursor else { return wake() }
    store.write({ [name] store throws(SQLiteError) in try store.setCursor(of: name, to: seq) }) {
      [weak self] failure in self?.moved(to: seq, failure)
    }
  }

  private func moved(to seq: Int64, _ failure: StoreError?) {
    if let failure {
      shipment.greetingSent()
      return took(.retry(reason: "\(failure)", after: nil))
    }
    cursor = seq
    // After the turn: onCommit wakes all upstreams too, and the state must be whole by then.
    loop.later { [weak self] in self?.wake() }
  }

  private func recovered() {
    guard troubleLogged != nil else { return }
    log.notice("\(name): connected again, \(max(0, store.lastSeq - cursor)) events to send")
    troubleLogged = nil
  }

  /// Once per trouble, not per try.
  private func report() {
    switch shipment.state {
    case .waiting(_, let reason) where troubleLogged != reason:
      log.warning("\(name): \(reason). Nothing is lost; trying again by itself")
      troubleLogged = reason
    case .stopped(_, let reason) where troubleLogged != reason:
      log.error("\(name): stopped: \(reason). Nothing is lost; mend it, then `meshpost outbox resume`")
      troubleLogged = reason
    default: break
    }
  }

  public var status: UpstreamStatus {
    let (state, reason): (UpstreamStatus.State, String?) =
      switch shipment.state {
      case .greeting, .ready: (.idle, nil)
      case .sending: (.sending, nil)
      case .waiting(_, let reason): (.waiting, reason)
      case .stopped(_, let reason): (.stopped, reason)
      }
    // `try?`: the count is for people; a store that cannot be read shows elsewhere.
    let deadLetters = (try? store.deadLetterCount(of: name)) ?? 0
    return UpstreamStatus(
      name: name, kind: "hub", url: settings.url, state: state, cursor: cursor,
      pending: max(0, store.lastSeq - cursor), inFlight: inFlight?.events.count ?? 0, deadLetters: deadLetters,
      reason: reason, lastSuccess: lastSuccess, batches: batches, bytesSent: bytesSent)
  }
}

/// Secrets come from files, never from the command line.
public enum SecretFile {
  /// The first line, without spaces around it. `nil` when there is none.
  public static func read(_ location: String) -> String? {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    guard case .bytes(let bytes) = Descriptor.read(descriptor) else { return nil }
    let line = bytes.prefix { $0 != 10 && $0 != 13 }.filter { $0 > 0x20 && $0 < 0x7F }
    return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
  }
}

extension HubUpstream.Settings {
  /// Whether a text can be an upstream's URL.
  public static func isURL(_ text: String) -> Bool { HTTPEndpoint.parse(text) != nil }
}
