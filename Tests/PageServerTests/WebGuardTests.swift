// SPDX-License-Identifier: MIT

import Glibc
import HTTP
import TestSupport
import Testing
import Timing

@testable import PageServer

@Suite struct WebGuardTests {
  private let guardian = WebGuard(names: ["hilltop.local"])

  @Test(arguments: [
    "127.0.0.1", "127.0.0.1:8080", "localhost:80", "LOCALHOST", "192.168.1.20:1", "[::1]:8080", "[fd00::1]",
    "hilltop.local",
    "Hilltop.LOCAL:8080",
  ]) func `requests for addresses and configured names are accepted`(_ host: String) { #expect(guardian.isOurs(host)) }

  @Test(arguments: [
    "", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "hilltop.local.evil.example", "1.2.3",
    "1.2.3.4.5",
    "127.0.0.1:80@evil.example", "[::1", "[]", "[::1]x", "[::1]:80x", "[evil.example]", "hilltop.local\u{301}",
    "\u{212A}localhost",
    "127.0.0.1:8x", "1234.1.1.1", "..", "...",
  ]) func `requests for other names are refused, against DNS rebinding`(_ host: String) {
    #expect(!guardian.isOurs(host))
  }

  private func request(_ method: String, _ headers: HTTPHeaders) -> BrowserRequest {
    var headers = headers
    if headers["Host"] == nil { headers.add("Host", "127.0.0.1:8080") }
    return BrowserRequest(HTTPRequest(method, "/v1/send", headers: headers))
  }

  @Test(arguments: [
    "https://tiles.example.org/{z}/{x}/{y}.png", "http://10.0.0.5:8080/t/{z}/{x}/{y}.png?key=a;b,c",
    "https://T.example/{y}/{x}/{z}",
  ]) func `a tile server is one source in the policy`(_ url: String) throws {
    let tiles = try TileServer(url)
    let policy = WebGuard.headers(tiles: tiles)["Content-Security-Policy"] ?? ""
    #expect(policy.contains("img-src 'self' data: \(tiles.origin); connect-src 'self';"))
    #expect(!tiles.origin.drop { $0 != ":" }.dropFirst(3).contains { " ;,'\"/?".contains($0) || $0.isNewline })
    #expect(WebGuard.headers["Content-Security-Policy"]?.contains("http") == false)
  }

  @Test(arguments: [
    "", "tiles.example.org/{z}/{x}/{y}", "ftp://a/{z}/{x}/{y}", "https:///{z}/{x}/{y}",
    "https://a b/{z}/{x}/{y}", "https://a;script-src/{z}/{x}/{y}", "https://a,b/{z}/{x}/{y}",
    "https://u:p@a/{z}/{x}/{y}",
    "https://a'/{z}/{x}/{y}", "https://a/{z}/{x}", "https://a/{z}/{x}/{y}/{z}", "https://a/{z}/{x}/{y} ",
    "https://a\n/{z}/{x}/{y}", "https://{z}/{x}/{y}", "https://a?{z}/{x}/{y}", "https://ä.example/{z}/{x}/{y}",
    "javascript://a/{z}/{x}/{y}", "https://*/{z}/{x}/{y}",
  ]) func `an invalid tile server does not reach the policy`(_ url: String) {
    #expect(throws: TileServer.Invalid.self) { try TileServer(url) }
  }

  @Test func `only pages from here may ask for the camera, and none for the microphone`() {
    let allowed = WebGuard.headers["Permissions-Policy"] ?? ""
    #expect(allowed.contains("camera=(self)") && allowed.contains("microphone=()"))
  }

  @Test func `a request must name exactly one host`() throws {
    #expect(throws: WebGuard.Refusal.self) { try guardian.check(BrowserRequest(HTTPRequest("GET", "/"))) }
    var two: HTTPHeaders = ["Host": "127.0.0.1"]
    two.add("Host", "evil.example")
    #expect(throws: WebGuard.Refusal.self) { try guardian.check(BrowserRequest(HTTPRequest("GET", "/", headers: two))) }
    try guardian.check(BrowserRequest(HTTPRequest("GET", "/", headers: ["Host": "127.0.0.1"])))
  }

  @Test(arguments: [
    ("GET", ["Sec-Fetch-Site": "cross-site"]), ("GET", ["Sec-Fetch-Site": "same-site"]),
    ("GET", ["Origin": "http://evil.example"]),
    ("GET", ["Origin": "null"]), ("POST", ["Content-Type": "application/json"]),
    ("POST", ["Origin": "http://127.0.0.1:8080"]),
    ("POST", ["Origin": "http://127.0.0.1:8080", "Content-Type": "text/plain"]),
    ("POST", ["Origin": "http://127.0.0.1:8081", "Content-Type": "application/json"]),
    ("POST", ["Origin": "http://127.0.0.1:8080.evil.example", "Content-Type": "application/json"]),
    ("PATCH", ["Origin": "http://127.0.0.1:8080", "Content-Type": "application/json"]),
  ]) func `requests of other sites are refused`(_ method: String, _ fields: [String: String]) {
    var headers = HTTPHeaders()
    for (name, value) in fields { headers.add(name, value) }
    #expect(throws: WebGuard.Refusal.self) { try guardian.checkSameOrigin(request(method, headers)) }
  }

  @Test(arguments: ["Origin", "Sec-Fetch-Site"], [false, true])
  func `a request that names two origins is refused, in either order`(_ field: String, _ isForeignFirst: Bool) throws {
    let ours = field == "Origin" ? "http://127.0.0.1:8080" : "same-origin"
    let foreign = field == "Origin" ? "http://evil.example" : "cross-site"
    var headers = HTTPHeaders()
    headers.add(field, ours)
    try guardian.checkSameOrigin(request("GET", headers))
    headers = HTTPHeaders()
    for value in isForeignFirst ? [foreign, ours] : [ours, foreign] { headers.add(field, value) }
    #expect(throws: WebGuard.Refusal.self) { try guardian.checkSameOrigin(request("GET", headers)) }
  }

  @Test func `requests of our own pages are accepted`() throws {
    try guardian.checkSameOrigin(request("GET", ["Sec-Fetch-Site": "same-origin"]))
    try guardian.checkSameOrigin(request("GET", [:]))
    try guardian.checkSameOrigin(
      request("POST", ["Origin": "http://127.0.0.1:8080", "Content-Type": "application/json"]))
  }

  // MARK: Files

  @Test(arguments: [
    ("/", "index.html"), ("/conversations/channel:ab", "index.html"), ("/pages/app.js", "app.js"),
    ("/pages/views/chat.js", "views/chat.js"), ("/worker.js", "worker.js"),
  ]) func `paths lead to their files`(_ path: String, _ name: String) { #expect(PageFiles.name(for: path) == name) }

  @Test(arguments: [
    "/pages/../secret", "/pages/..", "/pages//app.js", "/pages/.git/config", "/pages/", "/pages/a/b/c/d/e.js",
    "/favicon.ico",
    "/pages/\0.js", "/pages/a b.js", "/pages/ä.js", "/../etc/passwd.txt",
  ]) func `other paths lead to no file`(_ path: String) { #expect(PageFiles.name(for: path) == nil) }

  @Test func `a symbolic link out of the folder is not followed, and only known file types are served`() throws {
    let scratch = Scratch()
    scratch.makeFolder("pages")
    _ = scratch.write("pages/index.html", "x")
    _ = scratch.write("pages/secret.key", "x")
    _ = scratch.write("outside.js", "x")
    #expect(symlink(scratch.location("outside.js"), scratch.location("pages/out.js")) == 0)
    let files = try #require(PageFiles(folder: scratch.location("pages")))
    #expect(files.file(for: "/", acceptsGzip: true)?.size == 1)
    #expect(files.file(for: "/pages/out.js", acceptsGzip: false) == nil)
    #expect(files.file(for: "/pages/secret.key", acceptsGzip: false) == nil)
    #expect(PageFiles(folder: scratch.location("nothing")) == nil)
    #expect(PageFiles(folder: scratch.location("pages"), page: "hub.html") == nil)
    _ = scratch.write("pages/hub.html", "xy")
    let hub = try #require(PageFiles(folder: scratch.location("pages"), page: "hub.html"))
    #expect(hub.file(for: "/fleet", acceptsGzip: true)?.size == 2)
  }

  @Test func `a file with a hash in its name may be cached for ever, and others are checked each time`() throws {
    let scratch = Scratch()
    scratch.makeFolder("pages")
    scratch.makeFolder("pages/packed")
    for name in ["index.html", "app.js", "packed/app-ABCDEFGH.js", "packed/app-ABCDEFGH.js.gz"] {
      _ = scratch.write("pages/\(name)", "x")
    }
    let files = try #require(PageFiles(folder: scratch.location("pages")))
    for path in ["/", "/pages/app.js"] {
      #expect(files.file(for: path, acceptsGzip: true)?.cacheControl == "no-cache", "\(path)")
    }
    for acceptsGzip in [true, false] {
      let file = files.file(for: "/pages/packed/app-ABCDEFGH.js", acceptsGzip: acceptsGzip)
      #expect(file?.cacheControl.hasSuffix("immutable") == true && file?.isGzip == acceptsGzip)
    }
  }

  // MARK: Sessions

  private func isIn(_ sessions: inout WebSessions, _ token: String, _ now: MonotonicTime) -> Bool {
    sessions.use(token, now: now) != nil
  }

  @Test func `sessions end by age, by signing out, and for newer ones`() {
    var sessions = WebSessions()
    var now = MonotonicTime(nanoseconds: 0)
    sessions.begin("a", now: now)
    #expect(isIn(&sessions, "a", now))
    #expect(!isIn(&sessions, "b", now))
    #expect(!isIn(&sessions, "", now))
    let (first, second) = (sessions.end("a"), sessions.end("a"))
    #expect(first && !second, "an unknown session ends no session")
    #expect(!isIn(&sessions, "a", now))
    sessions.begin("c", now: now)
    now = now + WebSessions.idleLimit + .seconds(1)
    #expect(!isIn(&sessions, "c", now))
    for number in 0...WebSessions.mostSessions {
      sessions.begin("s\(number)", now: now)
      now = now + .seconds(1)
    }
    #expect(sessions.count == WebSessions.mostSessions)
    #expect(!isIn(&sessions, "s0", now))
    #expect(isIn(&sessions, "s1", now))
  }

  @Test func `kept sessions continue, up to the limit`() {
    var first = WebSessions()
    let now = MonotonicTime(nanoseconds: 0)
    first.begin("a", now: now)
    var second = WebSessions(first.sessions)
    #expect(isIn(&second, "a", now))
    let many = (0..<100).map { WebSessions.Session(digest: [UInt8($0)], usedAt: now) }
    #expect(WebSessions(many).count == WebSessions.mostSessions)
  }

  @Test func `all values of a cookie are read, and those of other names are not`() {
    let values = WebSessions.values(of: "a", in: ["a=1; b=2", " xa=4;  a=3; A=5; a", "a=x=y"])
    #expect(values == ["1", "3", "x=y"])
  }

  @Test func `of a stranger's many cookies few are taken for tokens`() {
    let (token, others) = (WebSessions.token(), (0..<1000).map { "a=\($0)" })
    let fields = [(others + ["a=\(token)"]).joined(separator: "; ")]
    #expect(WebSessions.tokens(of: "a", in: fields) == [token], "another port or site may have set the others")
    let many = (0..<200).map { _ in "a=\(WebSessions.token())" }.joined(separator: ";")
    #expect(WebSessions.tokens(of: "a", in: [many, many]).count == 4)
  }

  @Test func `tokens differ, and pages get no route with secrets`() {
    #expect(WebSessions.token() != WebSessions.token())
    #expect(WebSessions.token().utf8.count == 64)
    for path in [
      "/v1/radio/private-key", "/v1/radio/backup", "/v1/backup", "/v1/frames", "/v1/upstreams/add", "/v1/radio/pair",
      "/v1/web/password",
    ] {
      #expect(PassedRoutes.way("GET", path) == nil)
      #expect(PassedRoutes.way("POST", path) == nil)
    }
    #expect(PassedRoutes.way("GET", "/v1/live") == .stream)
    #expect(PassedRoutes.way("DELETE", "/v1/documents") == nil)
  }
}
