// SPDX-License-Identifier: MIT

import HTTP
import ProxyTunnel
import UntrustedText

extension UpstreamSettings {
  /// The proxy through which its server is reached; `nil`: none. It throws when the environment has one that makes no sense: to go
  /// straight then would be to pass by a proxy that somebody wanted.
  public func serverProxy(
    in environment: ProxyEnvironment = .ofProcess()
  ) throws(TunnelSettings.Invalid) -> TunnelSettings? {
    guard let (scheme, host) = server else { return nil }
    return try proxy.proxy(in: environment, scheme: scheme, host: host)
  }

  /// The scheme of its URL and the host; `nil` for one without a server.
  private var server: (scheme: String, host: String)? {
    switch kind {
    case .hook, .unreadable: return nil
    case .mqtt:
      guard let broker = Self.broker(url) else { return nil }
      return (url.pieces(at: ":", most: 2)[0], broker.host)
    case .hub, .webhook:
      guard case .tcp(let host, _, let tls)? = HTTPEndpoint.parse(url, allowsQuery: true)?.endpoint else { return nil }
      return (tls ? "https" : "http", host)
    }
  }
}
