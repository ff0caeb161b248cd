// SPDX-License-Identifier: MIT

import Escaping
import EventLoop
import HTTP
import JSON
import Timing

/// How somebody signs in.
public protocol WebAccess: AnyObject {
  /// `secret` or `password`: the field of the request that it comes in.
  var way: String { get }
  /// Whether this lets them in. It may take a while.
  func isRight(_ given: String) async -> Bool
  /// Somebody has signed in.
  func signedIn()
}

/// Answers browsers: the front end's files, signing in, and, for who is signed in, what `pass` answers.
public final class WebServer {
  /// Answers a request for data, as the control socket does.
  public typealias Pass = (HTTPRequest, PassedRoutes.Way, HTTPResponder) async -> Void

  /// Bytes of a file that are in memory at once.
  private static let pieceBytes = 16 * 1024

  private let files: PageFiles
  private let guardian: WebGuard
  private let access: any WebAccess
  private let pass: Pass
  private let loop: EventLoop
  private var sessions = WebSessions()
  /// Cookies do not tell ports apart, so their names do.
  private let cookie: String
  /// One guess at a time: those that come together must not all be tried before the first counts.
  private let guesses = LoopSemaphore<Int>(bound: 8)

  public init(
    files: PageFiles, guardian: WebGuard, access: any WebAccess, cookie: String, on loop: EventLoop,
    pass: @escaping Pass
  ) {
    (self.files, self.guardian, self.access) = (files, guardian, access)
    (self.cookie, self.loop, self.pass) = (cookie, loop, pass)
  }

  public func answer(_ request: HTTPRequest, _ responder: HTTPResponder) async {
    do throws(WebGuard.Refusal) {
      try guardian.check(request)
      let path = request.path
      if path.isExactly("/session") {
        try guardian.checkSameOrigin(request)
        responder.respond(await session(request))
      } else if path.begins(with: "/v1/") {
        try guardian.checkSameOrigin(request)
        guard isSignedIn(request) else { throw WebGuard.Refusal(status: 401, words: "sign in") }
        guard let way = PassedRoutes.way(request.method, path) else {
          throw WebGuard.Refusal(status: 403, words: "pages may not use \(request.method) \(path)")
        }
        await pass(request, way, responder)
      } else {
        try await give(request, responder)
      }
    } catch {
      responder.respond(Self.json(status: error.status) { $0.field("error", error.words) })
    }
  }

  // MARK: Files

  private func give(_ request: HTTPRequest, _ responder: HTTPResponder) async throws(WebGuard.Refusal) {
    guard ["GET", "HEAD"].contains(where: { request.method.isExactly($0) }) else {
      throw WebGuard.Refusal(status: 405, words: request.method)
    }
    guard let path = PercentCoding.decode(request.path),
      let file = files.file(for: path, acceptsGzip: request.headers.hasToken("gzip", in: "Accept-Encoding"))
    else { throw WebGuard.Refusal(status: 404, words: "not found: \(request.path)") }
    var headers = WebGuard.headers
    headers.add("ETag", file.tag)
    headers.add("Cache-Control", "no-cache")
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

  private func isSignedIn(_ request: HTTPRequest) -> Bool {
    tokens(request).contains { sessions.use($0, now: loop.now) }
  }

  /// A server at another port of this machine can set a cookie of the same name: one of several may be ours.
  private func tokens(_ request: HTTPRequest) -> [String] {
    var found: [String] = []
    for field in request.headers.values(of: "Cookie") {
      for pair in field.pieces(at: ";") {
        let parts = pair.utf8.drop { $0 == 0x20 }.split(separator: UInt8(ascii: "="), maxSplits: 1)
        guard parts.count == 2, let name = String(parts[0]), name.isExactly(cookie), let value = String(parts[1]) else {
          continue
        }
        found.append(value)
      }
    }
    return found
  }

  private func session(_ request: HTTPRequest) async -> HTTPResponse {
    switch request.method {
    case "GET": return state(isSignedIn: isSignedIn(request))
    case "DELETE":
      for token in tokens(request) { sessions.end(token) }
      var response = state(isSignedIn: false)
      response.headers.add("Set-Cookie", "\(cookie)=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
      return response
    default:
      do {
        return try await guesses.with(0) { await signIn(request) }
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
      } else {
        json.arrayField("ways") { $0.value(access.way) }
      }
    }
  }

  private func signIn(_ request: HTTPRequest) async -> HTTPResponse {
    if let pause = sessions.pause(now: loop.now) {
      return Self.json(status: 429) { json in
        json.field("error", "too many wrong tries")
        json.field("retry_after_s", Int64(clamping: pause.components.seconds + 1))
      }
    }
    // `try?`: what is no JSON has no password either.
    let body = try? JSONValue(parsing: request.body)
    guard let given = body?[access.way]?.string, given.utf8.count <= 1024 else {
      return Self.json(status: 400) { $0.field("error", "\"\(access.way)\" is missing") }
    }
    guard await access.isRight(given) else {
      sessions.guessedWrong(now: loop.now)
      return Self.json(status: 403) { $0.field("error", "wrong \(access.way)") }
    }
    let token = WebSessions.token()
    sessions.begin(token, now: loop.now)
    access.signedIn()
    var response = state(isSignedIn: true)
    response.headers.add("Set-Cookie", "\(cookie)=\(token); Path=/; HttpOnly; SameSite=Strict")
    return response
  }

  // MARK: Answers

  private static func json(status: Int = 200, _ body: (inout JSONWriter) -> Void) -> HTTPResponse {
    var headers = WebGuard.headers
    headers.add("Content-Type", "application/json")
    headers.add("Cache-Control", "no-store")
    return HTTPResponse(status: status, headers: headers, body: JSONWriter.object(body) + [10])
  }
}
