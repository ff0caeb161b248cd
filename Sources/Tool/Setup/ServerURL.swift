// SPDX-License-Identifier: MIT

import HTTP
import UntrustedText

/// The URL of a hub or a broker, as far as it can be judged where it is typed: the gateway checks all of it later.
struct ServerURL {
  static let form =
    "not a URL of a server: expected https://HOST[:PORT][/PATH] or mqtts://HOST[:PORT], without user names"
  private static let schemesOfHubs = ["http", "https"]
  private static let schemesOfBrokers = ["mqtt", "mqtts", "ws", "wss"]

  /// In small letters.
  let host: String

  /// `nil`: no gateway accepts it.
  init?(_ url: String) {
    let parts = url.pieces(at: ":", most: 2)
    guard parts.count == 2 else { return nil }
    let isBroker = Self.schemesOfBrokers.contains(parts[0])
    guard isBroker || Self.schemesOfHubs.contains(parts[0]) else { return nil }
    let place = HTTPEndpoint.parse("http:\(parts[1])", allowsQuery: isBroker)
    guard case .tcp(let host, _, _)? = place?.endpoint else { return nil }
    self.host = host.lowercased()
  }

  /// With the scheme in small letters, as the gateway compares it.
  static func plain(_ url: String) -> String {
    let parts = url.pieces(at: ":", most: 2)
    guard parts.count == 2, parts[1].begins(with: "//") else { return url }
    return "\(parts[0].lowercased()):\(parts[1])"
  }
}
