// SPDX-License-Identifier: MIT

import JSON
import PageServer
import TOML
import Testing
import UntrustedText

@testable import Hub

@Suite struct OpenIDTests {
  // MARK: Signatures

  private static func key(_ json: String) throws -> WebKey { try #require(WebKey(try JSONValue(parsing: json))) }

  private static let p256 = """
    {"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
     "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}
    """
  private static let edwards = #"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#

  /// RFC 7515 appendix A.3, RFC 8037 appendix A.4.
  @Test(arguments: [
    (
      p256, WebKey.Algorithm.es256,
      "eyJhbGciOiJFUzI1NiJ9."
        + "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
      "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    ),
    (
      edwards, .edDSA, "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
      "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    ),
  ])
  func `a signature is valid only for exactly the signed bytes`(
    _ json: String, _ algorithm: WebKey.Algorithm, _ signed: String, _ signature: String
  ) throws {
    let key = try Self.key(json)
    let bytes = Array(signed.utf8)
    let signature = try #require(Base64.decodeFromURL(signature))
    #expect(key.hasSigned(bytes, signature, algorithm))
    for place in stride(from: 0, to: signature.count, by: 7) {
      var other = signature
      other[place] ^= 1
      #expect(!key.hasSigned(bytes, other, algorithm))
    }
    #expect(!key.hasSigned(bytes + [0x20], signature, algorithm))
    for other in WebKey.Algorithm.allCases where other != algorithm {
      #expect(!key.hasSigned(bytes, signature, other))
    }
    for wrong in [[], [0x30], Array(signature.dropLast()), signature + [0], [UInt8](repeating: 0, count: 64)] {
      #expect(!key.hasSigned(bytes, wrong, algorithm))
    }
  }

  @Test(arguments: [
    "{}", #"{"kty":"oct","k":"AAAA"}"#, #"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#,
    #"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, #"{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}"#,
    #"{"kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
    #"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","use":"enc"}"#,
    #"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","alg":"RS256"}"#,
    "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"\(String(repeating: "A", count: 400))\"}",
    "{\"kty\":\"RSA\",\"e\":\"AQ\",\"n\":\"\(String(repeating: "_", count: 344))\"}",
    "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"\(String(repeating: "_", count: 4000))\"}",
  ]) func `an invalid signature key is refused`(_ json: String) throws {
    #expect(WebKey(try JSONValue(parsing: json)) == nil)
  }

  @Test func `a point that is not on the curve verifies no signature`() throws {
    let zeros = String(repeating: "A", count: 42) + "E"
    let key = try Self.key("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"\(zeros)\",\"y\":\"\(zeros)\"}")
    #expect(!key.hasSigned([1], [UInt8](repeating: 1, count: 64), .es256))
  }

  @Test func `a set of keys is bounded`() throws {
    let many = Array(repeating: Self.edwards, count: 100).joined(separator: ",")
    #expect(WebKey.keys(try JSONValue(parsing: "{\"keys\":[{},3,\(many)]}")).count == WebKey.mostKeys - 2)
  }

  // MARK: The journey

  @Test func `a sign-in attempt is read back from its cookie for ten minutes`() {
    let journey = SignInAttempt(back: "/messages?q=a", at: 1_000_000)
    let key = Array("a key".utf8)
    let cookie = journey.cookie(key: key)
    #expect(SignInAttempt(cookie, key: key, at: 1_000_001) == journey)
    #expect(SignInAttempt(cookie, key: key, at: 1_000_000 + SignInAttempt.longest * 1000) != nil)
    #expect(SignInAttempt(cookie, key: key, at: 1_000_001 + SignInAttempt.longest * 1000) == nil)
    #expect(SignInAttempt(cookie, key: key, at: 999_999) == nil)
    // A journey that was not begun here.
    #expect(SignInAttempt(cookie, key: Array("another".utf8), at: 1_000_001) == nil)
    let words = cookie.split(separator: ".")[0]
    for forged in ["\(words)", "\(words).", "\(words).AAAA", "\(words)..\(cookie.split(separator: ".")[1])"] {
      #expect(SignInAttempt(forged, key: key, at: 1_000_001) == nil)
    }
    #expect(SignInAttempt(back: nil, at: 0).state != SignInAttempt(back: nil, at: 0).state)
    #expect(Set([journey.state, journey.nonce, journey.verifier]).count == 3)
    for wrong in ["", "AAAA", "e30", String(cookie.dropLast(9)), String(repeating: "A", count: 5000)] {
      #expect(SignInAttempt(wrong, key: key, at: 1_000_001) == nil)
    }
  }

  @Test func `one address with many attempts delays only itself`() async throws {
    let turnstile = OpenIDProvider.turns()
    for _ in 0..<turnstile.mostOfOne { try await turnstile.take(for: "office") }
    let crowd = (0..<turnstile.mostWaitingOfOne).map { _ in Task { try await turnstile.take(for: "office") } }
    while turnstile.waiting < crowd.count { await Task.yield() }
    await #expect(throws: TooManyQueries.self, "a bound") { try await turnstile.take(for: "office") }
    try await turnstile.take(for: "elsewhere")
    turnstile.giveBack((), of: "elsewhere")
    for _ in 0..<turnstile.mostOfOne + crowd.count { turnstile.giveBack((), of: "office") }
    for one in crowd { try await one.value }
    #expect(turnstile.running == 0 && turnstile.waiting == 0)
    try await turnstile.take(for: "office")
  }

  @Test(arguments: ["/", "/fleet", "/messages?q=a%20b&x=1", "/fleet/hill"])
  func `a path of this site is accepted for the return`(_ path: String) {
    #expect(SignInAttempt.own(path) == path)
  }

  @Test(arguments: [
    "", "fleet", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nSet-Cookie: a=b", "/a b", "/ä",
    "/" + String(repeating: "a", count: 600), "/\t/evil.example", "\\\\evil.example",
  ]) func `an address of another site is replaced by the start page`(_ path: String) {
    #expect(SignInAttempt.own(path) == nil)
    #expect(SignInAttempt(back: path, at: 0).back == "/")
  }

  // MARK: Settings

  private func settings(_ text: String) throws -> (OpenIDSettings, [TOMLError]) {
    var reader = TOMLReader(try TOMLParser.parse(Array(text.utf8)))
    let settings = OpenIDSettings(&reader)
    return (settings, reader.errors)
  }

  private let fine = """
    issuer = "https://id.example.org/realms/mesh"
    client_id = "meshpost"
    role_claim = "realm.roles"
    roles = { admins = "administer", ops = "operate", all = "view" }
    """

  @Test func `the highest role counts, also from a nested claim or a claim with dots in its name`() throws {
    let (settings, errors) = try settings(fine)
    #expect(errors.isEmpty, "\(errors)")
    func role(_ json: String) throws -> HubPerson.Role? { settings.role(of: try JSONValue(parsing: json)) }
    #expect(try role(#"{"realm":{"roles":["all","admins","ops"]}}"#) == .administer)
    #expect(try role(#"{"realm":{"roles":["x","ops"]}}"#) == .operate)
    #expect(try role(#"{"realm.roles":"all"}"#) == .view)
    for nobody in [
      "{}", #"{"realm":{"roles":["Admins"]}}"#, #"{"realm":{"roles":"admins ops"}}"#,
      #"{"realm":{"roles":[["admins"]]}}"#,
      #"{"roles":["admins"]}"#, #"{"realm":{"roles":{"admins":true}}}"#,
    ] { #expect(try role(nobody) == nil, "\(nobody)") }
    var open = settings
    open.defaultRole = .view
    #expect(open.role(of: .object([])) == .view)
    #expect(open.role(of: try JSONValue(parsing: #"{"realm":{"roles":["ops"]}}"#)) == .operate)
  }

  @Test(arguments: [
    (#"{"preferred_username":"ana"}"#, "ana"), (#"{"email":"ana@example.org","sub":"1"}"#, "ana-example.org"),
    (#"{"preferred_username":"Änne Müller"}"#, "nne-M--ller"), (#"{"preferred_username":"…","sub":"u-1"}"#, "u-1"),
    ("{}", "somebody"), (#"{"preferred_username":{"a":1},"sub":"\u0000"}"#, "somebody"),
  ]) func `a person gets an allowed name`(_ json: String, _ name: String) throws {
    let found = try settings(fine).0.personName(of: try JSONValue(parsing: json))
    #expect(found == name && Name.isAllowedNew(found))
  }

  @Test func `a new name does not begin with a hyphen, which would make it an option`() {
    #expect(!Name.isAllowedNew("-rf") && Name.isAllowedNew("r-f") && Name.isAllowed("-rf"))
  }

  @Test func `a long name is cut`() throws {
    let json = JSONValue.object([("preferred_username", .string(String(repeating: "a", count: 5000)))])
    #expect(try settings(fine).0.personName(of: json).utf8.count == 64)
  }

  @Test(arguments: [
    ("issuer", #"issuer = "http://id.example.org""#), ("issuer", #"issuer = "id.example.org""#),
    ("issuer", #"issuer = "https://user:pw@id.example.org""#), ("client_id", #"client_id = """#),
    ("scopes", #"scopes = ["profile"]"#), ("scopes", #"scopes = ["openid", "a b"]"#),
    ("roles", "role_claim = \"groups\"\nroles = {}"), ("default_role", "default_role = \"root\""),
    ("roles.admins", "roles = { admins = \"root\" }"), ("session_hours", "session_hours = 0"), ("other", "other = 1"),
  ]) func `mistakes in the settings are named`(_ key: String, _ line: String) throws {
    let names = line.split(separator: "\n").map { $0.prefix { $0 != " " } }
    let rest = fine.split(separator: "\n").filter { one in !names.contains { one.hasPrefix("\($0) ") } }
    let errors = try settings((rest + [Substring(line)]).joined(separator: "\n")).1
    #expect(errors.contains { $0.reason.hasPrefix(key) }, "\(errors)")
  }

  @Test func `settings with which nobody could sign in are a mistake`() throws {
    let errors = try settings("issuer = \"https://a\"\nclient_id = \"b\"").1
    #expect(errors.map(\.reason) == ["default_role: nobody could come in: set default_role, or role_claim and roles"])
  }

  @Test func `the use of a token is written once a day`() {
    let day: Int64 = 86_400_000
    let list: [(name: String, usedAt: Int64?)] = [("a", day), ("b", nil), ("c", 5 * day), ("c", 6 * day), ("d", 9)]
    #expect(TokenUses.fresh(list, ["a": 1, "d": 8]) == ["c": 6 * day])
    #expect(TokenUses.fresh(list, ["a": 0]) == ["a": day, "c": 6 * day, "d": 9])
  }
}
