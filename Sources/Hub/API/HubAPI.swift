// SPDX-License-Identifier: MIT

import Hummingbird
import HummingbirdCore
import JSON

/// The hub's HTTP API. Source of truth: docs/hub-protocol.md.
struct HubAPI: Sendable {
  let store: HubStore
  let access: HubAccess
  let registry: LinkRegistry
  let limiter: RateLimiter
  let admission: Admission
  let mostBody: Int

  typealias Handler = @Sendable (Call) async throws -> Response

  /// A request that may be answered: whose it is has been looked at.
  struct Call: Sendable {
    let request: Request
    /// Empty for what concerns all of them.
    let gateway: String
    /// The token's name.
    let author: String
    let parameters: Parameters

    func query(_ name: String) -> String? { request.uri.queryParameters.get(name) }
    /// 0 to 2⁵³; what lies outside counts as the bound.
    func number(_ name: String) -> Int64? {
      request.uri.queryParameters.get(name, as: Int64.self).map { min(max($0, 0), JSONValue.wholeNumbers.upperBound) }
    }
    /// 100 rows a page unless asked for less or more, 1000 at most.
    var limit: Int { min(max(request.uri.queryParameters.get("limit", as: Int.self) ?? 100, 1), 1000) }
  }

  func router() -> Router<BasicRequestContext> {
    let router = Router()
    router.get("/healthz") { _, _ in Self.json(Array("{\"ok\":true}".utf8)) }
    route(router, .get, "", .read, gateways)
    router.get("/v1/messages") { request, context in
      try await answer(request, context, .read) { try await joined($0) }
    }
    route(router, .get, "/{id}", .read, greet)
    route(router, .post, "/{id}/events", .write, take)
    route(router, .get, "/{id}/events", .read) { try await page($0, kind: nil) }
    route(router, .get, "/{id}/messages", .read) { try await page($0, kind: "message") }
    route(router, .get, "/{id}/contacts", .read, contacts)
    route(router, .get, "/{id}/link", .write) { _ in Self.refusal(.upgradeRequired, "this is a WebSocket") }
    route(router, .get, "/{id}/updates", .write, updates)
    route(router, .get, "/{id}/state", .read, states)
    route(router, .put, "/{id}/state/{name}", .write, setState)
    route(router, .post, "/{id}/commands", .command, command)
    route(router, .get, "/{id}/commands", .read, commands)
    route(router, .get, "/{id}/commands/{command}", .read, oneCommand)
    route(router, .get, "/{id}/documents", .read, documents)
    route(router, .put, "/{id}/documents/**", .command, editDocument)
    route(router, .delete, "/{id}/documents/**", .command, editDocument)
    return router
  }

  private func route(
    _ router: Router<BasicRequestContext>, _ method: HTTPRequest.Method, _ path: String, _ deed: HubAccess.Deed,
    _ handler: @escaping Handler
  ) {
    router.on(RouterPath("/v1/gateways" + path), method: method) { request, context in
      try await answer(request, context, deed, handler)
    }
  }

  private func answer(
    _ request: Request, _ context: BasicRequestContext, _ deed: HubAccess.Deed, _ handler: Handler
  ) async throws -> Response {
    let gateway = context.parameters.get("id")
    switch access.check(request.headers[.authorization], gateway: gateway, deed) {
    case .unknown(let words): return Self.refusal(.unauthorized, words)
    case .forbidden: return Self.refusal(.forbidden, "the token is not for this")
    case .allowed(let author):
      if let gateway, !Name.isAllowed(gateway) {
        return Self.refusal(.badRequest, "a gateway's id is \(Name.allowed)")
      }
      let call = Call(request: request, gateway: gateway ?? "", author: author, parameters: context.parameters)
      do {
        return try await handler(call)
      } catch let error as HubDatabaseError {
        // Disk full, a database that is away: whoever asks keeps everything and tries again.
        return Self.refusal(.serviceUnavailable, error.words, retryAfter: 10)
      }
    }
  }

  /// HTTP, and what becomes of it where a gateway opens its link.
  func connections(_ responder: @escaping HTTPChannelHandler.Responder) -> LinkUpgradeChannel {
    LinkUpgradeChannel(
      responder: responder, mostMessage: mostBody,
      admit: { [access] head in
        guard let gateway = LinkProtocol.gateway(in: head.uri),
          case .allowed = access.check(head.headers.first(name: "Authorization"), gateway: gateway, .write)
        else { return nil }
        return gateway
      },
      serve: { [store, registry, limiter, admission, mostBody] channel, gateway in
        await LinkSession(
          gateway: gateway, store: store, registry: registry, limiter: limiter, admission: admission,
          mostMessage: mostBody
        ).run(channel)
      })
  }

  // MARK: Answers

  static func json(_ body: [UInt8], status: HTTPResponse.Status = .ok) -> Response {
    var headers = HTTPFields()
    headers[.contentType] = "application/json"
    return Response(status: status, headers: headers, body: .init(byteBuffer: ByteBuffer(bytes: body)))
  }

  static func refusal(
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

  /// The body; `nil`: it is larger than anybody's need be.
  func body(of call: Call) async -> [UInt8]? {
    do {
      return Array(buffer: try await call.request.body.collect(upTo: mostBody))
    } catch {
      return nil
    }
  }

  func object(of call: Call) async -> JSONValue? {
    guard let bytes = await body(of: call) else { return nil }
    // `try?`: what is no JSON is refused, in words of the API.
    let value = try? JSONValue(parsing: bytes)
    return value?.fields == nil ? nil : value
  }
}
