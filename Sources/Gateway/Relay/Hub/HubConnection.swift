// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import ProxyTunnel
import Sockets
import Store
import Timing

/// The connection to a Meshpost hub: a live link (`HubLink`), which is one WebSocket for batches, requests and
/// announcements in both directions. If WebSockets are blocked, `HubOverHTTP` does the same, and `LinkRetry` decides
/// when to try the link again. Source: docs/hub-protocol.md.
final class HubConnection: MeteredCarrier, UpdatesSource {
  /// How the gateway reaches the hub.
  enum Route {
    case none
    case live(HubLink)
    case http
  }

  let kind = "hub"
  let settings: UpstreamSettings
  /// `false`: HTTP only.
  let isLive: Bool
  /// The longest interval between pings on an idle link, in seconds: a half-open link is noticed a few seconds later.
  let keepAlive: Int64
  let proxy: TunnelSettings?
  let endpoint: (host: String, port: UInt16)
  let tls: TLSContext?
  let store: Store
  let loop: EventLoop
  let log: Log
  let http: HubOverHTTP
  let meter = TrafficMeter()
  var route = Route.none
  var memory: LinkMemory
  var retry = LinkRetry()
  let requests: HubRequests
  private var states = NewestStates()
  /// Tells the hub states by HTTP.
  private var publishing: LoopTask?
  private let newState = Waiter()
  /// Ends the wait for the next attempt at a live link.
  private let stirred = Waiter()
  weak var updates: BucketSync?

  init(
    _ settings: UpstreamSettings, isLive: Bool, keepAlive: Int64, proxy: TunnelSettings?, store: Store,
    on loop: EventLoop, log: Log
  ) throws {
    (self.settings, self.isLive, self.keepAlive, self.proxy) = (settings, isLive, keepAlive, proxy)
    (self.store, self.loop, self.log) = (store, loop, log)
    guard case .tcp(let host, let port, let isSecure)? = HTTPEndpoint.parse(settings.url)?.endpoint else {
      throw Upstream.SetupError(description: "\(settings.place) is not an http:// or https:// URL")
    }
    endpoint = (host, port)
    tls = isSecure ? try TLSContext(authorities: settings.authorities) : nil
    memory = LinkMemory(silences: KeepAlive(longest: .seconds(keepAlive)))
    requests = HubRequests(on: loop)
    http = try HubOverHTTP(settings, proxy: proxy, meter: meter, store: store, on: loop)
  }

  var place: String { settings.place }
  var keepsConnection: Bool { true }
  var serverKeepsCount: Bool { true }
  var updatesSource: (any UpdatesSource)? { self }
  var commands: CommandIntake? {
    get { requests.commands }
    set { requests.commands = newValue }
  }
  /// Questions and states can fail although events arrive.
  var minorTrouble: String? { http.trouble ?? retry.trouble ?? keepsDeleted }
  /// Its database has no place to remember deletions, and a later version of it does not make up for that.
  private var keepsDeleted: String? {
    // If the store cannot be read, that is told elsewhere.
    guard http.deletes == false, store.ifReadable({ try store.hasDeleted() }) == true else { return nil }
    return "this hub is too old to delete messages: what was deleted here it keeps. Update it before more is deleted"
  }
  var certificateExpiry: Int64? { tls?.peerExpiry ?? http.certificateExpiry }
  private var socket: WebSocket? { if case .live(let link) = route { link.socket } else { nil } }
  var window: Int { if case .live(let link) = route { link.window } else { 1 } }
  var bytesSent: UInt64 { memory.bytesSent &+ (socket?.bytesSent ?? 0) &+ http.bytesSent }

  var otherEpochs: [OtherEpoch] { if case .live(let link) = route { link.otherEpochs } else { http.otherEpochs } }

  /// With a proxy, the kernel's acknowledgements only say that the proxy has the bytes.
  var hasArrived: Bool {
    guard proxy == nil, let socket else { return false }
    return socket.acknowledgedBytes == socket.bytesSent
  }

  /// `live` or `http`; `nil`: neither yet.
  var link: String? {
    switch route {
    case .live: "live"
    case .http: "http"
    case .none: nil
    }
  }

  func hold() async throws(CancellationError) -> ConnectionEnd {
    updates?.reachable(true)
    defer { updates?.reachable(false) }
    // An older copy of the hub has older states.
    if case .http = route, http.hasForgotten { states.doubtAll() }
    publishStates()
    switch route {
    case .none: return .lost(.retry(reason: "the link is down", after: nil))
    case .live(let link): return try await hold(link)
    case .http:
      guard let liveAgainAt = retry.at, isLive else {
        while !http.isPutBack, loop.now < http.compareAgainAt {
          try await stirred.wait(until: http.compareAgainAt, on: loop)
        }
        return .outdated
      }
      // The time has come, or the network has changed.
      try await stirred.wait(until: liveAgainAt, on: loop)
      retry.tryNow(loop.now)
      return .outdated
    }
  }

  private func hold(_ link: HubLink) async throws(CancellationError) -> ConnectionEnd {
    do {
      try await link.run { [weak updates] bucket, seq in updates?.hasNew(bucket, seq) }
      return .outdated
    } catch {
      if let cancelled = error as? CancellationError { throw cancelled }
      let failure = error as? WebSocketFailure ?? .cancelled
      // The hub may have sent nonsense over a link that still works.
      link.socket.close(failure)
      let reason = failure.description
      // The verdict on the first batch in flight reports the end.
      let isReported = link.hasBatches
      if link.hasAnswers { retry.worked() } else if isReported { retry.failed() }
      closeLink(reason)
      return .lost(isReported ? nil : .retry(reason: reason, after: nil))
    }
  }

  /// The network has changed: a link must prove that it works, and without a link, a new attempt begins.
  func probe() {
    if case .live(let link) = route { link.probe() }
    stirred.resume()
  }

  func carry(_ batch: Batch) async -> Verdict {
    switch route {
    case .none: return .retry(reason: "the link is down", after: nil)
    case .http:
      defer { if http.isPutBack { stirred.resume() } }
      return await http.carry(batch)
    case .live(let link):
      return await link.carry(batch, within: settings.timeout) { [store] in batch.encode(of: store, number: $0) }
    }
  }

  /// Rare, so always over HTTP.
  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting {
    await http.standing(of: epoch, through: seqs)
  }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    switch route {
    case .none: return nil
    case .http:
      defer { if http.isPutBack { stirred.resume() } }
      return try await http.ask(question)
    case .live(let link): return await link.ask(question)
    }
  }

  /// Sends the hub the newest state of this name, now or when the hub is reachable again.
  func setState(_ name: String, _ body: [UInt8]) {
    states.set(name, withRights(body))
    publishStates()
  }

  /// A state of the gateway, with the hub's rights here: people at the hub see which of their edits are refused.
  private func withRights(_ body: [UInt8]) -> [UInt8] {
    // `try?`: this gateway has made the state.
    guard let fields = (try? JSONValue(parsing: body))?.fields else { return body }
    return JSONWriter.object { json in
      for (name, value) in fields { json.field(name, value) }
      json.arrayField("allow") { json in
        for right in Upstream.Settings.knownRights where settings.journal.allowed.contains(right) { json.value(right) }
      }
    }
  }

  private func publishStates() {
    switch route {
    case .live(let link):
      for state in states.untold {
        link.publish(state)
        states.wasTold(state)
      }
    case .http:
      newState.resume()
      guard publishing == nil else { return }
      publishing = loop.begin {
        // `try?`: cancelled, the connection is closed. The states stay untold.
        try? await self.publishByHTTP()
        if !Task.isCancelled { self.publishing = nil }
      }
    case .none: break
    }
  }

  /// A state that the hub does not take is tried again later: the next one may be hours away.
  private func publishByHTTP() async throws(CancellationError) {
    var backoff = Backoff(first: .seconds(60), limit: .seconds(3600))
    while case .http = route {
      let untold = states.untold
      guard !untold.isEmpty else { return }
      var areTold = true
      for state in untold {
        if await http.publish(state) { states.wasTold(state) } else { areTold = false }
        if Task.isCancelled { throw CancellationError() }
      }
      guard !areTold else { continue }
      var random = SystemRandomNumberGenerator()
      try await newState.wait(until: loop.now + backoff.next(using: &random), on: loop)
    }
  }

  func closeLink(_ reason: String? = nil) {
    if case .live(let link) = route {
      memory = link.close(reason)
      // A live link confirms no state: the last ones may have been lost with it.
      states.doubtAll()
    }
    route = .none
  }

  func close() {
    closeLink()
    publishing?.cancel()
    publishing = nil
    requests.cancel()
    http.close()
  }
}
