// SPDX-License-Identifier: MIT

import Deflate
import EventLoop
import HTTP
import ProxyTunnel
import Sockets
import UntrustedText

/// The address of the live link at a hub.
struct HubAddress {
  private static let subprotocol = "meshpost.v1"
  /// Windows of 4 KiB up and of 1 KiB down: some 38 KiB while a link is open (docs/decisions/0016).
  private static let compression = PerMessageDeflate.Offer(clientBits: 12, serverBits: 10, dictionary: true)

  /// The URL to show.
  let place: String
  let tls: TLSContext?
  private let endpoint: (host: String, port: UInt16)
  private let path: String

  init(_ settings: UpstreamSettings, gateway: String) throws {
    place = settings.place
    guard let (endpoint, base) = HTTPEndpoint.parse(settings.url),
      case .tcp(let host, let port, let isSecure) = endpoint
    else { throw Upstream.SetupError(description: "\(place) is not an http:// or https:// URL") }
    self.endpoint = (host, port)
    tls = isSecure ? try TLSContext(authorities: settings.authorities) : nil
    path = "\(base)/v1/gateways/\(PercentCoding.encode(gateway))"
  }

  func socket(
    _ headers: HTTPHeaders, proxy: TunnelSettings?, meter: TrafficMeter, on loop: EventLoop
  ) -> WebSocket {
    WebSocket(
      WebSocket.Settings(
        host: endpoint.host, port: endpoint.port, target: "\(path)/link", headers: headers,
        subprotocol: Self.subprotocol, compression: Self.compression, proxy: proxy),
      tls: tls, meter: meter, on: loop)
  }
}
