// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import ProxyTunnel
import Sockets

/// The common part of carriers over HTTP(S): one connection, verified TLS, and a token that is reread.
final class AuthorizedHTTP {
  let path: String
  private let settings: UpstreamSettings
  private let client: HTTPClient
  private let tls: TLSContext?
  var certificateExpiry: Int64? { tls?.peerExpiry }
  private(set) var bytesSent: UInt64 = 0

  /// `allowsQuery`: the URL may have a query, as addresses of webhooks do.
  init(
    _ settings: UpstreamSettings, allowsQuery: Bool = false, proxy: TunnelSettings?, meter: TrafficMeter,
    on loop: EventLoop
  ) throws {
    guard let (endpoint, path) = HTTPEndpoint.parse(settings.url, allowsQuery: allowsQuery) else {
      throw Upstream.SetupError(
        description: "\(ServerAddress.shown(settings.url)) is not an http:// or https:// URL")
    }
    var tls: TLSContext?
    if case .tcp(_, _, true) = endpoint { tls = try TLSContext(authorities: settings.authorities) }
    self.settings = settings
    self.path = path
    self.tls = tls
    client = HTTPClient(endpoint, tls: tls, proxy: proxy, meter: meter, on: loop)
  }

  /// Sends a request with the token. `contentType`: of the body, if the request does not name it. `keepsBody`: of a 2xx
  /// answer, which otherwise may have any size.
  func send(
    _ request: HTTPRequest, contentType: String? = "application/json", keepsBody: Bool = true
  ) async throws(Verdict) -> Result<HTTPResponse, HTTPFailure> {
    var request = request
    if let contentType, !request.body.isEmpty, request.headers["Content-Type"] == nil {
      request.headers.add("Content-Type", contentType)
    }
    // Each request rereads the token's file: a changed token needs no restart.
    try settings.authorize(&request.headers)
    return await sendBare(request, keepsBody: keepsBody)
  }

  /// Sends a request without headers that identify the program and the gateway.
  func sendBare(_ request: HTTPRequest, keepsBody: Bool = true) async -> Result<HTTPResponse, HTTPFailure> {
    bytesSent &+= UInt64(request.body.count)
    do throws(HTTPFailure) {
      // Hubs and webhooks recognise events, which they would get again in any case.
      return .success(
        try await client.send(request, timeout: settings.timeout, isRepeatable: true, ignoresBody: !keepsBody))
    } catch {
      return .failure(error)
    }
  }

  func close() { client.close() }
}
