// SPDX-License-Identifier: MIT

import HTTP
import UntrustedText

/// The fields of a browser's request that show its origin.
public struct BrowserRequest: Sendable {
  public var method: String
  /// The values of `Host`.
  public var hosts: [String]
  /// The values of `Origin`, `Sec-Fetch-Site` and `Content-Type`.
  public var origin: String?
  public var site: String?
  public var type: String?

  public init(method: String, hosts: [String], origin: String?, site: String?, type: String?) {
    (self.method, self.hosts, self.origin, self.site, self.type) = (method, hosts, origin, site, type)
  }

  public init(_ request: HTTPRequest) {
    // Of a field that comes twice, no value counts alone: together they are none that is accepted.
    func whole(_ name: String) -> String? {
      let values = request.headers.values(of: name)
      return values.isEmpty ? nil : values.joined(separator: ", ")
    }
    self.init(
      method: request.method, hosts: request.headers.values(of: "Host"), origin: whole("Origin"),
      site: whole("Sec-Fetch-Site"), type: whole("Content-Type"))
  }
}

/// Checks the origin of a browser's request, as the first step. Pure.
///
/// A foreign page in the same browser can send requests here: they have another `Origin`. It can also resolve its own name to this machine (DNS
/// rebinding): then `Host` differs.
public struct WebGuard: Sendable {
  /// Allowed names of this host, besides numeric addresses and `localhost`.
  private let names: [String]

  public init(names: [String]) { self.names = names }

  public struct Refusal: Error, Equatable {
    public let status: Int
    public let message: String

    public init(status: Int, message: String) { (self.status, self.message) = (status, message) }
  }

  /// Checks every request.
  public func check(_ request: BrowserRequest) throws(Refusal) {
    guard request.hosts.count == 1, let host = request.hosts.first, isOurs(host) else {
      throw Refusal(status: 403, message: "this host has another name: see [web] names")
    }
  }

  /// Checks requests for data and for signing in: only these pages may send them.
  public func checkSameOrigin(_ request: BrowserRequest) throws(Refusal) {
    guard request.site == nil || request.site?.isExactly("same-origin") == true else {
      throw Refusal(status: 403, message: "requests of other sites are refused")
    }
    if let origin = request.origin, !isSame(origin, request.hosts.first) {
      throw Refusal(status: 403, message: "requests of other sites are refused")
    }
    switch request.method {
    case "GET", "HEAD": return
    case "POST", "PUT", "DELETE":
      guard request.origin != nil else { throw Refusal(status: 403, message: "an Origin is missing") }
      // A foreign page cannot send this content type without a preflight request.
      guard let type = request.type, type.begins(with: "application/json") else {
        throw Refusal(status: 403, message: "Content-Type: application/json is wanted")
      }
    default: throw Refusal(status: 405, message: request.method)
    }
  }

  private func isSame(_ origin: String, _ host: String?) -> Bool {
    guard let host else { return false }
    return origin.isExactly("http://\(host)") || origin.isExactly("https://\(host)")
  }

  /// Numeric addresses are allowed, because no foreign name can have them.
  func isOurs(_ host: String) -> Bool {
    let bytes = Array(host.utf8)
    if bytes.first == UInt8(ascii: "[") { return isNumber(bytes.dropFirst(), ends: UInt8(ascii: "]"), more: ":.") }
    let name = bytes.prefix { $0 != UInt8(ascii: ":") }
    let port = bytes.dropFirst(name.count)
    guard port.isEmpty || port.dropFirst().allSatisfy({ (0x30...0x39).contains($0) }) else { return false }
    let text = String(decoding: name, as: UTF8.self).lowercased()
    if text.isExactly("localhost") || names.contains(where: { $0.lowercased().isExactly(text) }) { return true }
    let parts = name.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    return parts.count == 4
      && parts.allSatisfy { part in
        (1...3).contains(part.count) && part.allSatisfy { (0x30...0x39).contains($0) }
      }
  }

  private func isNumber(_ bytes: ArraySlice<UInt8>, ends end: UInt8, more: String) -> Bool {
    guard let close = bytes.firstIndex(of: end), close > bytes.startIndex else { return false }
    let rest = bytes[(close + 1)...]
    guard rest.isEmpty || rest.first == UInt8(ascii: ":") && rest.dropFirst().allSatisfy({ (0x30...0x39).contains($0) })
    else { return false }
    return bytes[..<close].allSatisfy { byte in
      (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte | 0x20) || more.utf8.contains(byte)
    }
  }

  /// Headers of every document: pages run only scripts from here, load no data from other origins, and cannot be framed. They may ask for the camera,
  /// which reads QR codes of links; the browser asks the user.
  public static let headers = headers(tiles: nil)

  /// Headers of files that are only parts of a page. The policy belongs to the page, and would double the bytes of a
  /// small file.
  public static let partHeaders: HTTPHeaders = [
    "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
  ]

  /// Like `headers`, for pages that may also show images of a tile server. The browser does not tell that server the page.
  public static func headers(tiles: TileServer?) -> HTTPHeaders {
    [
      "Content-Security-Policy":
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:\(tiles.map { " " + $0.origin } ?? ""); "
        + "connect-src 'self'; manifest-src 'self'; worker-src 'self'; font-src 'self'; base-uri 'none'; "
        + "form-action 'none'; frame-ancestors 'none'",
      "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
      "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
      "Permissions-Policy": "camera=(self), microphone=(), payment=(), usb=()",
    ]
  }
}
