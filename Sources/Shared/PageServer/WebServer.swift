// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Timing
import UntrustedText

/// A way to sign in.
public protocol WebAccess: AnyObject {
  /// The name of its field in the request: `secret` or `password`.
  var way: String { get }
  /// Whether an attacker could guess it: a password, but not 256 random bits.
  var isGuessable: Bool { get }
  /// Seconds that a browser keeps its cookie; `nil`: until the browser is closed.
  var cookieSeconds: Int? { get }
  /// Whether the secret or password is right. The check may take a while. If it is impossible now, the error is the answer for the browser.
  func isRight(_ given: String) async throws(WebGuard.Refusal) -> Bool
  /// Notes a sign-in from this address.
  func signedIn(from address: String)
  /// Notes a wrong guess from this address.
  func refused(from address: String)
  /// Stores sessions, so that they survive a restart of the host.
  func keep(_ sessions: WebSessions)
}

/// Serves browsers: the front end's files, signing in and, for signed-in browsers, the answers of `pass`.
public final class WebServer {
  /// Answers a request for data, like the control socket.
  public typealias Pass = (HTTPRequest, PassedRoutes.AnswerForm, HTTPResponder) async -> Void

  /// The accuracy of a session's stored last use.
  private static let keptTo: Duration = .seconds(86400)
  /// Bytes of a file that are in memory at a time.
  private static let pieceBytes = 16 * 1024

  private let files: PageFiles
  private let guardian: WebGuard
  private let access: any WebAccess
  private let pass: Pass
  private let loop: EventLoop
  private var sessions: WebSessions
  /// The answers in progress, by the digest of their session. They end with the session.
  private var answers: [ObjectIdentifier: (session: [UInt8], end: Waiter)] = [:]
  private var limit = GuessLimit()
  /// All ports of a host share its cookies, so the cookie's name contains the port.
  private let cookie: String
  /// The tile server that the operator has configured.
  public var tiles: TileServer?
  /// One guess at a time: each guess has to count before the next check.
  private let guesses = LoopSemaphore<Int>(bound: 8)

  public init(
    files: PageFiles, guardian: WebGuard, access: any WebAccess, cookie: String, sessions: WebSessions = WebSessions(),
    on loop: EventLoop, pass: @escaping Pass
  ) {
    self.sessions = sessions
    (self.files, self.guardian, self.access) = (files, guardian, access)
    (self.cookie, self.loop, self.pass) = (cookie, loop, pass)
  }

  public func answer(_ request: HTTPRequest, _ responder: HTTPResponder) async {
    let browser = BrowserRequest(request)
    let address = Self.address(request, responder)
    responder.asks(for: address)
    do throws(WebGuard.Refusal) {
      try guardian.check(browser)
      let path = request.path
      if path.isExactly("/session") {
        try guardian.checkSameOrigin(browser)
        responder.respond(await session(request, from: address))
      } else if path.begins(with: "/v1/") {
        try guardian.checkSameOrigin(browser)
        guard let session = session(of: request) else { throw WebGuard.Refusal(status: 401, message: "sign in") }
        guard responder.showed(session.map { String($0, radix: 16) }.joined()) else {
          throw WebGuard.Refusal(status: 429, message: "too many open connections of this browser")
        }
        guard let way = PassedRoutes.way(request.method, path) else {
          throw WebGuard.Refusal(status: 403, message: "pages may not use \(request.method) \(path)")
        }
        // A stream has no end, at which a compressor would release the rest.
        responder.compresses =
          way != .stream && request.query["follow"] == nil && request.headers.hasToken("gzip", in: "Accept-Encoding")
        await pass(request, way, responder, of: session)
      } else {
        try await give(request, responder)
      }
    } catch {
      responder.respond(Self.json(status: error.status) { $0.field("error", error.message) })
    }
  }

  // MARK: Files

  private func give(_ request: HTTPRequest, _ responder: HTTPResponder) async throws(WebGuard.Refusal) {
    guard ["GET", "HEAD"].contains(where: { request.method.isExactly($0) }) else {
      throw WebGuard.Refusal(status: 405, message: request.method)
    }
    guard let path = PercentCoding.decode(request.path),
      let file = files.file(for: path, acceptsGzip: request.headers.hasToken("gzip", in: "Accept-Encoding"))
    else { throw WebGuard.Refusal(status: 404, message: "not found: \(request.path)") }
    var headers = file.isDocument ? WebGuard.headers(tiles: tiles) : WebGuard.partHeaders
    headers.add("ETag", file.tag)
    headers.add("Cache-Control", file.cacheControl)
    headers.add("Vary", "Accept-Encoding")
    if request.headers.hasToken(file.tag, in: "If-None-Match") {
      return responder.respond(HTTPResponse(status: 304, headers: headers))
    }
    headers.add("Content-Type", file.type)
    if file.isGzip { headers.add("Content-Encoding", "gzip") }
    responder.begin(headers: headers, length: file.size)
    guard !request.method.isExactly("HEAD") else { return responder.end() }
    do throws(CancellationError) {
      while true {
        guard let piece = file.read(Self.pieceBytes) else { return responder.abort() }
        if piece.isEmpty { break }
        responder.write(piece)
        try await responder.drained()
      }
      responder.end()
    } catch {
      responder.abort()
    }
  }

  // MARK: Sessions

  /// The number of sessions.
  public var sessionCount: Int { sessions.count }

  /// Ends all sessions, and the answers to them in progress.
  public func endSessions() {
    sessions.endAll()
    endAnswers { _ in true }
  }

  private func session(of request: HTTPRequest) -> [UInt8]? {
    for token in tokens(request) {
      guard let session = sessions.use(token, now: loop.now) else { continue }
      // The stored time is exact to a day: each write wears an SD card.
      if loop.now - session.usedAt > Self.keptTo { access.keep(sessions) }
      return session.digest
    }
    return nil
  }

  /// Answers until the session ends.
  private func pass(
    _ request: HTTPRequest, _ way: PassedRoutes.AnswerForm, _ responder: HTTPResponder, of session: [UInt8]
  ) async {
    let end = Waiter()
    answers[ObjectIdentifier(end)] = (session, end)
    defer { answers[ObjectIdentifier(end)] = nil }
    // The gateway gets no other header field of the browser.
    var headers: HTTPHeaders = [:]
    if let id = request.headers["Last-Event-ID"] { headers.add("Last-Event-ID", id) }
    let stripped = HTTPRequest(request.method, request.target, headers: headers, body: request.body)
    do {
      try await loop.race(
        { await self.pass(stripped, way, responder) },
        { try await end.wait() })
    } catch {
      // The client has disconnected.
    }
    if !responder.isOver { responder.abort() }
  }

  private func endAnswers(_ belongs: ([UInt8]) -> Bool) {
    for answer in answers.values where belongs(answer.session) { answer.end.resume() }
  }

  /// The address under which guesses count. A proxy on this machine names its client's address. Of an IPv6 address the network counts, because a
  /// machine can use any address in it.
  static func address(_ request: HTTPRequest, _ responder: HTTPResponder) -> String {
    guard let peer = responder.peer else { return "" }
    let asked = peer.isLoopback ? request.headers.values(of: "X-Forwarded-For").last?.pieces(at: ",").last : nil
    let text = asked.map { String(decoding: $0.utf8.filter { $0 > 0x20 }, as: UTF8.self) }
    return (text.flatMap { IPAddress($0) } ?? peer).network
  }

  private func tokens(_ request: HTTPRequest) -> [String] {
    WebSessions.tokens(of: cookie, in: request.headers.values(of: "Cookie"))
  }

  private func session(_ request: HTTPRequest, from address: String) async -> HTTPResponse {
    switch request.method {
    case "GET", "HEAD": return state(isSignedIn: session(of: request) != nil)
    case "DELETE":
      var hasEnded = false
      for token in tokens(request) where sessions.end(token) {
        hasEnded = true
        endAnswers { $0 == WebSessions.digest(token) }
      }
      // A request without a session causes no write.
      if hasEnded { access.keep(sessions) }
      var response = state(isSignedIn: false)
      response.headers.add("Set-Cookie", "\(cookie)=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
      return response
    default:
      do {
        return try await guesses.with(0) { await signIn(request, from: address) }
      } catch {
        return Self.json(status: 429) { $0.field("error", "too many try at the same time") }
      }
    }
  }

  private func state(isSignedIn: Bool) -> HTTPResponse {
    Self.json { json in
      json.field("signed_in", isSignedIn)
      if isSignedIn {
        json.field("way", access.way)
        json.field("can_change", true)
        if let tiles {
          json.objectField("tiles") { json in
            json.field("url", tiles.url)
            json.field("credit", tiles.credit)
          }
        }
      } else {
        json.arrayField("ways") { $0.value(access.way) }
      }
    }
  }

  private func signIn(_ request: HTTPRequest, from address: String) async -> HTTPResponse {
    if access.isGuessable, let pause = limit.pause(of: Guesser(address: address), now: loop.now) {
      return Self.json(status: 429) { json in
        json.field("error", "too many wrong tries")
        json.field("retry_after_s", Int64(clamping: pause.components.seconds + 1))
      }
    }
    // `try?`: a body that is not JSON contains no password.
    let body = try? JSONValue(parsing: request.body)
    guard let given = body?[access.way]?.string, given.utf8.count <= 1024 else {
      return Self.json(status: 400) { $0.field("error", "\"\(access.way)\" is missing") }
    }
    do throws(WebGuard.Refusal) {
      guard try await access.isRight(given) else {
        limit.guessedWrong(by: Guesser(address: address), now: loop.now)
        access.refused(from: address)
        return Self.json(status: 403) { $0.field("error", "wrong \(access.way)") }
      }
    } catch {
      return Self.json(status: error.status) { $0.field("error", error.message) }
    }
    limit.guessedRight(by: Guesser(address: address))
    let token = WebSessions.token()
    sessions.begin(token, now: loop.now)
    access.keep(sessions)
    access.signedIn(from: address)
    var response = state(isSignedIn: true)
    let age = access.cookieSeconds.map { "; Max-Age=\($0)" } ?? ""
    let isSecure = request.headers["X-Forwarded-Proto"]?.isExactly("https") == true
    let secure = isSecure ? "; Secure" : ""
    response.headers.add("Set-Cookie", "\(cookie)=\(token); Path=/; HttpOnly; SameSite=Strict\(age)\(secure)")
    return response
  }

  // MARK: Answers

  /// Headers of answers with data: like those of files, and against caching.
  public static let dataHeaders: HTTPHeaders = {
    var headers = WebGuard.headers
    headers.add("Cache-Control", "no-store")
    return headers
  }()

  private static func json(status: Int = 200, _ body: (inout JSONWriter) -> Void) -> HTTPResponse {
    var headers = dataHeaders
    headers.add("Content-Type", "application/json")
    return HTTPResponse(status: status, headers: headers, body: JSONWriter.object(body) + [10])
  }
}
