// SPDX-License-Identifier: MIT

import Foundation
import Hummingbird
import JSON
import Logging
import SQLite

/// The hub's HTTP API. Source of truth: docs/hub-protocol.md.
public struct HubServer: Sendable {
  private let configuration: HubConfiguration
  private let store: HubStore
  private let limiter: RateLimiter

  public init(_ configuration: HubConfiguration) throws {
    self.configuration = configuration
    store = try HubStore(location: configuration.location)
    limiter = RateLimiter(perSecond: configuration.rateLimit)
  }

  /// Serves until it is told to stop (SIGTERM, SIGINT). `ready` gets the port.
  public func run(_ ready: @escaping @Sendable (Int) -> Void) async throws {
    let application = Application(
      router: router(),
      configuration: .init(
        address: .hostname(configuration.host, port: configuration.port), serverName: "meshpost-hub"),
      onServerRunning: { channel in ready(channel.localAddress?.port ?? 0) },
      logger: Logger(label: "hub") { _ in SwiftLogNoOpLogHandler() })
    try await application.runService()
  }

  private func router() -> Router<BasicRequestContext> {
    let router = Router()
    router.get("/healthz") { _, _ in Self.json(Array("{\"ok\":true}".utf8)) }
    router.get("/v1/gateways") { request, _ in try await gateways(request) }
    router.get("/v1/gateways/{id}") { request, context in try await greet(request, context) }
    router.post("/v1/gateways/{id}/events") { request, context in try await take(request, context) }
    router.get("/v1/gateways/{id}/events") { request, context in try await page(request, context, kind: nil) }
    router.get("/v1/gateways/{id}/messages") { request, context in try await page(request, context, kind: "message") }
    router.get("/v1/gateways/{id}/contacts") { request, context in try await contacts(request, context) }
    return router
  }

  // MARK: Answers

  private static func json(_ body: [UInt8], status: HTTPResponse.Status = .ok) -> Response {
    var headers = HTTPFields()
    headers[.contentType] = "application/json"
    return Response(status: status, headers: headers, body: .init(byteBuffer: ByteBuffer(bytes: body)))
  }

  private static func refusal(
    _ status: HTTPResponse.Status, _ reason: String, seq: Int64? = nil, retryAfter: Int? = nil
  ) -> Response {
    var response = json(
      JSONWriter.object {
        $0.field("error", reason)
        $0.field("seq", seq)
      }, status: status)
    if let retryAfter { response.headers[.retryAfter] = String(retryAfter) }
    if status == .unauthorized { response.headers[.wwwAuthenticate] = "Bearer" }
    return response
  }

  /// `nil` when the token allows it; else the answer.
  private func refused(_ request: Request, gateway: String?, toWrite: Bool) -> Response? {
    guard let header = request.headers[.authorization], header.hasPrefix("Bearer ") else {
      return Self.refusal(.unauthorized, "a bearer token is wanted")
    }
    let presented = Array(header.dropFirst(7).utf8)
    let matching = configuration.tokens.filter { Self.isEqual(Array($0.secret.utf8), presented) }
    guard !matching.isEmpty else { return Self.refusal(.unauthorized, "the token is not known") }
    let allowed = matching.contains { token in
      (token.gateway == "*" || token.gateway == gateway) && (!toWrite || token.mayWrite)
    }
    return allowed ? nil : Self.refusal(.forbidden, "the token is not for this")
  }

  /// Takes as long for a wrong token as for a right one.
  private static func isEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    return zip(left, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
  }

  // MARK: Requests

  private func take(_ request: Request, _ context: BasicRequestContext) async throws -> Response {
    let gateway = context.parameters.get("id") ?? ""
    if let refusal = refused(request, gateway: gateway, toWrite: true) { return refusal }
    guard Name.isAllowed(gateway) else { return Self.refusal(.badRequest, "a gateway's id is \(Name.allowed)") }
    let bytes: [UInt8]
    do {
      bytes = Array(buffer: try await request.body.collect(upTo: configuration.mostBody))
    } catch {
      return Self.refusal(.contentTooLarge, "a batch has \(configuration.mostBody) bytes at most")
    }
    let batch: EventBatch
    do {
      batch = try EventBatch(parsing: bytes)
    } catch {
      switch error {
      case .malformed(let reason): return Self.refusal(.badRequest, reason)
      case .tooLarge: return Self.refusal(.contentTooLarge, "a batch has \(EventBatch.mostEvents) events at most")
      case .badEvent(let seq, let reason): return Self.refusal(.unprocessableContent, reason, seq: seq)
      }
    }
    if let wait = await limiter.admit(gateway, events: batch.events.count) {
      return Self.refusal(.tooManyRequests, "too many events", retryAfter: wait)
    }
    return try await keep(batch, from: gateway)
  }

  private func keep(_ batch: EventBatch, from gateway: String) async throws -> Response {
    do {
      let through = try await store.take(batch, from: gateway, at: Self.now)
      return Self.json(JSONWriter.object { $0.field("acknowledged", through) })
    } catch {
      // Disk full and the like: the gateway keeps everything and tries again.
      return Self.refusal(.serviceUnavailable, "\(error)", retryAfter: 10)
    }
  }

  private static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

  private func greet(_ request: Request, _ context: BasicRequestContext) async throws -> Response {
    let gateway = context.parameters.get("id") ?? ""
    if let refusal = refused(request, gateway: gateway, toWrite: false) { return refusal }
    guard let known = try await store.gateways(gateway).first else {
      return Self.refusal(.notFound, "this gateway is not known")
    }
    let epoch = request.uri.queryParameters.get("epoch") ?? known.epoch
    let acknowledged = try await store.acknowledged(gateway: gateway, epoch: epoch)
    return Self.json(
      JSONWriter.object {
        Self.write(known, to: &$0)
        $0.field("epoch", epoch)
        $0.field("acknowledged", acknowledged)
      })
  }

  private static func write(_ gateway: HubStore.Gateway, to json: inout JSONWriter) {
    json.field("gateway", gateway.id)
    json.field("radio", gateway.radio)
    json.field("events", gateway.events)
    json.field("last_seen", gateway.lastSeen)
  }

  private func gateways(_ request: Request) async throws -> Response {
    if let refusal = refused(request, gateway: nil, toWrite: false) { return refusal }
    let limit = Self.limit(request)
    let found = try await store.gateways(after: request.uri.queryParameters.get("after") ?? "", limit: limit)
    return Self.json(
      JSONWriter.object { json in
        json.arrayField("gateways") { json in
          for gateway in found {
            json.object { json in
              Self.write(gateway, to: &json)
              json.field("epoch", gateway.epoch)
              json.field("acknowledged", gateway.acknowledged)
            }
          }
        }
        if found.count == limit { json.field("next", found.last?.id) }
      })
  }

  /// 100 rows a page unless asked for less or more, 1000 at most.
  private static func limit(_ request: Request) -> Int {
    min(max(request.uri.queryParameters.get("limit", as: Int.self) ?? 100, 1), 1000)
  }

  private func page(_ request: Request, _ context: BasicRequestContext, kind: String?) async throws -> Response {
    let gateway = context.parameters.get("id") ?? ""
    if let refusal = refused(request, gateway: gateway, toWrite: false) { return refusal }
    let after = request.uri.queryParameters.get("after", as: Int64.self) ?? 0
    return Self.json(
      try await store.events(gateway: gateway, kind: kind, after: after, limit: Self.limit(request)))
  }

  private func contacts(_ request: Request, _ context: BasicRequestContext) async throws -> Response {
    let gateway = context.parameters.get("id") ?? ""
    if let refusal = refused(request, gateway: gateway, toWrite: false) { return refusal }
    let after = request.uri.queryParameters.get("after") ?? ""
    return Self.json(try await store.contacts(gateway: gateway, after: after, limit: Self.limit(request)))
  }
}

/// A bucket of tokens a gateway: a second's worth at most.
actor RateLimiter {
  private let perSecond: Int
  private var buckets: [String: (tokens: Double, at: ContinuousClock.Instant)] = [:]

  init(perSecond: Int) { self.perSecond = perSecond }

  /// `nil` when it may pass; else after how many seconds to try again.
  func admit(_ gateway: String, events: Int) -> Int? {
    guard perSecond > 0 else { return nil }
    let now = ContinuousClock.now
    let rate = Double(perSecond)
    let bucket = buckets[gateway] ?? (rate, now)
    let elapsed = Double((now - bucket.at).components.seconds) + Double((now - bucket.at).components.attoseconds) / 1e18
    let tokens = min(rate, bucket.tokens + elapsed * rate)
    // A batch larger than a second's worth may pass from a full bucket, and leaves a debt.
    guard tokens >= min(Double(events), rate) else {
      return max(1, Int(((min(Double(events), rate) - tokens) / rate).rounded(.up)))
    }
    buckets[gateway] = (tokens - Double(events), now)
    return nil
  }
}
