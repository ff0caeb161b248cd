// SPDX-License-Identifier: MIT

import Deflate
import EventLoop
import HTTP
import JSON
import Sockets
import Store
import Timing
import UntrustedText

/// Opens a live link, or continues over HTTP if none gets through.
extension HubConnection {
  func greet() async -> Greeting { await greet(takesBack: false) }

  /// `takesBack`: the hub replaces its existing link of this gateway.
  private func greet(takesBack: Bool) async -> Greeting {
    closeLink()
    guard isLive, retry.isDue(at: loop.now) else { return await greetByHTTP() }
    // The last links opened, and no batch was answered over them.
    if retry.wantsHTTP { return await greetByHTTP(after: .closed("links come to nothing")) }
    var headers = HTTPHeaders()
    do throws(Verdict) { try settings.authorize(&headers) } catch { return .failed(error) }
    if !takesBack { headers.add(Self.upstreamField, "\(store.epoch)/\(PercentCoding.encode(settings.name))") }
    let socket = WebSocket(
      WebSocket.Settings(
        host: endpoint.host, port: endpoint.port, target: "\(http.path)/link", headers: headers,
        subprotocol: Self.subprotocol, compression: Self.compression, proxy: proxy),
      tls: tls, meter: meter, on: loop)
    defer { if case .live = route {} else { memory.bytesSent &+= socket.bytesSent } }
    do throws(WebSocketFailure) {
      try await socket.open()
    } catch {
      return await notOpened(error, takesBack: takesBack)
    }
    socket.send(text: hello())
    do {
      let welcome = try await loop.whileMoving(HubLink.patience, HubLink.moved(on: socket)) {
        try await self.welcome(on: socket)
      }
      retry.opened()
      let link = HubLink(
        socket, window: welcome.window, memory: memory, requests: requests, place: place, on: loop, log: log)
      link.otherEpochs = welcome.others
      route = .live(link)
      return .has(welcome.acknowledged, welcome.digests)
    } catch {
      socket.close()
      retry.failed()
      if retry.wantsHTTP { return await greetByHTTP(after: .closed("no welcome")) }
      return .failed(Self.verdict(of: error))
    }
  }

  private static let subprotocol = "meshpost.v1"
  /// Windows of 4 KiB up and of 1 KiB down: some 38 KiB while a link is open (docs/decisions/0016).
  private static let compression = PerMessageDeflate.Offer(clientBits: 12, serverBits: 10, dictionary: true)
  /// The header with the requesting upstream's name, and, in the answer, the name of the upstream that has the link.
  private static let upstreamField = "Meshpost-Upstream"
  /// The most messages before the welcome; a hub normally sends none.
  private static let maxBeforeWelcome = 64

  /// The beginning of a link. Source: docs/hub-protocol.md.
  private func hello() -> [UInt8] {
    JSONWriter.object { json in
      json.field("type", "hello")
      json.field("protocol", 2)
      json.field("gateway", store.gatewayID)
      json.field("epoch", store.epoch)
      json.field("version", settings.version)
      json.field("keep_alive_s", keepAlive)
      json.field("brief", true)
      json.field("conflicts", true)
    }
  }

  private static func verdict(of error: any Error) -> Verdict {
    switch error {
    case let failure as WebSocketFailure: .retry(reason: failure.description, after: nil)
    case is TimedOut: .retry(reason: WebSocketFailure.closed("no welcome in time").description, after: nil)
    default: .retry(reason: WebSocketFailure.cancelled.description, after: nil)
    }
  }

  private typealias Welcome = (
    acknowledged: Acknowledged, digests: ByLane<String?>, window: Int, others: [OtherEpoch]
  )

  private func welcome(on socket: WebSocket) async throws -> Welcome {
    for _ in 0..<Self.maxBeforeWelcome {
      guard case .message(let bytes) = try await socket.next() else { continue }
      let message = try HubLink.message(bytes)
      guard message["type"]?.string == "welcome" else { continue }
      // Without a valid position the gateway sends nothing, not even from the beginning.
      guard let acknowledged = HubOverHTTP.acknowledged(message) else {
        throw WebSocketFailure.closed("an invalid welcome")
      }
      http.deletes = message["deletes"]?.bool == true
      let window = Int(min(max(message["window"]?.integer ?? 1, 1), 16))
      return (acknowledged, HubOverHTTP.digests(message), window, OtherEpoch.all(message))
    }
    throw WebSocketFailure.closed("no welcome, but much else")
  }

  private func notOpened(_ failure: WebSocketFailure, takesBack: Bool) async -> Greeting {
    switch failure {
    case .notUpgraded(let response) where [401, 403].contains(response.status):
      // A refused link is final. A request over HTTP finds the whole reason.
      if case .failed(let verdict) = await http.greet() { return .failed(verdict) }
      return .failed(.stopped(reason: "HTTP \(response.status): check the token"))
    case .notUpgraded(let response) where [429, 503].contains(response.status):
      retry.failed()
      if retry.wantsHTTP { return await greetByHTTP(after: failure) }
      let after = RetryPolicy.retryAfter(response, loop.wallClock.milliseconds / 1000)
      return .failed(.retry(reason: RetryPolicy.words(response), after: after))
    case .notUpgraded(let response) where response.status == 409 && response.headers[Self.upstreamField] != nil:
      let name = response.headers[Self.upstreamField].flatMap { PercentCoding.decode($0) } ?? "?"
      let holder = Visible.excerpt(name)
      // If the store cannot be read, the link may belong to our own upstream.
      if !takesBack, store.ifReadable({ try store.hasUpstream(name) }) == false {
        return await takeLinkBack(from: holder)
      }
      retry.trouble = "this hub has a live link of this gateway already, by the upstream \(holder)"
      return await greetByHTTP(after: failure)
    case .notUpgraded, .blocked:
      retry.trouble = nil
      // A server answers, but WebSockets are blocked.
      return await greetByHTTP(after: failure)
    case .unreachable, .closed, .cancelled: return .failed(.retry(reason: failure.description, after: nil))
    }
  }

  /// The link belongs to an upstream that this gateway never had: another gateway has the same id or token. The hub notices that two gateways take
  /// the link from each other, and raises an alert.
  private func takeLinkBack(from holder: String) async -> Greeting {
    if retry.foundRival(now: loop.now) {
      log.warning(
        "\(place): another gateway holds this gateway's live link, as the upstream \(holder), which this gateway does not have: it has the same id, "
          + "or this gateway's token. Taking the link back (logged at most once an hour). See docs/hub.md, \"One identity, two histories\""
      )
    }
    return await greet(takesBack: true)
  }

  /// Continues over HTTP. `failure`: why there is no link.
  private func greetByHTTP(after failure: WebSocketFailure? = nil) async -> Greeting {
    let greeting = await http.greet()
    guard case .has = greeting else {
      retry.nothingWorks()
      return greeting
    }
    route = .http
    guard let failure else { return greeting }
    if retry.fellBack(now: loop.now) {
      log.notice(
        "\(place): no live link (\(retry.trouble ?? "\(failure)")): using plain HTTP; the link is retried periodically")
    }
    return greeting
  }
}
