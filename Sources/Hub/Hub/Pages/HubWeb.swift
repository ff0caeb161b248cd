// SPDX-License-Identifier: MIT

import Glibc
import HTTP
import HTTPTypes
import Hummingbird
import JSON
import NIOCore
import PageServer
import Synchronization
import Timing
import UntrustedText

/// The hub's pages: their files, and sign-in. `HubAPI` answers the requests of signed-in people.
final class HubWeb: Sendable {
  private static let cookie = "meshpost_hub"
  private static let browserCookie = "meshpost_browser"
  /// The lifetime of cookies. The database decides on the end of a session.
  private static let cookieSeconds = 400 * 86_400
  private static let longestPassword = 1024
  private static let revocationPause: Duration = .milliseconds(500)
  let settings: HubWebSettings
  let stores: HubStores
  private let files: PageFiles
  private let webGuard: WebGuard
  private let hasher = PasswordHasher()
  private let limit = Mutex(GuessLimit(mostPlaces: 4096))
  private let refusals = AuditThrottle()
  /// Logs refused sign-ins.
  let refused: RefusedLogins
  let openIDLog = ThrottledLog(HubLog.write)
  /// `nil`: people sign in with passwords only.
  let provider: OpenIDProvider?
  let pushes: PushSender
  private let started = ContinuousClock.now

  /// The error is about the folder of the pages, or about the client's secret.
  init(_ settings: HubWebSettings, _ stores: HubStores, _ refused: RefusedLogins) throws(HubConfiguration.Failure) {
    let files = try settings.files()
    (self.settings, self.stores, self.files, self.refused) = (settings, stores, files, refused)
    webGuard = WebGuard(names: settings.names)
    pushes = PushSender(stores, settings)
    provider = settings.openID.map { OpenIDProvider($0, callback: settings.url + "/oidc/back") }
  }

  // MARK: Sessions

  /// A signed-in person and the session.
  struct SignedInPerson: Sendable {
    let person: HubPerson
    let token: String
  }

  /// Refuses requests of other sites, and requests under other host names.
  func check(_ request: Request, sameOrigin: Bool) throws(WebGuard.Refusal) {
    let browser = BrowserRequest(
      method: request.method.rawValue, hosts: [request.head.authority].compactMap { $0 },
      origin: request.headers[.origin],
      site: request.headers[.init("Sec-Fetch-Site")!], type: request.headers[.contentType])
    try webGuard.check(browser)
    if sameOrigin { try webGuard.checkSameOrigin(browser) }
  }

  /// The signed-in person; `nil`: nobody is signed in.
  func visitor(_ request: Request) async throws -> SignedInPerson? {
    let tokens = tokens(request, Self.cookie)
    let found = tokens.isEmpty ? [:] : try await people(of: Set(tokens))
    return tokens.lazy.compactMap { token in found[token].map { SignedInPerson(person: $0, token: token) } }.first
  }

  private func people(of tokens: Set<String>) async throws(HubDatabaseError) -> [String: HubPerson] {
    let now = HubClock.now
    let since = now - settings.sessionDays * 86_400_000
    let found = try await stores.lookups.sessions(tokens, since: since, at: now)
    for (token, session) in found where session.isStale {
      try await stores.writer.useSession(token, of: session.person.name, since: since, at: now)
    }
    return found.mapValues(\.person)
  }

  /// Closes the connections of people without a session, or without a role that allows their request, until it is cancelled. The command line and
  /// other hubs change people, too, so it queries the database while such a connection is busy.
  func endRevoked(in connections: ConnectionTable) async {
    // `try?`: it is cancelled while it sleeps.
    while (try? await Task.sleep(for: Self.revocationPause)) != nil {
      let busy = connections.busySessions
      // `try?`: without an answer of the database, sessions stay as they are.
      guard !busy.isEmpty, let people = try? await people(of: busy) else { continue }
      connections.close { grant in
        guard case .session(let token) = grant.proof, busy.contains(token) else { return true }
        return people[token]?.role.allows(grant.operation) == true
      }
    }
  }

  /// The name of a cookie. With TLS it has a prefix that browsers let only this host set (RFC 6265bis § 4.1.3.2).
  private func full(_ name: String) -> String { settings.isSecure ? "__Host-" + name : name }

  func cookies(_ request: Request, _ name: String) -> [String] {
    WebSessions.values(of: full(name), in: request.headers[values: .cookie])
  }

  private func tokens(_ request: Request, _ name: String) -> [String] {
    WebSessions.tokens(of: full(name), in: request.headers[values: .cookie])
  }

  /// `isLax`: browsers also send the cookie when another site links here.
  func setCookie(_ name: String, _ value: String, seconds: Int, isLax: Bool = false, in response: inout Response) {
    let secure = settings.isSecure ? "; Secure" : ""
    let words = "Path=/; HttpOnly; SameSite=\(isLax ? "Lax" : "Strict"); Max-Age=\(seconds)\(secure)"
    response.headers.append(HTTPField(name: .setCookie, value: "\(full(name))=\(value); \(words)"))
  }

  // MARK: Signing in and out

  func state(_ request: Request) async throws -> Response {
    try check(request, sameOrigin: true)
    return state(try await visitor(request)?.person)
  }

  private func state(_ person: HubPerson?) -> Response {
    let ways = [AuditRecord.SignInMethod.password] + (provider == nil ? [] : [.oidc])
    let more: JSONObject =
      if let person {
        [
          "way": person.signInMethod.rawValue, "person": person.name, "role": person.role.rawValue,
          "can_change": person.role != .view,
        ]
      } else {
        ["ways": ways.map(\.rawValue), "oidc": provider.map { ["name": $0.settings.name] as JSONObject }]
      }
    return Self.plain(HubAPI.json(JSONObject(joining: ["host": "hub", "signed_in": person != nil], more)))
  }

  func signOut(_ request: Request) async throws -> Response {
    try check(request, sameOrigin: true)
    // Queries on the connection for lookups: the writer may be busy with batches.
    for token in tokens(request, Self.cookie) where try await stores.lookups.hasSession(token) {
      try await stores.writer.endSession(token)
    }
    var response = state(nil)
    setCookie(Self.cookie, "", seconds: 0, in: &response)
    return response
  }

  func signIn(_ request: Request, _ body: [UInt8]?, from address: String) async throws -> Response {
    try check(request, sameOrigin: true)
    // `try?`: invalid JSON has no password either.
    let json = body.flatMap { try? JSONValue(parsing: $0) }
    guard let name = json?["person"]?.string, let password = json?["password"]?.string, name.utf8.count <= 64,
      password.utf8.count <= Self.longestPassword
    else { return Self.plain(HubAPI.refusal(.badRequest, "\"person\" and \"password\" are missing")) }
    var guesser = Guesser(address: address, name: name)
    for browser in tokens(request, Self.browserCookie) where guesser.browser == nil {
      if try await stores.lookups.isKnown(browser, to: name) { guesser.browser = browser }
    }
    if let pause = pause(of: guesser) { return Self.tooMany(pause) }
    // An unknown name takes as much work as a known one.
    let hash = try await stores.lookups.passwordHash(of: name)
    let isRight: Bool
    do {
      isRight = try await hasher.isRight(password, hash)
    } catch {
      stores.metrics.wasBusy(.passwords)
      return Self.plain(HubAPI.refusal(.tooManyRequests, "too many try at the same time", retryAfter: 2))
    }
    // Checks again: simultaneous attempts may have used up the limit.
    if let pause = pause(of: guesser) { return Self.tooMany(pause) }
    guard isRight else {
      limit.withLock { $0.guessedWrong(by: guesser, now: now) }
      refused.note(from: address, "wrong name or password", "POST", "/session")
      // An unknown name may be a password in the wrong field.
      await noteRefused(hash == nil ? "" : name, .password, from: address)
      return Self.plain(HubAPI.refusal(.forbidden, "wrong name or password"))
    }
    limit.withLock { $0.guessedRight(by: guesser) }
    let browser = guesser.browser ?? WebSessions.token()
    let (token, at) = (WebSessions.token(), HubClock.now)
    try await stores.writer.beginSession(token, of: name, browser: browser, at: at)
    // If somebody removed the person, or changed the password, during the comparison, the session ends at once.
    guard try await stores.writer.passwordHash(of: name) == hash,
      let (person, _) = try await stores.writer.session(token, since: 0, at: at)
    else {
      try await stores.writer.endSession(token)
      return Self.plain(HubAPI.refusal(.forbidden, "wrong name or password"))
    }
    try await noteSignedIn(person, from: address)
    var response = state(person)
    setCookie(Self.cookie, token, seconds: Self.cookieSeconds, in: &response)
    setCookie(Self.browserCookie, browser, seconds: Self.cookieSeconds, in: &response)
    return response
  }

  /// Begins a session of a person whom the provider has identified; `response` gets the cookie.
  func begin(_ person: HubPerson, endsAt: Int64, from address: String, in response: inout Response) async throws {
    let (token, at) = (WebSessions.token(), HubClock.now)
    try await stores.writer.beginSession(token, of: person.name, endsAt: endsAt, at: at)
    try await noteSignedIn(person, from: address)
    setCookie(Self.cookie, token, seconds: Self.cookieSeconds, in: &response)
  }

  private func pause(of guesser: Guesser) -> Duration? { limit.withLock { $0.pause(of: guesser, now: now) } }

  private func noteSignedIn(_ person: HubPerson, from address: String) async throws {
    try await stores.writer.note(
      AuditRecord(
        at: HubClock.now, who: person.name, signInMethod: person.signInMethod, what: "signed_in",
        detail: JSONWriter.text(["from": address])))
  }

  /// `name`: empty if it is unknown.
  func noteRefused(_ name: String, _ signInMethod: AuditRecord.SignInMethod, from address: String) async {
    guard let leftOut = refusals.admit(now) else { return }
    let record = AuditRecord(
      at: HubClock.now, who: name, signInMethod: signInMethod, what: "sign_in_refused",
      detail: JSONWriter.text(["from": address, "left_out": leftOut > 0 ? leftOut : nil]))
    do {
      try await stores.writer.note(record)
    } catch {
      HubLog.write(.warning, "a refused login is not written down: \(error.message)")
    }
  }

  /// `nil`: there is not enough memory.
  func hash(_ password: String) async -> String? { await hasher.make(password) }

  static func tooMany(_ pause: Duration) -> Response {
    let seconds = Int64(clamping: pause.components.seconds + 1)
    return plain(
      HubAPI.json(["error": "too many wrong tries", "retry_after_s": seconds], status: .tooManyRequests))
  }

  private var now: MonotonicTime { MonotonicTime(since: started) }

  // MARK: Files

  func file(_ request: Request) -> Response {
    let path = request.uri.path
    do throws(WebGuard.Refusal) {
      try check(request, sameOrigin: false)
    } catch {
      return Self.refusing(error)
    }
    let acceptsGzip = request.headers[.acceptEncoding]?.lowercased().contains("gzip") == true
    guard !path.begins(with: "/v1/"), let decoded = PercentCoding.decode(path),
      let file = files.file(for: decoded, acceptsGzip: acceptsGzip)
    else { return Self.plain(HubAPI.refusal(.notFound, "not found")) }
    var response = Response(status: .ok)
    Self.secure(&response, isPart: !file.isDocument)
    response.headers[.eTag] = file.tag
    response.headers[.cacheControl] = file.cacheControl
    response.headers[.vary] = "Accept-Encoding"
    if request.headers[.ifNoneMatch]?.contains(file.tag) == true {
      response.status = .notModified
      return response
    }
    guard let bytes = Self.contents(file) else {
      return Self.plain(HubAPI.refusal(.internalServerError, "the file cannot be read"))
    }
    response.headers[.contentType] = file.type
    if file.isGzip { response.headers[.contentEncoding] = "gzip" }
    response.body = ResponseBody(byteBuffer: ByteBuffer(bytes: bytes))
    return response
  }

  private static func contents(_ file: PageFiles.File) -> [UInt8]? {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(file.size)
    while true {
      guard let piece = file.read(64 * 1024) else { return nil }
      if piece.isEmpty { return bytes.count == file.size ? bytes : nil }
      bytes += piece
    }
  }

  // MARK: Answers

  /// Adds the security headers of answers to browsers; a part of a page has fewer.
  private static func secure(_ response: inout Response, isPart: Bool = false) {
    for field in (isPart ? WebGuard.partHeaders : WebGuard.headers).fields {
      // `!`: the names are constants.
      if response.headers[.init(field.name)!] == nil { response.headers[.init(field.name)!] = field.value }
    }
  }

  /// An answer that must not be cached.
  static func plain(_ response: Response) -> Response {
    var response = response
    secure(&response)
    response.headers[.cacheControl] = "no-store"
    return response
  }

  static func refusing(_ refusal: WebGuard.Refusal) -> Response {
    plain(HubAPI.refusal(HTTPResponse.Status(code: refusal.status), refusal.message))
  }
}

/// Limits the records of refused sign-ins in the audit: a burst of 20, then one every five minutes. The log has all of them.
private final class AuditThrottle: Sendable {
  private let state = Mutex((ration: Ration(most: 20, oneIn: .seconds(300)), leftOut: Int64(0)))

  /// The number of refusals without a record since the last record; `nil`: this one gets no record either.
  func admit(_ now: MonotonicTime) -> Int64? {
    state.withLock { state in
      guard state.ration.take(at: now) else {
        state.leftOut += 1
        return nil
      }
      defer { state.leftOut = 0 }
      return state.leftOut
    }
  }
}

/// Compares passwords with their hashes, one after another on its own thread: each comparison takes 16 MiB and some tenths of a second.
actor PasswordHasher {
  private static let mostWaiting = 8

  struct Busy: Error {}

  private let executor = DatabaseExecutor()
  private nonisolated let waiting = Mutex(0)
  /// The hash of a random password. With it, unknown names take as long as known ones.
  private lazy var unknownNameHash = PasswordHash.make(WebSessions.token())

  nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

  /// `hash`: `nil` for an unknown name, which takes as long. Throws `Busy` if too many checks wait.
  nonisolated func isRight(_ password: String, _ hash: String?) async throws -> Bool {
    let hasRoom = waiting.withLock { count in
      guard count < Self.mostWaiting else { return false }
      count += 1
      return true
    }
    guard hasRoom else { throw Busy() }
    defer { waiting.withLock { $0 -= 1 } }
    return await compare(password, hash)
  }

  private func compare(_ password: String, _ hash: String?) -> Bool {
    guard let other = hash ?? unknownNameHash else { return false }
    return PasswordHash.isRight(password, other) && hash != nil
  }

  /// `nil`: there is not enough memory.
  func make(_ password: String) -> String? { PasswordHash.make(password) }
}
