// SPDX-License-Identifier: MIT

import Deflate
import HTTP
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSON
import MeshCrypto
import NIOCore
import PageServer

/// The hub's HTTP API. Source of truth: docs/hub-protocol.md.
struct HubAPI: Sendable {
  let stores: HubStores
  let access: HubAccess
  let registry: LinkRegistry
  let links: SharedLinkTable
  let figures: FleetFigures
  let live: LiveFeed
  let watch: HubAlerts
  /// The open alerts of each of these gateways that has any; of all gateways for an empty list.
  var alerts: @Sendable ([String]) async throws -> [String: OpenAlerts] = { _ in [:] }
  /// `nil`: no other hub can share the database.
  let peerHubs: PeerHubRequests?
  let limiter: RateLimiter
  let memory: TransferMemory
  let connections: ConnectionTable
  let refused: RefusedLogins
  let maxBody: Int
  let short = ShortPosts()
  /// `nil`: the hub has no folder of gateways' tokens.
  var tokenRefresh: TokenRefresh?
  /// `nil`: the hub has no pages.
  var web: HubWeb?

  typealias Handler = @Sendable (Call) async throws -> Response

  struct Call: Sendable {
    let request: Request
    /// Empty in requests about all gateways.
    let gateway: String
    let grant: HubAccess.Grant
    var author: String { grant.name }
    var signInMethod: AuditRecord.SignInMethod = .token
    /// The name under which readers take turns.
    var holder: String { "\(signInMethod.rawValue) \(author)" }
    let parameters: Parameters
    /// Of the query.
    let values: [String: String]
    /// The session of a short post, with the post's key.
    var short: ShortPosts.Session?

    func query(_ name: String) -> String? { values[name] }
    /// 0 to 2⁵³; a number outside counts as the nearest bound.
    func number(_ name: String) -> Int64? {
      query(name).flatMap { Int64($0) }.map { min(max($0, 0), JSONValue.wholeNumbers.upperBound) }
    }
    /// The compression of the body; `nil`: none.
    var coding: String? {
      if short != nil { return LinkDictionary.contentEncoding }
      let coding = request.headers[.contentEncoding]?.lowercased()
      return coding == "identity" ? nil : coding
    }
  }

  func router() -> Router<HubContext> {
    let router = Router(context: HubContext.self, options: .autoGenerateHeadEndpoints)
    router.add(middleware: RefusingMiddleware())
    router.get("/healthz") { _, _ in Self.json(["ok": true]) }
    router.get("/readyz") { _, _ in ready() }
    router.get("/metrics") { request, context in try await answer(request, context, .measure, metrics) }
    // Each route is documented where it is declared: `routes`.
    for route in routes {
      router.on(RouterPath(route.path), method: route.method) { request, context in
        try await answer(request, context, route.operation, route.handler)
      }
    }
    router.post("/v1/e") { request, context in try await takeShort(request, context) }
    let description = Self.json(HubRoute.document(routes))
    router.get("/openapi.json") { _, _ in description }
    routePages(router)
    return router
  }

  /// Checks a token. An unknown token may be new: the hub reads the folder again, and checks the token once more.
  private func check(_ authorization: String?, gateway: String?, _ operation: HubAccess.Operation) async
    -> HubAccess.Verdict
  {
    let verdict = access.check(authorization, gateway: gateway, operation)
    guard verdict == HubAccess.unknownToken, let tokenRefresh else { return verdict }
    await tokenRefresh.refresh()
    return access.check(authorization, gateway: gateway, operation)
  }

  /// Answers a request that has a token, or the cookie of a signed-in person.
  func answer(
    _ request: Request, _ context: HubContext, _ operation: HubAccess.Operation, _ handler: Handler
  ) async throws -> Response {
    guard let web, request.headers[.authorization] == nil, request.headers[.cookie] != nil else {
      let verdict = await check(request.headers[.authorization], gateway: context.parameters.get("id"), operation)
      return try await answer(request, context, verdict, by: .token, handler)
    }
    do {
      try web.check(request, sameOrigin: true)
      guard let visitor = try await web.visitor(request) else {
        return HubWeb.plain(Self.refusal(.unauthorized, "sign in"))
      }
      let grant = HubAccess.Grant(
        name: visitor.person.name, proof: .session(visitor.token), gateway: context.parameters.get("id"),
        operation: operation)
      guard visitor.person.role.allows(operation) else {
        HubLog.write(
          .info,
          "\(grant.name) (\(visitor.person.role.rawValue)) may not \(request.method.rawValue) \(request.uri.path)")
        return HubWeb.plain(
          Self.refusal(.forbidden, "your role does not allow this: \(visitor.person.role.rawValue)"))
      }
      return HubWeb.plain(try await answer(request, context, .allowed(grant), by: visitor.person.signInMethod, handler))
    } catch let refusal as WebGuard.Refusal {
      return HubWeb.refusing(refusal)
    } catch let error as HubDatabaseError {
      return unavailable(error)
    }
  }

  func answer(
    _ request: Request, _ context: HubContext, _ verdict: HubAccess.Verdict, by signInMethod: AuditRecord.SignInMethod,
    short: ShortPosts.Session? = nil, _ handler: Handler
  ) async throws -> Response {
    let gateway = short?.gateway ?? context.parameters.get("id")
    /// `words`: for the log.
    func refuse(_ login: HubMetrics.Login, _ words: String, _ answer: String) -> Response {
      stores.metrics.refused(login)
      refused.note(from: source(of: request, context).host, words, request.method.rawValue, request.uri.path)
      return Self.refusal(login == .unknown ? .unauthorized : .forbidden, answer)
    }
    switch verdict {
    case .unknown(let message): return refuse(.unknown, message, message)
    case .forbidden(let name):
      return refuse(.forbidden, "the token \(name) does not allow this", "the token does not allow this")
    case .unbound(let grant):
      guard let gateway, Name.isAllowed(gateway) else { return Self.invalidID }
      let reason: String?
      do {
        reason = try await access.bind(grant, in: stores)
      } catch let error as HubDatabaseError {
        return unavailable(error)
      }
      guard let reason else {
        return try await answer(request, context, .allowed(grant), by: signInMethod, short: short, handler)
      }
      return refuse(.forbidden, "the token \(grant.name): \(reason)", reason)
    case .allowed(let grant):
      guard connections.register(grant, on: context.channel) else {
        stores.metrics.wasBusy(.connections)
        return Self.refusal(.tooManyRequests, "too many open connections with this token", retryAfter: 30)
      }
      if let gateway, !Name.isAllowed(gateway) { return Self.invalidID }
      let call = Call(
        request: request, gateway: gateway ?? "", grant: grant, signInMethod: signInMethod,
        parameters: context.parameters, values: request.values, short: short)
      do {
        return try await reservingMemory(call, handler)
      } catch let error as BadQuery {
        return Self.refusal(.badRequest, error.message)
      } catch let late as QueueTimeout {
        stores.metrics.wasBusy(late.failure == nil ? .queue : .database)
        return Self.refusal(.serviceUnavailable, late.description, retryAfter: late.retryAfter)
      } catch is TooManyQueries {
        stores.metrics.wasBusy(.queue)
        return Self.refusal(.tooManyRequests, TooManyQueries.message, retryAfter: TooManyQueries.retryAfter)
      } catch let error as HubDatabaseError where error.kind == .unfit {
        return Self.refusal(.unprocessableContent, error.message)
      } catch let error as HubDatabaseError {
        return unanswered(error)
      }
    }
  }

  static let failures = ThrottledLog(HubLog.write)

  /// The disk is full or the database is unavailable: the client keeps its data and retries. `more`: adds fields.
  func unanswered(_ error: HubDatabaseError, _ more: JSONObject = [:]) -> Response {
    stores.metrics.wasBusy(.database)
    Self.failures.say("a request is not answered: \(error.message)")
    return Self.refusal(.serviceUnavailable, error.reason, retryAfter: 10, more)
  }

  private static var invalidID: Response { refusal(.badRequest, "a gateway's id must be \(Name.allowed)") }

  /// Reserves memory for large data until it is consumed: for a body before it is read, for an answer before it is sent.
  private func reservingMemory(_ call: Call, _ handler: Handler) async throws -> Response {
    let holder = call.grant.holder
    let isAsking = [.get, .head, .delete].contains(call.request.method)
    // The size of a compressed body is unknown until it is unpacked.
    let isPlain = call.request.headers[.contentEncoding] == nil
    let length = isPlain ? call.request.headers[.contentLength].flatMap { Int($0) } ?? maxBody : maxBody
    let body = isAsking || length <= TransferMemory.small ? 0 : min(max(length, 0), maxBody)
    guard let reading = memory.reserve(body, for: holder) else { return noMemory }
    defer { withExtendedLifetime(reading) {} }
    let response = try await ResponseCompression.compressed(try await handler(call), for: call.request)
    let bytes = response.body.contentLength ?? 0
    guard bytes > TransferMemory.small else { return response }
    guard let sending = memory.reserve(bytes, for: holder) else { return noMemory }
    let content = response.body
    var slow = response
    slow.body = ResponseBody(contentLength: bytes) { writer in
      try await content.write(writer)
      withExtendedLifetime(sending) {}
    }
    return slow
  }

  private var noMemory: Response {
    stores.metrics.wasBusy(.memory)
    return Self.refusal(.serviceUnavailable, "too many large requests in progress", retryAfter: 2)
  }

  /// HTTP connections, and their upgrade to a gateway's link.
  func childChannel(_ responder: @escaping HTTPChannelHandler.Responder) -> LinkUpgradeChannel {
    LinkUpgradeChannel(
      responder: responder, maxMessage: maxBody, connections: connections,
      admit: { [access, tokenRefresh] head in
        guard let gateway = LinkProtocol.gateway(in: head.uri) else { return .closed }
        return switch access.check(head.headers.first(name: "Authorization"), gateway: gateway, .write) {
        case .allowed(let grant) where head.headers[LinkProtocol.Origin.field].isEmpty:
          .open(LinkProtocol.AuthorizedGateway(gateway: gateway, grant: grant))
        case .allowed, .unbound: .undecided
        case let verdict: verdict == HubAccess.unknownToken && tokenRefresh != nil ? .undecided : .closed
        }
      },
      decide: { head in
        guard let gateway = LinkProtocol.gateway(in: head.uri) else { return nil }
        let origin = LinkProtocol.Origin(head.headers.first(name: LinkProtocol.Origin.field))
        let visitor: LinkProtocol.AuthorizedGateway
        switch await check(head.headers.first(name: "Authorization"), gateway: gateway, .write) {
        case .allowed(let grant): visitor = .init(gateway: gateway, grant: grant, origin: origin)
        case .unbound(let grant):
          guard try await access.bind(grant, in: stores) == nil else { return nil }
          visitor = .init(gateway: gateway, grant: grant, origin: origin)
        case .unknown, .forbidden: return nil
        }
        return await registry.holder(gateway, against: origin) == nil ? visitor : nil
      },
      serve: { [stores, registry, limiter, access, maxBody] channel, link, compression in
        await LinkSession(
          gateway: link.gateway, stores: stores, registry: registry, limiter: limiter, maxMessage: maxBody,
          origin: link.origin, compression: compression, isAllowed: { access.allows(link.grant) }
        ).run(channel)
      })
  }

  // MARK: Answers

  /// `headers`: besides the content type.
  static func json(_ body: [UInt8], status: HTTPResponse.Status = .ok, headers: HTTPFields = [:]) -> Response {
    var headers = headers
    headers[.contentType] = "application/json"
    let buffer = ByteBuffer(bytes: body)
    guard body.count > TransferMemory.small else {
      return Response(status: status, headers: headers, body: .init(byteBuffer: buffer))
    }
    // Sends pieces: each waits until the one before is on its way.
    let pieces = ResponseBody(contentLength: body.count) { writer in
      var rest = buffer
      while let piece = rest.readSlice(length: min(TransferMemory.small, rest.readableBytes)), piece.readableBytes > 0 {
        try await writer.write(piece)
      }
      try await writer.finish(nil)
    }
    return Response(status: status, headers: headers, body: pieces)
  }

  static func json(_ object: JSONObject, status: HTTPResponse.Status = .ok) -> Response {
    json(JSONWriter.object(object), status: status)
  }

  /// What this version can, for answers to greetings: the encodings that bodies may have, and deletion of messages.
  static let abilities: JSONObject = ["gzip": true, "deflate": LinkDictionary.name, "deletes": true]

  /// A short answer for gateways that pay for each byte. It has no type and no date (`RequestTimeoutHandler` removes the date): a client that
  /// forwards or stores the answer adds a date itself (RFC 9110 § 6.6.1).
  static func brief(_ text: String) -> Response {
    Response(
      status: .ok, headers: [RequestTimeoutHandler.isBrief: ""], body: .init(byteBuffer: ByteBuffer(string: text)))
  }

  /// `more`: adds further fields.
  static func refusal(
    _ status: HTTPResponse.Status, _ reason: String, seq: Int64? = nil, retryAfter: Int? = nil,
    _ more: JSONObject = [:]
  ) -> Response {
    var response = json(JSONObject(joining: ["error": reason, "seq": seq], more), status: status)
    if let retryAfter { response.headers[.retryAfter] = String(retryAfter) }
    if status == .unsupportedMediaType { response.headers[.acceptEncoding] = "gzip, \(LinkDictionary.contentEncoding)" }
    if status == .unauthorized { response.headers[.wwwAuthenticate] = "Bearer" }
    return response
  }

  /// The body of a request that has at most this many bytes.
  static func body(of request: Request, most: Int, _ what: String = "a batch") async throws(Unreadable) -> [UInt8] {
    do {
      return Array(buffer: try await request.body.collect(upTo: most))
    } catch let error where error.isBrokenRequest {
      throw Unreadable(status: .badRequest, message: "the body is not valid HTTP; Transfer-Encoding may be chunked")
    } catch {
      throw tooLarge(most, what)
    }
  }

  private static func tooLarge(_ most: Int, _ what: String = "a batch") -> Unreadable {
    Unreadable(status: .contentTooLarge, message: "\(what) may have at most \(most) bytes")
  }

  /// The body, decompressed if need be. The error is the answer to the client.
  func plainBody(of call: Call) async throws(Unreadable) -> [UInt8] {
    let bytes = try await Self.body(of: call.request, most: maxBody)
    guard let coding = call.coding else { return bytes }
    guard ["gzip", LinkDictionary.contentEncoding].contains(coding) else {
      throw Unreadable(
        status: .unsupportedMediaType,
        message: "Content-Encoding may be gzip or \(LinkDictionary.contentEncoding)")
    }
    let plain: [UInt8]
    do throws(InflateFailure) {
      if coding == "gzip" { return try Inflater.gunzip(bytes, limit: maxBody) }
      let dictionary = LinkDictionary.fromGateway + (call.short?.last ?? [])
      plain = try Inflater.whole(bytes, dictionary: dictionary, limit: maxBody)
    } catch {
      throw error == .tooLarge
        ? Self.tooLarge(maxBody) : Unreadable(status: .badRequest, message: "the body is not valid \(coding)")
    }
    if let short = call.short, !Digest.sha256(plain).prefix(ShortPosts.checkBytes).elementsEqual(short.check) {
      throw Unreadable(status: .conflict, message: "another batch than this was compressed: greet")
    }
    return plain
  }

  struct Unreadable: Error {
    let status: HTTPResponse.Status
    let message: String
  }

  func object(of call: Call) async throws(BadQuery) -> JSONValue? {
    // `try?`: the caller says what it expects in place of it.
    guard let bytes = try? await Self.body(of: call.request, most: maxBody) else { return nil }
    // `try?`: invalid JSON is refused with an error of the API.
    let value = try? JSONValue(parsing: bytes)
    if let name = value?.repeatedName { throw BadQuery("\"\(name)\" is there twice in an object") }
    return value?.fields == nil ? nil : value
  }
}

extension Request {
  /// The parameters of the query. Unlike Hummingbird's, a `+` is a space, as browsers write it.
  var values: [String: String] { PercentCoding.query(uri.query ?? "") }
}

struct HubContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
  }
}

/// Refuses requests without a route with a body, like all other refusals; and requests with several `Host`: two readers of them may go by different ones
/// (RFC 9112 § 3.2). The first is the authority already. Probes with HTTP/1.0 have none, and need none; the pages do.
private struct RefusingMiddleware: RouterMiddleware {
  private static let host = HTTPField.Name("Host")!

  @concurrent func handle(
    _ request: Request, context: HubContext, next: @concurrent (Request, HubContext) async throws -> Response
  ) async throws -> Response {
    let response = try await answer(request, context, next)
    // Of a refusal, too: a body would be the beginning of the next answer.
    return request.method == .head ? response.createHeadResponse() : response
  }

  private func answer(
    _ request: Request, _ context: HubContext, _ next: @concurrent (Request, HubContext) async throws -> Response
  ) async throws -> Response {
    guard request.headers[Self.host] == nil else { return HubAPI.refusal(.badRequest, "a request has one Host") }
    do {
      return try await next(request, context)
    } catch let error as HTTPError where error.status == .notFound {
      return HubAPI.refusal(.notFound, "not found: \(request.method.rawValue) \(request.uri.path)")
    }
  }
}
