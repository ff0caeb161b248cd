// SPDX-License-Identifier: MIT

import Deflate

/// The first line and the fields of an HTTP message, parsed strictly: ambiguous messages
/// are refused. Source: RFC 9110 § 5, RFC 9112 §§ 3 to 7.
struct HTTPHead {
  /// How the length of the body is determined.
  enum Framing: Equatable {
    case none
    case length(Int)
    case chunked
    case untilClose
  }

  let startLine: [UInt8]
  private(set) var headers = HTTPHeaders()

  init(startLine: [UInt8]) { self.startLine = startLine }

  /// Parses one field line. `mayFold`: a leading blank continues the previous field; old servers send that.
  mutating func add(_ line: [UInt8], mayFold: Bool) throws(HTTPParseError) {
    if line.first == 0x20 || line.first == 9 {
      guard mayFold, !headers.fields.isEmpty else { throw .malformed("a folded header") }
      return headers.extendLast(try Self.value(line[...]))
    }
    guard headers.fields.count < HTTPParser.maxFields else { throw .headTooLarge }
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > 0,
      line[..<colon].allSatisfy(ExtensionList.isToken)
    else { throw .malformed("header") }
    headers.add(String(decoding: line[..<colon], as: UTF8.self), try Self.value(line[(colon + 1)...]))
  }

  private static func value(_ bytes: ArraySlice<UInt8>) throws(HTTPParseError) -> String {
    let trimmed = trim(bytes)
    guard trimmed.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 9 }) else { throw .malformed("header value") }
    return String(decoding: trimmed, as: UTF8.self)
  }

  private static func trim(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 9 }
    let front = bytes.drop(while: isBlank)
    return front.prefix(front.count - front.reversed().prefix(while: isBlank).count)
  }

  // MARK: First lines

  func requestLine() throws(HTTPParseError) -> (method: String, target: String, isOld: Bool) {
    let words = startLine.split(separator: 0x20, omittingEmptySubsequences: false)
    guard words.count == 3, !words[0].isEmpty, words[0].allSatisfy(ExtensionList.isToken),
      words[1].first == UInt8(ascii: "/"), words[1].allSatisfy({ $0 > 0x20 && $0 != 0x7F }),
      let isOld = Self.isOld(words[2])
    else { throw .malformed("request line") }
    return (String(decoding: words[0], as: UTF8.self), String(decoding: words[1], as: UTF8.self), isOld)
  }

  func statusLine() throws(HTTPParseError) -> (status: Int, isOld: Bool) {
    let words = startLine.split(separator: 0x20, maxSplits: 2, omittingEmptySubsequences: false)
    guard words.count >= 2, let isOld = Self.isOld(words[0]), words[1].count == 3,
      let status = Self.number(words[1], radix: 10), (100...599).contains(status)
    else { throw .malformed("status line") }
    return (status, isOld)
  }

  /// True for HTTP/1.0; `nil`: neither that nor a later HTTP/1.
  private static func isOld(_ version: ArraySlice<UInt8>) -> Bool? {
    guard version.count == 8, version.starts(with: "HTTP/1.".utf8), let last = version.last,
      (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(last)
    else { return nil }
    return last == UInt8(ascii: "0")
  }

  func keepsAlive(isOld: Bool) -> Bool {
    guard !headers.hasToken("close", in: "Connection") else { return false }
    return !isOld || headers.hasToken("keep-alive", in: "Connection")
  }

  // MARK: The body's length

  /// Source: RFC 9112 § 6.3.
  func framing(isRequest: Bool) throws(HTTPParseError) -> Framing {
    let codings = headers.values(of: "Transfer-Encoding")
    let lengths = headers.values(of: "Content-Length")
    if !codings.isEmpty {
      // Together with Content-Length this is an attempt at request smuggling.
      guard lengths.isEmpty, codings.count == 1, HTTPHeaders.isSame(codings[0], "chunked") else {
        throw .malformed("transfer encoding")
      }
      return .chunked
    }
    guard !lengths.isEmpty else { return isRequest ? .none : .untilClose }
    var known: Int?
    for text in lengths.flatMap({ Array($0.utf8).split(separator: 0x2C, omittingEmptySubsequences: false) }) {
      let digits = Self.trim(text)
      guard let length = Self.number(digits, radix: 10), known == nil || known == length else {
        throw .malformed("content length")
      }
      known = length
    }
    return known.map { .length($0) } ?? .none
  }

  /// The size of a chunk; extensions are ignored. Source: RFC 9112 § 7.1.
  static func chunkSize(_ line: [UInt8]) throws(HTTPParseError) -> Int {
    // Trailing blanks are invalid, but some servers pad with them.
    let digits = trim(line.prefix { $0 != UInt8(ascii: ";") })
    guard line.first != 0x20, line.first != 9, let size = number(digits, radix: 16) else {
      throw .malformed("chunk size")
    }
    return size
  }

  /// Digits only, without a sign; saturates at the largest number.
  private static func number(_ digits: ArraySlice<UInt8>, radix: Int) -> Int? {
    guard !digits.isEmpty else { return nil }
    var value = 0
    for digit in digits {
      guard let figure = Character(Unicode.Scalar(digit)).hexDigitValue, digit < 0x80, figure < radix else {
        return nil
      }
      let (product, isLarge) = value.multipliedReportingOverflow(by: radix)
      let (sum, isLarger) = product.addingReportingOverflow(figure)
      value = isLarge || isLarger ? .max : sum
    }
    return value
  }
}
