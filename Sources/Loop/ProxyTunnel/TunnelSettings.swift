// SPDX-License-Identifier: MIT

import UntrustedText

/// A proxy for connections to a server: an HTTP proxy (CONNECT) or a SOCKS proxy.
public struct TunnelSettings: Equatable, Sendable {
  /// The proxy's protocol.
  public enum Kind: String, CaseIterable, Sendable {
    case http
    /// This machine looks the server's name up.
    case socks4, socks5
    /// The proxy looks the server's name up.
    case socks4a, socks5h
  }

  /// An error that quotes nothing of the text, which may hold a password.
  public struct Invalid: Error, Equatable, Sendable, CustomStringConvertible {
    public let description: String
  }

  /// The allowed form, for the error.
  static let wanted =
    "expected http://HOST:PORT, socks4://, socks4a://, socks5:// or socks5h://HOST:PORT, with USER:PASSWORD@ before the host if "
    + "the proxy requires them"
  /// curl's default, for every kind.
  static let usualPort: UInt16 = 1080
  /// SOCKS 5 has one byte for the length (RFC 1929).
  private static let longestSecret = 255

  public let kind: Kind
  /// A name, or an address without brackets.
  public let host: String
  public let port: UInt16
  /// Percent-decoded: %40 became @.
  let user: String?
  let password: String?

  /// `KIND://[USER[:PASSWORD]@]HOST[:PORT]`; the kind defaults to `http`, the port to 1080, as in curl. User and
  /// password are percent-encoded: %40 is @.
  public init(parsing text: String) throws(Invalid) {
    let bytes = Array(text.utf8)
    guard !bytes.isEmpty, bytes.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else { throw Invalid(description: Self.wanted) }
    let (kind, rest) = try Self.kind(bytes[...])
    let end = rest.firstIndex { "/?#".utf8.contains($0) } ?? rest.endIndex
    guard !rest[end...].contains(UInt8(ascii: "@")) else {
      throw Invalid(description: "/, ? and # in the user or the password must be written %2F, %3F and %23")
    }
    guard rest[end...].elementsEqual("/".utf8) || end == rest.endIndex else { throw Invalid(description: Self.wanted) }
    var place = rest[..<end]
    var (user, password): (String?, String?)
    if let at = place.lastIndex(of: UInt8(ascii: "@")) {
      (user, password) = try Self.login(place[..<at], kind)
      place = place[(at + 1)...]
    }
    guard let (host, port) = Self.place(place) else { throw Invalid(description: Self.wanted) }
    (self.kind, self.host, self.port, self.user, self.password) = (kind, host, port, user, password)
  }

  private static func kind(_ text: ArraySlice<UInt8>) throws(Invalid) -> (Kind, ArraySlice<UInt8>) {
    guard let mark = text.indices.first(where: { text[$0...].starts(with: "://".utf8) }) else { return (.http, text) }
    let name = String(decoding: text[..<mark], as: UTF8.self).lowercased()
    guard let kind = Kind(rawValue: name) else {
      if name.isExactly("https") {
        throw Invalid(description: "a proxy that is itself reached by TLS (https://) cannot be used; \(wanted)")
      }
      throw Invalid(description: wanted)
    }
    return (kind, text[(mark + 3)...])
  }

  private static func login(_ text: ArraySlice<UInt8>, _ kind: Kind) throws(Invalid) -> (String, String?) {
    let colon = text.firstIndex(of: UInt8(ascii: ":"))
    let user = try decoded(text[..<(colon ?? text.endIndex)])
    guard !user.isEmpty else { throw Invalid(description: "the user is missing before the password") }
    guard let colon else { return (user, nil) }
    guard kind != .socks4, kind != .socks4a else {
      throw Invalid(description: "SOCKS 4 has a user and no password; SOCKS 5 has both")
    }
    return (user, try decoded(text[(colon + 1)...]))
  }

  private static func decoded(_ text: ArraySlice<UInt8>) throws(Invalid) -> String {
    guard let bytes = PercentBytes.decode(text) else {
      throw Invalid(description: "% in the user or the password must be written %25")
    }
    guard bytes.count <= longestSecret, bytes.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }),
      let text = String(validating: bytes, as: UTF8.self)
    else {
      throw Invalid(
        description: "user and password must have at most \(longestSecret) bytes each, and no control characters")
    }
    return text
  }

  /// `HOST`, `HOST:PORT`, or an IPv6 address in brackets.
  private static func place(_ text: ArraySlice<UInt8>) -> (host: String, port: UInt16)? {
    var (host, port) = (text, usualPort)
    let bracket = host.lastIndex(of: UInt8(ascii: "]"))
    if let colon = host.lastIndex(of: UInt8(ascii: ":")), bracket.map({ $0 < colon }) ?? true {
      let digits = host[(colon + 1)...]
      guard digits.allSatisfy({ (0x30...0x39).contains($0) }),
        let number = UInt16(String(decoding: digits, as: UTF8.self)), number > 0
      else { return nil }
      (host, port) = (host[..<colon], number)
    }
    if host.first == UInt8(ascii: "["), host.last == UInt8(ascii: "]") {
      let address = String(decoding: host.dropFirst().dropLast(), as: UTF8.self)
      return ServerName.isIPv6(address) ? (address, port) : nil
    }
    let name = String(decoding: host, as: UTF8.self)
    let isName = host.allSatisfy { $0 >= 0x80 || ServerName.isOfName($0) }
    return !host.isEmpty && isName ? (name, port) : nil
  }

  /// For people, the status and logs: without user and password.
  public var shown: String { "\(kind.rawValue)://\(ServerName.inURL(host)):\(port)" }

  /// All parts as texts, for comparisons by bytes.
  public var texts: [String] { [kind.rawValue, host, "\(port)", user ?? "", password ?? ""] }
}

// Code that prints any value must not print the password.
extension TunnelSettings: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  public var description: String { shown }
  public var debugDescription: String { shown }
  public var customMirror: Mirror { Mirror(self, children: ["shown": shown]) }
}
