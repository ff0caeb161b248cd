// SPDX-License-Identifier: MIT

import BluetoothSession

/// The location of a radio: `radio.link` of the configuration.
public enum LinkAddress: Equatable, Sendable, CustomStringConvertible {
  /// A serial device (a path; `/dev/serial/by-id/…` stays the same after replugging) and its rate.
  case serial(location: String, baud: UInt32)
  case tcp(host: String, port: UInt16)
  /// A radio over Bluetooth LE: by address, by name, or the only one.
  case bluetooth(BluetoothTarget)
  /// The only serial device of this machine.
  case auto(baud: UInt32)

  public static let defaultBaud: UInt32 = 115_200
  public static let defaultPort: UInt16 = 5000
  /// For error messages.
  public static let allowed =
    "serial:LOCATION, serial:LOCATION?baud=RATE, ble:ADDRESS, ble:NAME, ble:, tcp:HOST, tcp:HOST:PORT, auto:"

  /// Why a text is not an address.
  public struct ParseError: Error, Equatable, Sendable, CustomStringConvertible {
    public let description: String
  }

  public init(parsing text: String) throws(ParseError) {
    guard let colon = text.firstIndex(of: ":") else {
      throw ParseError(description: "\"\(text)\" is not a link: expected \(Self.allowed)")
    }
    let rest = String(text[text.index(after: colon)...])
    switch text[..<colon] {
    case "serial":
      let (location, baud) = try Self.splitBaud(rest)
      guard location.hasPrefix("/") else {
        throw ParseError(description: "\"\(text)\": the device must be an absolute location, such as /dev/ttyACM0")
      }
      self = .serial(location: location, baud: baud)
    case "tcp": self = try Self.tcp(rest, text)
    case "auto":
      let (location, baud) = try Self.splitBaud(rest)
      guard location.isEmpty else { throw ParseError(description: "\"\(text)\": nothing may follow auto:") }
      self = .auto(baud: baud)
    case "ble":
      self = .bluetooth(try Self.bluetooth(rest, text))
    default: throw ParseError(description: "\"\(text)\" is not a link: expected \(Self.allowed)")
    }
  }

  private static func splitBaud(_ text: String) throws(ParseError) -> (String, UInt32) {
    let parts = text.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 2 else { return (text, defaultBaud) }
    guard parts[1].hasPrefix("baud="), let baud = UInt32(parts[1].dropFirst(5)), SerialRate.isKnown(baud) else {
      throw ParseError(description: "\"?\(parts[1])\": expected ?baud=RATE with one of \(SerialRate.allowed)")
    }
    return (parts[0], baud)
  }

  private static func bluetooth(_ rest: String, _ text: String) throws(ParseError) -> BluetoothTarget {
    guard !rest.isEmpty else { return .only }
    let parts = rest.split(separator: ":", omittingEmptySubsequences: false)
    let isAddress = parts.count == 6 && parts.allSatisfy { $0.utf8.count == 2 && UInt8($0, radix: 16) != nil }
    if isAddress { return .address(rest.uppercased()) }
    guard rest.utf8.count <= 64 else { throw ParseError(description: "\"\(text)\": a name must have at most 64 bytes") }
    guard !rest.contains(":") else {
      throw ParseError(description: "\"\(text)\" is neither an address, such as C0:FF:EE:00:00:01, nor a name")
    }
    return .name(rest)
  }

  private static func isOfNames(_ scalar: Unicode.Scalar) -> Bool {
    scalar.isASCII && (scalar.properties.isAlphabetic || "0123456789.-_".unicodeScalars.contains(scalar))
  }

  /// Hex digits, colons and dots, and perhaps a zone.
  private static func isIPv6(_ host: String) -> Bool {
    let parts = host.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
    return parts[0].unicodeScalars.allSatisfy { "0123456789abcdefABCDEF:.".unicodeScalars.contains($0) }
      && parts.dropFirst().allSatisfy { !$0.isEmpty && $0.unicodeScalars.allSatisfy(isOfNames) }
  }

  private static func tcp(_ rest: String, _ text: String) throws(ParseError) -> LinkAddress {
    var host = rest
    var port = defaultPort
    let isBareIPv6 = rest.hasPrefix("[") ? rest.hasSuffix("]") : rest.filter { $0 == ":" }.count > 1
    if !isBareIPv6, let colon = rest.lastIndex(of: ":") {
      guard let number = UInt16(rest[rest.index(after: colon)...]), number > 0 else {
        throw ParseError(description: "\"\(text)\": the port must be 1 to 65535")
      }
      port = number
      host = String(rest[..<colon])
    }
    if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
    guard !host.isEmpty else { throw ParseError(description: "\"\(text)\": the host is missing") }
    guard host.utf8.count <= 253, host.contains(":") ? isIPv6(host) : host.unicodeScalars.allSatisfy(isOfNames) else {
      throw ParseError(description: "\"\(text)\": \"\(host)\" is neither a name nor an address")
    }
    return .tcp(host: host, port: port)
  }

  public var description: String {
    switch self {
    case .serial(let location, let baud):
      baud == Self.defaultBaud ? "serial:\(location)" : "serial:\(location)?baud=\(baud)"
    case .tcp(let host, let port): host.contains(":") ? "tcp:[\(host)]:\(port)" : "tcp:\(host):\(port)"
    case .bluetooth(.only): "ble:"
    case .bluetooth(let target): "ble:\(target)"
    case .auto(let baud): baud == Self.defaultBaud ? "auto:" : "auto:?baud=\(baud)"
    }
  }
}
