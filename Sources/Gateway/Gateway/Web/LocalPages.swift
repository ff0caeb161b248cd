// SPDX-License-Identifier: MIT

import Control
import EventLoop
import Glibc
import HTTP
import PageServer
import Timing

/// Serves the pages to browsers on the local network that know the password (`[web]`).
///
/// An unavailable address and missing files are retried. Without `[web]` this object does nothing.
final class LocalPages {
  private static let retryAfter: Duration = .seconds(15)
  /// Bytes. Requests of browsers are small, and strangers can send them, too.
  private static let bodyLimit = 64 * 1024
  /// The cookie's lifetime, the longest in browsers; `WebSessions` ends a session after 30 days without use.
  private static let cookieSeconds = 400 * 86400

  private let secrets: WebSecrets
  private let loop: EventLoop
  private let log: Log
  private let api: () -> ControlAPI?
  private var settings: WebSettings?
  private var hash: String?
  private var task: LoopTask?
  private var server: HTTPServer?
  private var web: WebServer?
  private var trouble: String?

  init(_ secrets: WebSecrets, api: @escaping () -> ControlAPI?, on loop: EventLoop, log: Log) {
    (self.secrets, self.api, self.loop, self.log) = (secrets, api, loop, log)
  }

  /// Serves with these settings; `nil`: not at all. Equal settings change nothing.
  func serve(_ settings: WebSettings?) {
    guard settings != self.settings else { return }
    stop()
    self.settings = settings
    guard let settings else { return }
    task = loop.begin {
      // `try?`: only `stop` ends it.
      try? await self.begin(settings)
    }
  }

  /// Disconnects all browsers; their sessions stay valid.
  func stop() {
    task?.cancel()
    server?.stop()
    (task, server, web, settings, trouble) = (nil, nil, nil, nil, nil)
  }

  // MARK: Beginning

  private func begin(_ settings: WebSettings) async throws(CancellationError) {
    while true {
      do throws(Trouble) {
        return try listen(settings)
      } catch {
        if trouble == nil { log.warning("pages: \(error.message); retrying every \(Int(Self.retryAfter.inSeconds)) s") }
        trouble = error.message
      }
      try await loop.sleep(for: Self.retryAfter)
    }
  }

  private struct Trouble: Error {
    let message: String
  }

  private func listen(_ settings: WebSettings) throws(Trouble) {
    guard let files = PageFiles(folder: settings.pages) else {
      throw Trouble(message: "no pages in \(settings.pages): the package meshpost contains them")
    }
    let server: HTTPServer
    do throws(SystemError) {
      server = try HTTPServer(
        settings.address, bodyLimit: Self.bodyLimit, name: "the pages", on: loop, log: log,
        admits: { peer in peer.map { peer in settings.allowFrom.contains { $0.contains(peer) } } ?? false }
      ) { [weak self] request, responder in
        await self?.web?.answer(request, responder)
      }
    } catch {
      throw Trouble(message: "\(error)")
    }
    let (kept, reason) = readSecrets()
    hash = kept.hash
    web = WebServer(
      files: files, guardian: WebGuard(names: settings.names + Self.ownNames), access: self,
      cookie: "meshpost_\(settings.address.port)", sessions: sessions(kept), on: loop
    ) { [weak self] request, _, responder in
      responder.headers = WebServer.dataHeaders
      await self?.api()?.serve(request, responder)
    }
    web?.tiles = settings.tiles
    self.server = server
    trouble = reason
    log.notice("pages: at http://\(settings.address)\(reason.map { "; \($0)" } ?? "")")
  }

  private static let noPassword = "nobody can sign in: set a password with `meshpost web password`"

  /// The machine's name, and its name by mDNS (RFC 6762). No other site has these names.
  private static var ownNames: [String] {
    var buffer = [CChar](repeating: 0, count: 256)
    guard gethostname(&buffer, buffer.count - 1) == 0 else { return [] }
    let name = String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return name.isEmpty ? [] : [name, "\(name).local"]
  }

  // MARK: Stored secrets

  /// `trouble`: why nobody can sign in.
  private func readSecrets() -> (kept: WebSecrets.Contents, trouble: String?) {
    do throws(WebSecrets.Failure) {
      let kept = try secrets.read()
      return (kept, kept.hash == nil ? Self.noPassword : nil)
    } catch {
      log.error("pages: \(error)")
      return (WebSecrets.Contents(), "nobody can sign in: \(error)")
    }
  }

  /// The age of a session follows the wall clock: a wrong clock can end it early.
  private func sessions(_ kept: WebSecrets.Contents) -> WebSessions {
    let (now, seconds) = (loop.now, loop.wallClock.seconds)
    return WebSessions(
      kept.sessions.map { session in
        let (age, isTooMuch) = seconds.subtractingReportingOverflow(session.usedAt)
        let bounded = isTooMuch ? 0 : min(max(age, 0), 400 * 86400)
        return WebSessions.Session(digest: session.digest, usedAt: now + .seconds(-bounded))
      })
  }

  func setPassword(_ hash: String?) throws(WebSecrets.Failure) {
    try secrets.write(WebSecrets.Contents(hash: hash))
    self.hash = hash
    web?.endSessions()
    guard web != nil else { return }
    trouble = hash == nil ? Self.noPassword : nil
    log.notice(
      hash == nil ? "pages: the password was removed" : "pages: a new password was set; everybody signs in again")
  }

  var report: WebReport? {
    guard let settings else { return nil }
    return WebReport(
      address: "\(settings.address)", trouble: trouble, isServed: server != nil, hasPassword: hash != nil,
      sessions: web?.sessionCount ?? 0)
  }
}

extension LocalPages: WebAccess {
  var way: String { "password" }
  var isGuessable: Bool { true }
  var cookieSeconds: Int? { Self.cookieSeconds }

  func isRight(_ given: String) async throws(WebGuard.Refusal) -> Bool {
    guard let hash else { throw WebGuard.Refusal(status: 503, message: Self.noPassword) }
    let isRight = try await PasswordCheck.isRight(given, hash, on: loop)
    // The password may have changed meanwhile.
    return isRight && hash == self.hash
  }

  func signedIn(from address: String) { log.notice("pages: signed in from \(address)") }

  func refused(from address: String) { log.warning("pages: login refused from \(address)") }

  func keep(_ sessions: WebSessions) {
    guard hash != nil else { return }
    let (now, seconds) = (loop.now, loop.wallClock.seconds)
    do throws(WebSecrets.Failure) {
      try secrets.write(
        WebSecrets.Contents(
          hash: hash,
          sessions: sessions.sessions.map {
            ($0.digest, seconds - Int64(clamping: (now - $0.usedAt).components.seconds))
          }))
    } catch {
      log.warning("pages: \(error): after a restart everybody signs in again")
    }
  }
}
