// SPDX-License-Identifier: MIT

import EventLoop
import Hummingbird
import JSON
import PageServer

/// Requests for signing in, people, tokens and the audit.
extension HubAPI {
  func routePages(_ router: Router<HubContext>) {
    guard let web else { return }
    func route(
      _ path: RouterPath, _ method: HTTPRequest.Method,
      _ handler: @escaping @Sendable (Request, HubContext) async throws -> Response
    ) {
      router.on(path, method: method) { request, context in
        do {
          return try await handler(request, context)
        } catch let refusal as WebGuard.Refusal {
          return HubWeb.refusing(refusal)
        } catch let error as HubDatabaseError {
          return unavailable(error)
        }
      }
    }
    route("/session", .get) { request, _ in try await web.state(request) }
    route("/session", .delete) { request, _ in try await web.signOut(request) }
    route("/session", .post) { request, context in
      // `try?`: a body that is too large has no password.
      let body = try? await request.body.collect(upTo: 16 * 1024)
      return try await web.signIn(
        request, body.map { Array(buffer: $0) }, from: source(of: request, context).address)
    }
    if web.provider != nil {
      route("/oidc/start", .get) { request, context in
        try await web.startOpenID(request, from: source(of: request, context).address)
      }
      route("/oidc/back", .get) { request, context in
        try await web.endOpenID(request, from: source(of: request, context).address)
      }
    }
    route("/", .get) { request, _ in web.file(request) }
    route("/**", .get) { request, _ in web.file(request) }
  }

  /// An answer for people without a session: it has neither the database's address nor its message.
  func unavailable(_ error: HubDatabaseError) -> Response {
    stores.metrics.wasBusy(.database)
    HubLog.debug("pages: \(error.message)")
    return HubWeb.plain(Self.refusal(.serviceUnavailable, "the database does not answer", retryAfter: 10))
  }

  /// The client's address, for the log and for limits; a limit counts an IPv6 network as one. If a proxy on this machine names the client, the
  /// connection counts as the client's.
  func source(of request: Request, _ context: HubContext) -> (host: String, address: String) {
    let host = ConnectionTable.host(context.channel)
    guard let peer = IPAddress(host) else { return (host, host) }
    let asked = peer.isLoopback ? request.headers[values: .init("X-Forwarded-For")!].last : nil
    let last = asked?.split(separator: ",").last.map { $0.filter { $0 != " " } }
    guard let client = last.flatMap({ IPAddress(String($0)) }) else { return (host, peer.network) }
    connections.setClient(client.network, of: context.channel)
    return ("\(client)", client.network)
  }

  // MARK: People

  func people(_ call: Call) async throws -> Response {
    let people = try await stores.readers.ask(call.holder) { try $0.people() }
    return Self.json([
      "people": people.map { person -> JSONObject in
        [
          "name": person.name, "role": person.role.rawValue, "way": person.signInMethod.rawValue,
          "created_at": person.createdAt, "last_used": person.usedAt,
        ]
      }
    ])
  }

  func setPerson(_ call: Call) async throws -> Response {
    guard let name = call.parameters.get("name"), Name.isAllowed(name) else {
      return Self.refusal(.badRequest, "a name must be \(Name.allowed)")
    }
    guard let body = try await object(of: call) else { return Self.refusal(.badRequest, "expected a JSON object") }
    let role = body["role"]?.string.flatMap(HubPerson.Role.init)
    let password = body["password"]?.string
    if body["role"] != nil, role == nil {
      return Self.refusal(.badRequest, "\"role\" is one of: \(HubPerson.Role.names)")
    }
    if body["password"] != nil, !HubPerson.isPassword(password ?? "") {
      return Self.refusal(.badRequest, HubPerson.passwordRule)
    }
    guard role != nil || password != nil else {
      return Self.refusal(.badRequest, "\"role\" or \"password\" is missing")
    }
    var hash: String?
    if let password {
      hash = await web?.hash(password)
      guard hash != nil else {
        stores.metrics.wasBusy(.memory)
        return Self.refusal(.serviceUnavailable, "not enough memory", retryAfter: 10)
      }
    }
    let isNew = try await stores.writer.person(name) == nil
    guard !isNew || Name.isAllowedNew(name) else {
      return Self.refusal(.badRequest, "a name must be \(Name.allowedNew)")
    }
    if let refusal = try await stores.writer.setPerson(name, role: role, hash: hash, at: HubClock.now) {
      return Self.refusal(refusal)
    }
    try await note(
      "person", call,
      [
        "name": name, "added": isNew ? true : nil, "role": role?.rawValue,
        "password": hash != nil && !isNew ? "changed" : nil,
      ])
    return Self.json(["ok": true])
  }

  private static func refusal(_ refusal: HubStore.PeopleRefusal) -> Response {
    Self.refusal(refusal.isUnknown ? .notFound : .conflict, refusal.description)
  }

  func removePerson(_ call: Call) async throws -> Response {
    let name = call.parameters.get("name") ?? ""
    if let refusal = try await stores.writer.removePerson(name) { return Self.refusal(refusal) }
    try await note(
      "person", call,
      ["name": name, "removed": true])
    return Self.json(["ok": true])
  }

  /// Most listed gateways of one token.
  private static let mostListed = 100

  func tokens(_ call: Call) async throws -> Response {
    let listed = access.list
    let uses = try await stores.readers.ask(call.holder) { try $0.tokenUses() }
    return Self.json([
      "tokens": listed.map { one -> JSONObject in
        [
          "name": one.token.name, "gateway": one.token.gateway, "access": one.token.access.rawValue,
          "gateways": one.gateways.isEmpty ? nil : Array(one.gateways.prefix(Self.mostListed)),
          "last_used": [one.usedAt, uses[one.token.name]].compactMap { $0 }.max(),
        ]
      }
    ])
  }

  // MARK: Audit

  /// Adds a record to the audit. `detail`: JSON, without secrets.
  func note(_ what: String, _ call: Call, _ detail: JSONObject) async throws {
    // Only the pages show the audit.
    guard web != nil else { return }
    try await stores.writer.note(
      AuditRecord(
        at: HubClock.now, who: call.author, signInMethod: call.signInMethod, what: what,
        gateway: call.gateway.isEmpty ? nil : call.gateway,
        detail: JSONWriter.text(detail)))
  }
}

extension HubPerson.Role {
  public static var names: String { allCases.map(\.rawValue).joined(separator: ", ") }
}
