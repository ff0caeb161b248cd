// SPDX-License-Identifier: MIT

import UntrustedText

/// A server of map tiles that the operator has configured. It is the only other origin from which pages may load data, and only images.
public struct TileServer: Equatable, Sendable {
  /// The address with `{z}`, `{x}` and `{y}`.
  public let url: String
  /// Scheme, name and port, for the content security policy.
  public let origin: String
  /// The credit shown on the map.
  public let credit: String?

  public struct Invalid: Error, Equatable {
    public let message: String
  }

  /// `url`: `https://tiles.example.org/{z}/{x}/{y}.png`, or `http` in the operator's own network; `credit`: up to 200 bytes.
  public init(_ url: String, credit: String? = nil) throws(Invalid) {
    let bytes = Array(url.utf8)
    guard let scheme = ["https://", "http://"].first(where: { url.begins(with: $0) }) else {
      throw Invalid(message: "expected an address that begins with https:// or http://")
    }
    let name = bytes.dropFirst(scheme.utf8.count).prefix { $0 != UInt8(ascii: "/") }
    // The origin must be a single word of the policy: no part of the address may end it, or add another word.
    guard (1...253).contains(name.count), name.allSatisfy(Self.isOfName) else {
      throw Invalid(message: "\"\(url)\" has no name of a server that can be used")
    }
    guard bytes.count <= 1024, bytes.allSatisfy({ (0x21...0x7E).contains($0) }),
      ["{z}", "{x}", "{y}"].allSatisfy({ Self.isOnce($0, in: bytes) })
    else { throw Invalid(message: "expected {z}, {x} and {y} in the address, each once") }
    guard (credit?.utf8.count ?? 0) <= 200 else { throw Invalid(message: "the credit is longer than 200 bytes") }
    self.url = url
    origin = scheme + String(decoding: name, as: UTF8.self)
    self.credit = credit
  }

  private static func isOnce(_ mark: String, in bytes: [UInt8]) -> Bool {
    let mark = Array(mark.utf8)
    return bytes.indices.count { bytes[$0...].starts(with: mark) } == 1
  }

  private static func isOfName(_ byte: UInt8) -> Bool { byte.isLetterOrDigit || ".-:".utf8.contains(byte) }
}
