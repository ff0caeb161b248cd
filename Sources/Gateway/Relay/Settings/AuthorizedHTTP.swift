// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import ProxyTunnel
import Sockets

/// The common part of carriers over HTTP(S): one connection, verified TLS, and a token that is reread.
final class AuthorizedHTTP {
  struct Settings: Sendable {
    var url: String
    /// The URL may have a query, as addresses of webhooks do.
    var allowsQuery = false
    /// The bearer token's file, which each request rereads: a changed token needs no restart.
    var tokenFile: String?
    /// A PEM file to trust in place of the system's authorities.
    var authorities: String?
    var timeout: Duration
    var proxy: TunnelSettings?
  }

  let path: String
  private let settings: Settings
  private let client: HTTPClient
  private let tls: TLSContext?
  var certificateExpiry: Int64? { tls?.peerExpiry }
  private(set) var bytesSent: UInt64 = 0

  init(_ settings: Settings, meter: TrafficMeter, on loop: EventLoop) throws {
    guard let (endpoint, path) = HTTPEndpoint.parse(settings.url, allowsQuery: settings.allowsQuery) else {
      throw Upstream.SetupError(
        description: "\(ServerAddress.shown(settings.url)) is not an http:// or https:// URL")
    }
    var tls: TLSContext?
    if case .tcp(_, _, true) = endpoint { tls = try TLSContext(authorities: settings.authorities) }
    self.settings = settings
    self.path = path
    self.tls = tls
    client = HTTPClient(endpoint, tls: tls, proxy: settings.proxy, meter: meter, on: loop)
  }

  /// Sends a request with the token. `contentType`: of the body, if the request does not name it.
  func send(
    _ request: HTTPRequest, contentType: String? = "application/json"
  ) async throws(Verdict) -> Result<HTTPResponse, HTTPFailure> {
    var request = request
    if let contentType, !request.body.isEmpty, request.headers["Content-Type"] == nil {
      request.headers.add("Content-Type", contentType)
    }
    // The header costs 23 bytes, and shows the server's operator which program asks.
    request.headers.add("User-Agent", "meshpostd")
    if let tokenFile = settings.tokenFile {
      guard let token = SecretFile.read(tokenFile) else {
        throw .stopped(reason: "the token file \(tokenFile) cannot be read")
      }
      request.headers.add("Authorization", "Bearer \(token)")
    }
    return await sendBare(request)
  }

  /// Sends a request without headers that identify the program and the gateway.
  func sendBare(_ request: HTTPRequest) async -> Result<HTTPResponse, HTTPFailure> {
    bytesSent &+= UInt64(request.body.count)
    do throws(HTTPFailure) {
      return .success(try await client.send(request, timeout: settings.timeout))
    } catch {
      return .failure(error)
    }
  }

  func close() { client.close() }

  /// Whether a text is a URL for these carriers.
  static func isURL(_ text: String, allowsQuery: Bool) -> Bool {
    HTTPEndpoint.parse(text, allowsQuery: allowsQuery) != nil
  }
}
