// SPDX-License-Identifier: MIT

/// Why bytes are refused as HTTP/1.1.
public enum HTTPParseError: Error, Equatable, Sendable, CustomStringConvertible {
  case malformed(String)
  case headTooLarge
  case bodyTooLarge

  public var description: String {
    switch self {
    case .malformed(let what): "it is not HTTP (\(what))"
    case .headTooLarge: "its head is too large"
    case .bodyTooLarge: "its body is too large"
    }
  }
}

/// Parses HTTP/1.1 messages incrementally. Total, with bounds: the head 16 KiB and 128 fields, interim answers 16, the body
/// as stated.
///
/// Bodies end by Content-Length, chunked encoding, or (responses) with the connection. Ambiguous messages are
/// refused. Source: RFC 9112.
struct HTTPParser {
  enum Kind {
    case requests
    case responses
    /// The answer to an upgrade request: 101 ends it, and the following bytes are not HTTP.
    case upgrade
  }

  /// Parsed parts: a head, pieces of its body, the end.
  enum Event: Equatable {
    case request(method: String, target: String, HTTPHeaders)
    case response(status: Int, HTTPHeaders)
    case body([UInt8])
    case end
  }

  static let maxHead = 16 * 1024
  static let maxFields = 128
  /// Maximum number of interim answers (100 Continue, 103 Early Hints) before the final one.
  static let maxInterim = 16
  /// Overhead allowed for chunk sizes and extensions, beyond eight times the body's length.
  private static let maxFraming = 16 * 1024

  private enum State {
    case head
    case fixed(left: Int)
    case untilClose
    case chunkSize
    case chunk(left: Int)
    case chunkEnd
    case trailer
    case switched
  }

  private let kind: Kind
  /// Maximum size of a body; larger ones are refused before they are read.
  var maxBody: Int
  private var state: State = .head
  private var line: [UInt8] = []
  private var head: HTTPHead?
  private var headBytes = 0
  private var interim = 0
  private var bodyBytes = 0
  private var framingBytes = 0
  private(set) var keepsAlive = true

  init(_ kind: Kind, maxBody: Int) {
    self.kind = kind
    self.maxBody = maxBody
  }

  var endsWithConnection: Bool { if case .untilClose = state { true } else { false } }

  /// Parses at most one message. Returns the number of bytes consumed; the rest belongs to the next message.
  mutating func parse(_ bytes: ArraySlice<UInt8>, _ emit: (Event) -> Void) throws(HTTPParseError) -> Int {
    var rest = bytes
    while !rest.isEmpty {
      var isOver = false
      switch state {
      case .head, .chunkSize, .chunkEnd, .trailer:
        guard let whole = try takeLine(&rest) else { return bytes.count }
        isOver = try take(whole, emit)
      case .fixed(let left), .chunk(let left):
        let count = min(left, rest.count)
        try addBody(rest.prefix(count), emit)
        rest = rest.dropFirst(count)
        isOver = advance(left - count)
      case .untilClose:
        try addBody(rest, emit)
        return bytes.count
      case .switched: return bytes.count - rest.count
      }
      guard isOver else { continue }
      finish(emit)
      return bytes.count - rest.count
    }
    return bytes.count
  }

  /// True: the message is complete.
  private mutating func advance(_ left: Int) -> Bool {
    if case .chunk = state {
      state = left == 0 ? .chunkEnd : .chunk(left: left)
      return false
    }
    state = .fixed(left: left)
    return left == 0
  }

  private mutating func finish(_ emit: (Event) -> Void) {
    if case .switched = state {} else { state = .head }
    (headBytes, interim, bodyBytes, framingBytes) = (0, 0, 0, 0)
    emit(.end)
  }

  private mutating func addBody(_ bytes: ArraySlice<UInt8>, _ emit: (Event) -> Void) throws(HTTPParseError) {
    guard bytes.count <= maxBody - bodyBytes else { throw .bodyTooLarge }
    bodyBytes += bytes.count
    if !bytes.isEmpty { emit(.body(Array(bytes))) }
  }

  /// A line without its terminator; `nil`: incomplete.
  private mutating func takeLine(_ rest: inout ArraySlice<UInt8>) throws(HTTPParseError) -> [UInt8]? {
    let end = rest.firstIndex(of: 10)
    let count = (end ?? rest.endIndex) - rest.startIndex
    headBytes += count + (end == nil ? 0 : 1)
    guard headBytes <= Self.maxHead else { throw .headTooLarge }
    line.append(contentsOf: rest.prefix(count))
    rest = rest.dropFirst(end == nil ? count : count + 1)
    guard end != nil else { return nil }
    if line.last == 13 { line.removeLast() }
    guard !line.contains(where: { $0 == 0 || $0 == 13 }) else { throw .malformed("a line with NUL or a lone CR") }
    defer { line.removeAll(keepingCapacity: true) }
    return line
  }

  /// True: the message is complete.
  private mutating func take(_ line: [UInt8], _ emit: (Event) -> Void) throws(HTTPParseError) -> Bool {
    switch state {
    case .head:
      guard head != nil else {
        // Blank lines before a message are allowed.
        if !line.isEmpty { head = HTTPHead(startLine: line) }
        return false
      }
      guard line.isEmpty else {
        try head?.add(line, mayFold: kind != .requests)
        return false
      }
      guard let whole = head else { return false }
      head = nil
      return try begin(whole, emit)
    case .chunkSize:
      try countFraming(line.count + 2)
      let size = try HTTPHead.chunkSize(line)
      guard size <= maxBody - bodyBytes else { throw .bodyTooLarge }
      headBytes = 0
      state = size == 0 ? .trailer : .chunk(left: size)
      if size == 0 { head = HTTPHead(startLine: []) }
      return false
    case .chunkEnd:
      guard line.isEmpty else { throw .malformed("chunk end") }
      try countFraming(2)
      headBytes = 0
      state = .chunkSize
      return false
    default:
      // Trailers are ignored, but must be valid.
      if !line.isEmpty { try head?.add(line, mayFold: kind != .requests) } else { head = nil }
      return line.isEmpty
    }
  }

  private mutating func countFraming(_ count: Int) throws(HTTPParseError) {
    framingBytes += count
    guard framingBytes - Self.maxFraming <= bodyBytes.multipliedReportingOverflow(by: 8).partialValue else {
      throw .malformed("chunks with more overhead than data")
    }
  }

  private mutating func begin(_ head: HTTPHead, _ emit: (Event) -> Void) throws(HTTPParseError) -> Bool {
    headBytes = 0
    let isRequest = kind == .requests
    if isRequest {
      let (method, target, isOld) = try head.requestLine()
      guard isOld || head.headers.values(of: "Host").count == 1 else {
        throw .malformed("exactly one Host is required")
      }
      keepsAlive = head.keepsAlive(isOld: isOld)
      let framing = try head.framing(isRequest: true)
      emit(.request(method: method, target: target, head.headers))
      return try beginBody(framing)
    }
    let (status, isOld) = try head.statusLine()
    keepsAlive = head.keepsAlive(isOld: isOld)
    if status == 101 {
      guard kind == .upgrade else { throw .malformed("an upgrade that was not requested") }
      state = .switched
      emit(.response(status: status, head.headers))
      return true
    }
    if status < 200 {
      // The final head follows.
      interim += 1
      guard interim <= Self.maxInterim else { throw .malformed("too many interim responses") }
      return false
    }
    // These have no body, whatever the head states (RFC 9112 § 6.3).
    let framing = status == 204 || status == 304 ? HTTPHead.Framing.none : try head.framing(isRequest: false)
    emit(.response(status: status, head.headers))
    return try beginBody(framing)
  }

  private mutating func beginBody(_ framing: HTTPHead.Framing) throws(HTTPParseError) -> Bool {
    switch framing {
    case .none: return true
    case .chunked: state = .chunkSize
    case .length(let length):
      guard length <= maxBody else { throw .bodyTooLarge }
      state = .fixed(left: length)
      return length == 0
    case .untilClose:
      keepsAlive = false
      state = .untilClose
    }
    return false
  }
}
