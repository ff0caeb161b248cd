// SPDX-License-Identifier: MIT

import HTTP
import UntrustedText

/// The URL of a hub or a broker, as far as it can be judged where it is typed: the gateway checks all of it later.
struct ServerURL {
  static let form =
    "not a URL of a server: expected https://HOST[:PORT][/PATH] or mqtts://HOST[:PORT], without user names"
  /// The usual port of each scheme of a hub or a broker.
  private static let ports: [String: UInt16] = [
    "http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443,
  ]

  /// Scheme, host and port. What is for one is for no other: at another port, or without TLS, somebody else may answer.
  let origin: String

  /// `nil`: no gateway accepts it.
  init?(_ url: String) {
    let parts = url.pieces(at: ":", most: 2)
    guard parts.count == 2, let usual = Self.ports[parts[0]] else { return nil }
    let isBroker = !parts[0].begins(with: "http")
    let (one, other) = (Self.place("http:\(parts[1])", isBroker), Self.place("https:\(parts[1])", isBroker))
    guard let one, let other else { return nil }
    // Only a port in the URL is the same with both.
    origin = "\(parts[0])://\(one.host.lowercased()):\(one.port == other.port ? one.port : usual)"
  }

  private static func place(_ url: String, _ allowsQuery: Bool) -> (host: String, port: UInt16)? {
    guard case .tcp(let host, let port, _)? = HTTPEndpoint.parse(url, allowsQuery: allowsQuery)?.endpoint else {
      return nil
    }
    return (host, port)
  }

  /// Whether both lead to one server; false where one of them is no URL.
  static func areOfOneServer(_ one: String, _ other: String) -> Bool {
    guard let one = ServerURL(one), let other = ServerURL(other) else { return false }
    return one.origin.isExactly(other.origin)
  }

  /// With the scheme in small letters, as the gateway compares it.
  static func plain(_ url: String) -> String {
    let parts = url.pieces(at: ":", most: 2)
    guard parts.count == 2, parts[1].begins(with: "//") else { return url }
    return "\(parts[0].lowercased()):\(parts[1])"
  }
}
