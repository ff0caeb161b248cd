// SPDX-License-Identifier: MIT

import HTTPTypes
import Hummingbird
import JSON
import PageServer
import UntrustedText

/// Signing in by OpenID Connect: to the provider, and back. Decision 0025.
extension HubWeb {
  private static let mostCodeBytes = 4096

  func startOpenID(_ request: Request, from address: String) async throws -> Response {
    try check(request, sameOrigin: false)
    // Allowed from the hub's own pages, and from the address bar.
    if let site = request.headers[.init("Sec-Fetch-Site")!],
      !["same-origin", "none"].contains(where: { site.isExactly($0) })
    {
      throw WebGuard.Refusal(status: 403, message: "requests of other sites are refused")
    }
    guard let provider else { return Self.plain(HubAPI.refusal(.notFound, "not found")) }
    let attempt = SignInAttempt(back: request.values["back"], at: HubClock.now)
    do throws(OpenIDFailure) {
      var response = Self.redirect(try await provider.address(attempt, from: address))
      setCookie(
        SignInAttempt.cookie, attempt.cookie(key: try await key()), seconds: Int(SignInAttempt.longest), isLax: true,
        in: &response)
      return response
    } catch {
      openIDLog.say("OpenID Connect: \(error)")
      return Self.redirect("/?signin=\(error.word)")
    }
  }

  /// Signs the person in, after the provider has redirected the browser here. The cookie with the same `state` shows that the sign-in began here.
  func endOpenID(_ request: Request, from address: String) async throws -> Response {
    try check(request, sameOrigin: false)
    guard let provider else { return Self.plain(HubAPI.refusal(.notFound, "not found")) }
    var response: Response
    do throws(OpenIDFailure) {
      let attempt = try attempt(request, try await key())
      // A wrong code does not count as a wrong password: an office shares one address.
      let claims = try await provider.claims(code: try code(request), attempt, from: address)
      response = Self.redirect(attempt.back)
      try await welcome(claims, provider.settings, from: address, in: &response)
    } catch {
      switch error {
      case .refused, .untrusted, .noRole:
        refused.note(from: address, "\(error)", "GET", "/oidc/back")
        await noteRefused("", .oidc, from: address)
      // No record in the audit: anybody can request this address without a code.
      case .unavailable, .late, .busy: openIDLog.say("OpenID Connect: \(error)")
      }
      response = Self.redirect("/?signin=\(error.word)")
    }
    setCookie(SignInAttempt.cookie, "", seconds: 0, isLax: true, in: &response)
    return response
  }

  private func key() async throws(OpenIDFailure) -> [UInt8] {
    do {
      return Array(try await stores.lookups.signInKey().utf8)
    } catch {
      throw .unavailable(error.message)
    }
  }

  private func attempt(_ request: Request, _ key: [UInt8]) throws(OpenIDFailure) -> SignInAttempt {
    let state = request.values["state"] ?? ""
    let attempts = cookies(request, SignInAttempt.cookie).prefix(4).compactMap {
      SignInAttempt($0, key: key, at: HubClock.now)
    }
    guard let attempt = attempts.first(where: { WebSessions.isSame($0.state, state) }) else { throw .late }
    return attempt
  }

  private func code(_ request: Request) throws(OpenIDFailure) -> String {
    let query = request.values
    if let error = query["error"] {
      throw .refused(Visible.line("\(error) \(query["error_description"] ?? "")".cut(toBytes: 200)))
    }
    // RFC 9207: the code has to be of the configured issuer.
    if let issuer = query["iss"], provider?.settings.issuer.isExactly(issuer) != true {
      throw .untrusted("the code is of another issuer")
    }
    guard let code = query["code"], (1...Self.mostCodeBytes).contains(code.utf8.count) else {
      throw .refused("there is no code")
    }
    return code
  }

  private func welcome(
    _ claims: JSONValue, _ settings: OpenIDSettings, from address: String, in response: inout Response
  ) async throws(OpenIDFailure) {
    let identity = "\(settings.issuer) \(claims["sub"]?.string ?? "")"
    let now = HubClock.now
    guard let role = settings.role(of: claims) else {
      do {
        try await stores.writer.endSessions(of: identity)
      } catch {
        throw .unavailable(error.message)
      }
      throw .noRole
    }
    do {
      let person = try await stores.writer.welcome(identity, called: settings.personName(of: claims), role, at: now)
        .get()
      try await begin(person, endsAt: now + settings.sessionHours * 3_600_000, from: address, in: &response)
    } catch {
      throw .unavailable("\(error)")
    }
  }

  private static func redirect(_ location: String) -> Response {
    var response = Response(status: .found)
    response.headers[.location] = location
    return plain(response)
  }
}
