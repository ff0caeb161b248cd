// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import HTTP
import JSON
import TestSupport
import Testing

private enum OthersProvider {
  static let program = URL(filePath: Program.python).deletingLastPathComponent().appending(path: "oidc-provider-mock")
    .path()
}

extension WholeProgramTests {
  /// People of an OpenID Connect provider: a foreign implementation, and one that gives wrong answers, signed rightly or not.
  @Suite(
    .enabled("oidc-provider-mock is not installed: hardware/requirements.txt") {
      access(OthersProvider.program, X_OK) == 0
    })
  struct HubOpenID {
    private static let secret = "s3cret/+ %:"

    /// A hub and its provider.
    private final class Site {
      let rig: Rig
      let provider: Program
      let issuer: String
      private var count = 0

      /// `certificate`: for the provider's TLS. `trusts`: the authority that the hub trusts then.
      init(
        rig: Rig? = nil, database: String? = nil, others: (issuer: String, provider: Program)? = nil,
        certificate: [String] = [], trusts authority: String? = nil
      ) throws {
        self.rig = try rig ?? Rig()
        let rig = self.rig
        if let others {
          (provider, issuer) = (others.provider, others.issuer)
        } else {
          let script = Checkout.folder.appending(path: "Tests/Doubles/openid-provider.py").path()
          provider = try Program(Program.python, [script, "mesh post", HubOpenID.secret] + certificate)
          issuer = try provider.line(with: "http")
        }
        rig.writeHubConfiguration(
          database: database,
          extra: """
            [web]
            url = "http://127.0.0.1:\(rig.hubPort)"
            pages = "\(PagesHost.pages)"
            [web.oidc]
            issuer = "\(issuer)"
            client_id = "mesh post"
            client_secret_file = "\(rig.scratch.write("secret", HubOpenID.secret + "\n"))"
            name = "Mesh e.V."
            role_claim = "groups"
            \(authority.map { "ca_file = \"\($0)\"" } ?? "")
            roles = { mesh-admins = "administer", ops = "operate", all = "view" }
            """)
        try rig.startHub()
      }

      var browser: Browser { Browser(port: UInt16(rig.hubPort), way: "password") }

      /// Goes to the provider; returns the query that it gets.
      func start(_ browser: Browser, back: String = "/messages") throws -> [String: String] {
        let response = try #require(browser.ask("GET", "/oidc/start?back=\(PercentCoding.encode(back))"))
        browser.keep(response)
        #expect(response.status == 302)
        return HTTPRequest("GET", response.headers["Location"] ?? "").query
      }

      /// Comes back, by default from its own address; returns the redirect's target.
      func end(_ browser: Browser, _ query: [(String, String)], from address: String? = nil) throws -> String? {
        count += 1
        let fields = query.map { "\(PercentCoding.encode($0))=\(PercentCoding.encode($1))" }.joined(separator: "&")
        let headers = [
          "X-Forwarded-For": address ?? "10.1.\(count / 200).\(count % 200)", "Sec-Fetch-Site": "cross-site",
        ]
        let response = browser.ask("GET", "/oidc/back?\(fields)", headers: headers)
        browser.keep(response)
        return response?.headers["Location"]
      }

      /// The whole way; `deed`: the provider's fault.
      func signIn(
        _ deed: String, _ claims: String, in browser: Browser? = nil, from address: String? = nil
      ) throws -> (String?, Browser) {
        let browser = browser ?? self.browser
        let query = try start(browser)
        let coded = Data(claims.utf8).base64EncodedString().replacing("=", with: "").replacing("+", with: "-")
          .replacing("/", with: "_")
        let code = "\(deed):\(query["nonce"] ?? ""):\(query["code_challenge"] ?? ""):\(coded)"
        return (try end(browser, [("code", code), ("state", query["state"] ?? "")], from: address), browser)
      }

      /// The head of the answer to a request under another name.
      func head(_ path: String, host: String) throws -> String {
        let socket = try LoopbackPort.connect(UInt16(rig.hubPort))
        defer { close(socket) }
        _ = "GET \(path) HTTP/1.1\r\nHost: \(host)\r\n\r\n".withCString { write(socket, $0, strlen($0)) }
        var answer = [UInt8](repeating: 0, count: 32)
        let count = read(socket, &answer, answer.count)
        return String(decoding: answer.prefix(max(0, count)), as: UTF8.self)
      }

      func session(_ browser: Browser) throws -> JSONValue {
        try JSONValue(parsing: browser.ask("GET", "/session")?.body ?? [])
      }
    }

    private static let ana = #"{"preferred_username":"ana","groups":["x","mesh-admins"]}"#

    @Test(arguments: ["SQLite", "PostgreSQL"])
    func `a person whom the provider names signs in with the provided role`(_ kind: String) throws {
      let server = kind == "SQLite" ? nil : try PostgresServer()
      let site = try Site(database: server?.address)
      let ways = try site.session(site.browser)
      #expect(ways["ways"]?.array?.compactMap(\.string) == ["password", "oidc"])
      #expect(ways["oidc"]?["name"]?.string == "Mesh e.V.")
      let (location, browser) = try site.signIn("right", Self.ana)
      #expect(location == "/messages")
      let session = try site.session(browser)
      #expect(session["person"]?.string == "ana" && session["way"]?.string == "oidc")
      #expect(session["role"]?.string == "administer")
      let people = try JSONValue(parsing: browser.ask("GET", "/v1/people")?.body ?? [])["people"]?.array
      #expect(people?.count == 1 && people?.first?["way"]?.string == "oidc")
      // Role and password belong to the provider.
      #expect(browser.ask("PUT", "/v1/people/ana", #"{"password":"battery staple"}"#)?.status == 409)
      let guess = #"{"person":"ana","password":"battery staple"}"#
      #expect(site.browser.ask("POST", "/session", guess, signedIn: false)?.status == 403)
      // Each kind of signature, a list of audiences, exchanged keys, and claims that the provider sends on request.
      for deed in ["PS256", "ES256", "EdDSA", "several", "no-key-name", "user-info"] {
        #expect(try site.signIn(deed, Self.ana).0 == "/messages", "\(deed)")
      }
      // Another person with that name is a different one.
      let (_, other) = try site.signIn("right", #"{"sub":"u-2","preferred_username":"ana","groups":"all"}"#)
      let second = try site.session(other)
      #expect(second["person"]?.string == "ana-2" && second["role"]?.string == "view")
      #expect(other.ask("GET", "/v1/people")?.status == 403)
      // A new role ends the requests of the old one; no role ends everything.
      let (_, demoted) = try site.signIn("right", #"{"sub":"u-1","groups":["ops"]}"#)
      #expect(try site.session(demoted)["role"]?.string == "operate")
      #expect(browser.ask("GET", "/v1/fleet")?.status == 401)
      #expect(try site.signIn("right", #"{"sub":"u-1","groups":["nobody"]}"#).0 == "/?signin=no-role")
      #expect(demoted.ask("GET", "/v1/fleet")?.status == 401)
      let audit = site.rig.askHub("GET", "/v1/audit")?.body ?? []
      let deeds = try JSONValue(parsing: audit)["audit"]?.array ?? []
      #expect(deeds.contains { $0["what"]?.string == "signed_in" && $0["way"]?.string == "oidc" })
      #expect(deeds.contains { $0["what"]?.string == "sign_in_refused" && $0["way"]?.string == "oidc" })
      #expect(!String(decoding: audit, as: UTF8.self).contains("s3cret"))
    }

    @Test func `an invalid token of the provider signs nobody in`() throws {
      let site = try Site()
      let wrong = [
        "issuer", "audience", "audiences", "party", "nonce", "expired", "future", "not-before", "stale", "large-number",
        "text-time", "no-iss", "no-aud", "no-sub", "no-exp", "no-iat", "no-nonce", "none", "None", "HS256",
        "HS256-secret", "swapped", "confused", "critical", "changed", "somebody-else", "no-token", "no-jwt", "html",
        "empty", "list",
      ]
      for deed in wrong {
        let (location, browser) = try site.signIn(deed, Self.ana)
        #expect(location == "/?signin=refused", "\(deed)")
        #expect(try site.session(browser)["signed_in"]?.bool == false, "\(deed)")
        #expect(browser.cookie == "", "\(deed): \(browser.cookie ?? "")")
      }
      for deed in ["500", "huge"] { #expect(try site.signIn(deed, Self.ana).0 == "/?signin=unavailable", "\(deed)") }
      let log = site.rig.hub?.lines.joined(separator: "\n") ?? ""
      #expect(
        log.contains(
          "login refused from 10.1.0.1: the provider's answer is not to be trusted: the ID token is of another issuer"))
      #expect(!log.contains("s3cret") && !log.contains("eyJ"))
      #expect(
        site.rig.askHub("GET", "/v1/people").map { String(decoding: $0.body, as: UTF8.self) } == #"{"people":[]}"#)
      // The hub fetches exchanged keys again, but not for each token that names another key.
      #expect(try site.signIn("later", Self.ana).0 == "/?signin=refused")
    }

    @Test func `forged and failed sign-ins do not block others of the same address`() throws {
      let site = try Site()
      let office = "192.0.2.7"
      let forger = site.browser
      let token = String(repeating: "a", count: 64)
      let json = "{\"state\":\"\(token)\",\"nonce\":\"\(token)\",\"verifier\":\"\(token)\",\"back\":\"/\",\"at\":1}"
      let words = Data(
        json.replacing("\"at\":1", with: "\"at\":\(Int(Date.now.timeIntervalSince1970 * 1000) - 5000)").utf8
      )
      .base64EncodedString().replacing("=", with: "").replacing("+", with: "-").replacing("/", with: "_")
      for end in ["", ".", ".AAAA"] {
        for _ in 0..<7 {
          forger.cookie = "meshpost_oidc=\(words)\(end)"
          #expect(try site.end(forger, [("code", "x"), ("state", token)], from: office) == "/?signin=late")
        }
      }
      for _ in 0..<12 {
        #expect(try site.signIn("issuer", Self.ana, from: office).0 == "/?signin=refused")
      }
      #expect(try site.signIn("right", Self.ana, from: office).0 == "/messages")
      let lines = site.rig.hub?.lines.filter { $0.contains("login refused from \(office)") } ?? []
      #expect((1...10).contains(lines.count), "forged sign-ins are not logged, and failed ones a few times a minute")
    }

    @Test func `a forged link signs nobody into another's session, and leads to no other site`() throws {
      let site = try Site()
      let (ana, vera) = (site.browser, site.browser)
      let query = try site.start(ana)
      let (state, nonce) = (query["state"] ?? "", query["nonce"] ?? "")
      let claims = Data(#"{"groups":"all"}"#.utf8).base64EncodedString().replacing("=", with: "")
      let code = "right:\(nonce):\(query["code_challenge"] ?? ""):\(claims)"
      // Another browser cannot continue this journey, not even with a journey of its own.
      #expect(try site.end(vera, [("code", code), ("state", state)]) == "/?signin=late")
      _ = try site.start(vera)
      #expect(try site.end(vera, [("code", code), ("state", state)]) == "/?signin=late")
      let own = try site.start(vera)
      #expect(try site.end(vera, [("code", code), ("state", own["state"] ?? "")]) == "/?signin=refused")
      // Under another name, from another issuer, with an error of the provider, twice.
      for path in ["/oidc/start", "/oidc/back?code=a&state=b"] {
        #expect(try site.head(path, host: "evil.example").contains(" 403 "), "\(path)")
      }
      let again = site.browser
      again.cookie = ana.cookie
      #expect(
        try site.end(again, [("code", code), ("state", state), ("iss", "http://evil.example")]) == "/?signin=refused")
      again.cookie = ana.cookie
      #expect(try site.end(again, [("state", state), ("error", "access_denied\u{1B}[2J")]) == "/?signin=refused")
      #expect(site.rig.hub?.lines.joined().contains("\u{1B}") == false)
      #expect(try site.end(ana, [("code", code), ("state", state)]) == "/messages")
      #expect(try site.end(ana, [("code", code), ("state", state)]) == "/?signin=late")
      #expect(try site.session(ana)["signed_in"]?.bool == true)
      // Other sites cannot begin it, and it leads only back here.
      let foreign = ["Sec-Fetch-Site": "cross-site"]
      #expect(site.browser.ask("GET", "/oidc/start", headers: foreign)?.status == 403)
      for place in ["//evil.example", "https://evil.example", "/\\evil.example", "/\r\nSet-Cookie: a=b"] {
        let browser = site.browser
        let query = try site.start(browser, back: place)
        let code = "right:\(query["nonce"] ?? ""):\(query["code_challenge"] ?? ""):\(claims)"
        #expect(try site.end(browser, [("code", code), ("state", query["state"] ?? "")]) == "/", "\(place)")
      }
      // Without the provider the page reports this, and passwords still work.
      site.provider.kill9()
      #expect(try site.signIn("right", Self.ana).0 == "/?signin=unavailable")
    }

    @Test(arguments: [true, false]) func `a provider is believed only with a certificate that the hub trusts`(
      _ isTrusted: Bool
    ) throws {
      let rig = try Rig()
      let authority = try TestAuthority(rig, names: ["localhost"])
      let folder = authority.folder
      let site = try Site(
        rig: rig, certificate: ["\(folder)/localhost.pem", "\(folder)/localhost.key"],
        trusts: isTrusted ? "\(folder)/ca.pem" : nil)
      #expect(site.issuer.hasPrefix("https://"))
      if isTrusted {
        #expect(try site.signIn("right", Self.ana).0 == "/messages")
      } else {
        let response = site.browser.ask("GET", "/oidc/start")
        #expect(response?.headers["Location"] == "/?signin=unavailable")
        try site.rig.hub?.line(with: "OpenID Connect: the provider is not available: \(site.issuer)")
      }
    }

    @Test func `an independent OpenID provider signs its people in`() throws {
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      let provider = try Program(
        OthersProvider.program,
        [
          "--host", "127.0.0.1", "--port", "\(port)", "--require-nonce", "true", "--user-claims",
          #"{"sub":"u-1","preferred_username":"ana","groups":["ops"]}"#,
        ])
      let issuer = "http://127.0.0.1:\(port)"
      try untilTrue("the provider") {
        Rig.ask(
          .tcp(host: "127.0.0.1", port: UInt16(port), tls: false),
          HTTPRequest("GET", "/.well-known/openid-configuration"))?.status == 200
      }
      let site = try Site(others: (issuer, provider))
      let browser = site.browser
      let query = try site.start(browser, back: "/commands")
      let fields = query.map { "\($0.key)=\(PercentCoding.encode($0.value))" }.joined(separator: "&")
      var consent = HTTPRequest("POST", "/oauth2/authorize?\(fields)", body: Array("sub=u-1&action=authorize".utf8))
      consent.headers.add("Content-Type", "application/x-www-form-urlencoded")
      let answer = try #require(Rig.ask(.tcp(host: "127.0.0.1", port: UInt16(port), tls: false), consent))
      let back = HTTPRequest("GET", answer.headers["Location"] ?? "").query
      #expect(try site.end(browser, back.map { ($0.key, $0.value) }) == "/commands")
      let session = try site.session(browser)
      #expect(session["person"]?.string == "ana" && session["role"]?.string == "operate")
      // A code is valid once.
      #expect(try site.end(browser, back.map { ($0.key, $0.value) }) == "/?signin=late")
    }
  }
}
