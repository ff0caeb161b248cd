// SPDX-License-Identifier: MIT

/// Addresses of servers, for people and logs. A webhook's address is itself a secret, and others may contain one.
enum ServerAddress {
  /// `scheme://host:port/…`: only the location of the server.
  static func shown(_ url: String) -> String {
    let parts = url.utf8.split(separator: UInt8(ascii: "/"), maxSplits: 3, omittingEmptySubsequences: false)
    guard parts.count > 2, parts[1].isEmpty, let scheme = String(parts[0]) else { return "…" }
    let authority = parts[2].prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
    let host = authority.split(separator: UInt8(ascii: "@"), omittingEmptySubsequences: false).last
    let isWhole = authority.count == parts[2].count && (parts.count == 3 || parts[3].isEmpty)
    return "\(scheme)//\(host.flatMap { String($0) } ?? "…")\(isWhole ? "" : "/…")"
  }

  /// A server's words without parts of the requested path, which many servers repeat.
  static func hiding(_ path: String, in message: String) -> String {
    var bytes = Array(message.utf8)
    let separators = Array("/?&=#".utf8)
    let parts = path.utf8.split { separators.contains($0) }.filter { $0.count >= shortestPart }
    for part in parts.map(Array.init) {
      while let place = bytes.indices.first(where: { bytes[$0...].starts(with: part) }) {
        bytes.replaceSubrange(place..<place + part.count, with: Array("…".utf8))
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// Shorter parts are ordinary words.
  private static let shortestPart = 6
}
