// SPDX-License-Identifier: MIT

import UntrustedText

/// Header fields in order; names are case-insensitive.
public struct HTTPHeaders: Sendable, Equatable, ExpressibleByDictionaryLiteral {
  public private(set) var fields: [Field] = []

  public struct Field: Sendable, Equatable {
    public let name: String
    public let value: String
  }

  public init() {}

  public init(dictionaryLiteral elements: (String, String)...) {
    for (name, value) in elements { add(name, value) }
  }

  /// Line breaks are removed: a value must not inject a header.
  public mutating func add(_ name: String, _ value: String) {
    var clean = String.UnicodeScalarView()
    clean.append(contentsOf: value.unicodeScalars.filter { !["\r", "\n", "\0"].contains($0) })
    fields.append(Field(name: name, value: String(clean)))
  }

  /// Appends a folded line to the last field.
  mutating func extendLast(_ more: String) {
    guard let last = fields.popLast() else { return }
    fields.append(Field(name: last.name, value: last.value + " " + more))
  }

  /// The first field of that name.
  public subscript(name: String) -> String? {
    fields.first { Self.isSame($0.name, name) }?.value
  }

  public func values(of name: String) -> [String] { fields.filter { Self.isSame($0.name, name) }.map(\.value) }

  /// Compares ASCII letters without case: the Kelvin sign is a `k` to Unicode, but not to HTTP.
  static func isSame(_ one: some Sequence<UInt8>, _ other: some Sequence<UInt8>) -> Bool {
    func lower(_ byte: UInt8) -> UInt8 { (0x41...0x5A).contains(byte) ? byte | 0x20 : byte }
    return one.elementsEqual(other) { lower($0) == lower($1) }
  }

  static func isSame(_ one: String, _ other: String) -> Bool { isSame(one.utf8, other.utf8) }

  /// Whether a list field, possibly repeated, contains this token; case-insensitive.
  public func hasToken(_ token: String, in name: String) -> Bool {
    values(of: name).contains { value in
      value.utf8.split(separator: UInt8(ascii: ",")).contains { part in
        Self.isSame(part.filter { $0 != 0x20 && $0 != 9 }, token.utf8)
      }
    }
  }

  func write(to bytes: inout [UInt8]) {
    for field in fields { bytes.append(contentsOf: "\(field.name): \(field.value)\r\n".utf8) }
  }
}

public struct HTTPRequest: Sendable, Equatable {
  public var method: String
  /// Path and query, as sent.
  public var target: String
  public var headers: HTTPHeaders
  public var body: [UInt8]

  public init(_ method: String, _ target: String, headers: HTTPHeaders = [:], body: [UInt8] = []) {
    self.method = method
    self.target = target
    self.headers = headers
    self.body = body
  }

  /// Whether a server may carry it out twice: by its method, or because it has a key by which the server recognises it.
  var isIdempotent: Bool {
    ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"].contains(method) || headers["Idempotency-Key"] != nil
  }

  /// The target before the `?`.
  public var path: String { target.pieces(at: "?", most: 2)[0] }

  /// Query values by name, percent-decoded; the last one of a repeated name.
  public var query: [String: String] {
    let parts = target.pieces(at: "?", most: 2)
    return parts.count == 2 ? PercentCoding.query(String(parts[1])) : [:]
  }

  func encode(host: String) -> [UInt8] {
    var bytes = Array("\(method) \(target) HTTP/1.1\r\nHost: \(host)\r\n".utf8)
    headers.write(to: &bytes)
    if !body.isEmpty || method == "POST" || method == "PUT" {
      bytes.append(contentsOf: "Content-Length: \(body.count)\r\n".utf8)
    }
    bytes.append(contentsOf: "\r\n".utf8)
    bytes.append(contentsOf: body)
    return bytes
  }
}

public struct HTTPResponse: Sendable, Equatable {
  public var status: Int
  public var headers: HTTPHeaders
  public var body: [UInt8]

  public init(status: Int, headers: HTTPHeaders = [:], body: [UInt8] = []) {
    self.status = status
    self.headers = headers
    self.body = body
  }

  static func reason(_ status: Int) -> String { reasons[status] ?? "Status" }

  private static let reasons = [
    200: "OK", 202: "Accepted", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large",
    422: "Unprocessable Content", 429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable",
  ]

  /// `withoutBody`: an answer to HEAD, which states only the length.
  func encode(withoutBody: Bool = false) -> [UInt8] {
    var bytes = Array("HTTP/1.1 \(status) \(Self.reason(status))\r\n".utf8)
    headers.write(to: &bytes)
    // These have no body, and must not state its length (RFC 9110 § 8.6).
    guard status >= 200, status != 204, status != 304 else { return bytes + [13, 10] }
    bytes.append(contentsOf: "Content-Length: \(body.count)\r\n\r\n".utf8)
    if !withoutBody { bytes.append(contentsOf: body) }
    return bytes
  }
}

/// Percent-encoding of targets.
public enum PercentCoding {
  /// The values of a query by name; the last one of a repeated name. A `+` is a space, as forms and browsers write it (WHATWG URL § 5.1).
  public static func query(_ text: String) -> [String: String] {
    func plain(_ field: some StringProtocol) -> String? {
      decode(String(decoding: field.utf8.map { $0 == UInt8(ascii: "+") ? 0x20 : $0 }, as: UTF8.self))
    }
    var values: [String: String] = [:]
    for pair in text.pieces(at: "&") {
      let field = pair.pieces(at: "=", most: 2)
      guard !pair.isEmpty, let name = plain(field[0]) else { continue }
      values[name] = field.count > 1 ? plain(field[1]) ?? "" : ""
    }
    return values
  }

  /// `nil` for an invalid escape, or bytes that are not UTF-8. `+` is not decoded.
  public static func decode(_ text: some StringProtocol) -> String? {
    PercentBytes.decode(text.utf8).flatMap { String(validating: $0, as: UTF8.self) }
  }

  /// Escapes everything but letters, digits and `-._~`.
  public static func encode(_ text: String) -> String {
    let digits = Array("0123456789ABCDEF".utf8)
    var bytes: [UInt8] = []
    for byte in text.utf8 {
      let character = Character(Unicode.Scalar(byte))
      if byte < 0x80, character.isLetter || character.isNumber || "-._~".contains(character) {
        bytes.append(byte)
      } else {
        bytes.append(contentsOf: [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]])
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
