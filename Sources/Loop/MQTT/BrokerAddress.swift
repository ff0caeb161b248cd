// SPDX-License-Identifier: MIT

import HTTP
import UntrustedText

/// The address of a broker.
public struct BrokerAddress: Equatable, Sendable {
  public var host: String
  public var port: UInt16
  public var tls: Bool
  /// The path of a WebSocket; `nil`: plain MQTT.
  public var path: String?

  /// Reads `mqtt://HOST[:1883]`, `mqtts://HOST[:8883]`, or `ws://…` and `wss://HOST[:443]/PATH`;
  /// `nil` for anything else.
  public init?(_ url: String) {
    let ports: [String: UInt16] = ["mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443]
    guard let scheme = ports.keys.first(where: { url.begins(with: "\($0)://") }), let usual = ports[scheme] else {
      return nil
    }
    let isWebSocket = scheme == "ws" || scheme == "wss"
    // The syntax of host and port is that of HTTP URLs.
    let rest = String(decoding: url.utf8.dropFirst(scheme.utf8.count + 3), as: UTF8.self)
    guard case .tcp(let host, let port, _)? = HTTPEndpoint.parse("http://\(rest)")?.endpoint else { return nil }
    let place = rest.pieces(at: "/", most: 2)
    let path = place.count == 2 ? "/" + place[1] : nil
    guard isWebSocket || path == nil else { return nil }
    let hasPort = HTTPEndpoint.parse("https://\(rest)").map { $0.endpoint == .tcp(host: host, port: port, tls: true) }
    (self.host, self.port) = (host, hasPort ?? false ? port : usual)
    tls = scheme == "mqtts" || scheme == "wss"
    self.path = isWebSocket ? path ?? "/" : nil
  }
}
