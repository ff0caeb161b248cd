// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Sockets
import Store
import Timing
import UntrustedText

/// How a link is opened, and what is done where none gets through.
extension HubConnection {
  func greet() async -> Greeting {
    closeLink()
    guard settings.isLive, liveAgainAt.map({ loop.now >= $0 }) ?? true else { return await greetByHTTP() }
    var headers = HTTPHeaders()
    headers.add("User-Agent", "meshpostd")
    if let file = settings.server.tokenFile {
      guard let token = SecretFile.read(file) else {
        return .failed(.stopped(reason: "the token file \(file) cannot be read"))
      }
      headers.add("Authorization", "Bearer \(token)")
    }
    // Without it the hub gives this link the place of whichever there is.
    if !takesLinkBack { headers.add(Self.upstreamField, "\(store.epoch)/\(PercentCoding.encode(settings.name))") }
    let socket = WebSocket(
      WebSocket.Settings(
        host: endpoint.host, port: endpoint.port, target: "\(path)/link", headers: headers,
        subprotocol: Self.subprotocol, compression: Self.compression, proxy: settings.server.proxy), tls: tls,
      meter: meter,
      on: loop)
    defer { if case .live = way {} else { closedBytes &+= socket.bytesSent } }
    do throws(WebSocketFailure) {
      try await socket.open()
    } catch {
      return await notOpened(error)
    }
    socket.send(text: hello())
    do {
      let welcome = try await loop.whileMoving(Self.patience, Self.moved(on: socket)) {
        try await self.welcome(on: socket)
      }
      opened(socket, welcome)
      return .has(welcome.acknowledged, welcome.digests)
    } catch {
      socket.close()
      return .failed(Self.verdict(of: error))
    }
  }

  /// Which upstream of the gateway asks for a link, and in the answer which one has it.
  private static let upstreamField = "Meshpost-Upstream"

  struct Nonsense: Error {
    let message: String
  }

  private static func verdict(of error: any Error) -> Verdict {
    switch error {
    case let failure as WebSocketFailure: .retry(reason: failure.description, after: nil)
    case let nonsense as Nonsense: .retry(reason: WebSocketFailure.closed(nonsense.message).description, after: nil)
    case is TimedOut: .retry(reason: WebSocketFailure.closed("no welcome in time").description, after: nil)
    default: .retry(reason: WebSocketFailure.cancelled.description, after: nil)
    }
  }

  private typealias Welcome = (acknowledged: Acknowledged, digests: ByLane<String?>, window: Int)

  private func welcome(on socket: WebSocket) async throws -> Welcome {
    for _ in 0..<Self.maxBeforeWelcome {
      guard case .message(let bytes) = try await socket.next() else { continue }
      let message = try Self.message(bytes)
      guard message["type"]?.string == "welcome" else { continue }
      // Without a valid position nothing is sent: not even from the beginning.
      guard let acknowledged = HubOverHTTP.acknowledged(message) else {
        throw Nonsense(message: "an invalid welcome")
      }
      return (acknowledged, HubOverHTTP.digests(message), Int(min(max(message["window"]?.integer ?? 1, 1), 16)))
    }
    throw Nonsense(message: "no welcome, but much else")
  }

  static func message(_ bytes: [UInt8]) throws(Nonsense) -> JSONValue {
    // `try?`: what is no JSON ends the link; there is nothing to tell it by.
    guard let message = try? JSONValue(parsing: bytes), message["type"]?.string != nil || message.count != nil else {
      throw Nonsense(message: "the hub sent an invalid message")
    }
    return message
  }

  private func opened(_ socket: WebSocket, _ welcome: Welcome) {
    way = .live(socket)
    (liveAgainAt, hasToldFallBack, linkTrouble) = (nil, false, nil)
    hubWindow = welcome.window
    lastHeard = loop.now
  }

  private func notOpened(_ failure: WebSocketFailure) async -> Greeting {
    switch failure {
    case .notUpgraded(let response) where [401, 403].contains(response.status):
      // A refused link is final. Of a handshake only the head is read, so the hub is asked by HTTP why.
      if case .failed(let verdict) = await http.greet() { return .failed(verdict) }
      return .failed(.stopped(reason: "HTTP \(response.status): check the token"))
    case .notUpgraded(let response) where [429, 503].contains(response.status):
      return .failed(.retry(reason: "HTTP \(response.status)", after: nil))
    case .notUpgraded(let response) where response.status == 409 && response.headers[Self.upstreamField] != nil:
      let name = response.headers[Self.upstreamField].flatMap { PercentCoding.decode($0) } ?? "?"
      let holder = Visible.excerpt(name)
      // What cannot be read now is believed.
      if !takesLinkBack, store.ifReadable({ try store.hasUpstream(name) }) == false {
        return await takeLinkBack(from: holder)
      }
      linkTrouble = "this hub has a live link of this gateway already, by the upstream \(holder)"
      return await greetByHTTP(after: failure)
    case .notUpgraded, .blocked:
      linkTrouble = nil
      // A server is there, and no WebSocket gets to it.
      return await greetByHTTP(after: failure)
    case .unreachable, .closed, .cancelled: return .failed(.retry(reason: failure.description, after: nil))
    }
  }

  /// Whoever has the link comes as an upstream that this gateway never had: another one has its id, or somebody has its token. The hub sees then that two take
  /// it from each other, and raises an alert.
  private func takeLinkBack(from holder: String) async -> Greeting {
    if rivalLines.take(at: loop.now) {
      log.warning(
        "\(place): somebody else has this gateway's live link, as the upstream \(holder), which it does not have: another gateway has the same id, "
          + "or somebody has its token. Taking the link back (logged at most once an hour). See docs/hub.md, \"One identity, two histories\""
      )
    }
    takesLinkBack = true
    defer { takesLinkBack = false }
    return await greet()
  }

  /// The same by HTTP. `failure`: of the link.
  private func greetByHTTP(after failure: WebSocketFailure? = nil) async -> Greeting {
    let greeting = await http.greet()
    guard case .has = greeting else {
      // It was not the WebSocket that did not get through.
      liveAgainAt = nil
      return greeting
    }
    way = .http
    guard let failure else { return greeting }
    if !hasToldFallBack {
      log.notice(
        "\(place): no live link (\(linkTrouble ?? "\(failure)")): using plain HTTP; the link is retried periodically")
    }
    hasToldFallBack = true
    liveAgainAt = loop.now + Self.retryLive
    return greeting
  }
}
