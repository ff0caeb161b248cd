// SPDX-License-Identifier: MIT

import HTTP
import ProxyTunnel
import UntrustedText

extension UpstreamSettings {
  /// The proxy for the upstream's server; `nil`: none. It throws if the environment names an invalid one, because a direct connection would bypass
  /// the wanted proxy.
  public func serverProxy(
    in environment: ProxyEnvironment = .ofProcess()
  ) throws(TunnelSettings.Invalid) -> TunnelSettings? {
    guard let (scheme, host) = server else { return nil }
    return try proxy.proxy(in: environment, scheme: scheme, host: host)
  }

  /// The scheme and host of the URL; `nil`: the upstream has no server.
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
