// SPDX-License-Identifier: MIT

import Glibc
import UntrustedText

/// The environment's settings for proxies, read as curl and most programs do.
public struct ProxyEnvironment: Equatable, Sendable {
  /// A variable that is set, with its name in lower or upper case.
  public struct Variable: Equatable, Sendable {
    let name: String
    let value: String
  }

  let http, https, all: Variable?
  /// Hosts that are reached without a proxy.
  let exceptions: [String]

  /// `look`: returns the value of a variable. An empty value counts as none.
  public init(_ look: (String) -> String?) {
    func variable(_ name: String) -> Variable? {
      for name in [name, name.uppercased()] {
        if let value = look(name), !value.isEmpty { return Variable(name: name, value: value) }
      }
      return nil
    }
    (http, https, all) = (variable("http_proxy"), variable("https_proxy"), variable("all_proxy"))
    exceptions =
      variable("no_proxy").map { list in
        list.value.unicodeScalars.split { $0 == "," || $0.properties.isWhitespace }.map { String($0).lowercased() }
      } ?? []
  }

  /// The environment of this process.
  public static func ofProcess() -> ProxyEnvironment {
    ProxyEnvironment { getenv($0).map { String(cString: $0) } }
  }

  /// The variable that applies to the scheme of a URL.
  func variable(for scheme: String) -> Variable? {
    switch scheme {
    case "http", "ws": http ?? all
    case "https", "wss": https ?? all
    default: all
    }
  }

  // MARK: Exceptions

  /// Whether `host` is reached without a proxy. `*` means every host, a domain (with or without a leading dot) includes
  /// its subdomains, and an address may be a range (`10.0.0.0/8`, `fd00::/8`).
  func excepts(_ host: String) -> Bool {
    var name = host.lowercased()
    if name.ends(with: "."), name.utf8.count > 1 { name.removeLast() }
    let address = ServerName.address(name)
    return exceptions.contains { entry in
      if entry.isExactly("*") { return true }
      if let address { return Self.covers(entry, address) }
      var domain = entry.begins(with: ".") ? String(entry.dropFirst()) : entry
      if domain.ends(with: ".") { domain.removeLast() }
      return !domain.isEmpty && (name.isExactly(domain) || name.ends(with: ".\(domain)"))
    }
  }

  private static func covers(_ entry: String, _ address: [UInt8]) -> Bool {
    let parts = entry.pieces(at: "/", most: 2)
    var base = parts[0]
    if base.begins(with: "["), base.ends(with: "]") { base = String(base.dropFirst().dropLast()) }
    guard let network = ServerName.address(base), network.count == address.count else { return false }
    guard parts.count == 2 else { return network == address }
    guard let bits = Int(parts[1]), (0...(8 * network.count)).contains(bits) else { return false }
    return (0..<bits).allSatisfy { bit in
      let mask = UInt8(0x80) >> UInt8(bit % 8)
      return network[bit / 8] & mask == address[bit / 8] & mask
    }
  }
}

extension TunnelSettings {
  /// The environment's proxy for a server; `nil`: none. `scheme`: of the server's URL, in lower case. An invalid
  /// variable is an error that names it: a direct connection would bypass a wanted proxy.
  public static func of(
    environment: ProxyEnvironment, scheme: String, host: String
  ) throws(Invalid) -> TunnelSettings? {
    guard let variable = environment.variable(for: scheme), !environment.excepts(host) else { return nil }
    do {
      return try TunnelSettings(parsing: variable.value)
    } catch {
      throw Invalid(description: "\(variable.name) in the environment: \(error.description)")
    }
  }
}

/// An upstream's setting for its proxy.
public enum ProxyChoice: Equatable, Sendable {
  /// The proxy that the environment names, if any.
  case environment
  /// No proxy, whatever the environment says.
  case straight
  /// This proxy, whatever the environment says.
  case through(TunnelSettings)

  /// `nil` (no setting), `none`, or a proxy's URL.
  public init(parsing text: String?) throws(TunnelSettings.Invalid) {
    switch text {
    case nil: self = .environment
    case "none"?: self = .straight
    case let text?:
      do {
        self = .through(try TunnelSettings(parsing: text))
      } catch {
        throw TunnelSettings.Invalid(description: "\(error.description); or \"none\"")
      }
    }
  }

  /// The proxy for a server; `nil`: none.
  public func proxy(
    in environment: ProxyEnvironment, scheme: String, host: String
  ) throws(TunnelSettings.Invalid) -> TunnelSettings? {
    switch self {
    case .environment: try TunnelSettings.of(environment: environment, scheme: scheme, host: host)
    case .straight: nil
    case .through(let proxy): proxy
    }
  }
}
