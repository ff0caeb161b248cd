// SPDX-License-Identifier: MIT

/// Why bytes are not HTTP/1.1 that we take.
public enum HTTPParseError: Error, Equatable, Sendable {
  case malformed(String)
  case headTooLarge
  case bodyTooLarge
}

/// Reads HTTP/1.1 messages from bytes as they come. Total, with bounds: the head 16 KiB, the body as told.
///
/// Bodies come by Content-Length, chunked, or (responses) up to the end of the connection.
struct HTTPParser {
  enum Kind { case requests, responses }

  /// What was read. A head, pieces of its body, and the end.
  enum Event: Equatable {
    case request(method: String, target: String, HTTPHeaders)
    case response(status: Int, HTTPHeaders)
    case body([UInt8])
    case end
  }

  static let mostHead = 16 * 1024

  private enum State {
    case head
    case fixed(left: Int)
    case untilClose
    case chunkSize
    case chunk(left: Int)
    case chunkEnd
    case trailer
  }

  private let kind: Kind
  private let mostBody: Int
  private var state: State = .head
  private var line: [UInt8] = []
  private var head: [String] = []
  private var headBytes = 0
  private var bodyBytes = 0
  private(set) var keepsAlive = true

  /// `mostBody`: larger ones are refused before they are read.
  init(_ kind: Kind, mostBody: Int) {
    self.kind = kind
    self.mostBody = mostBody
  }

  /// True between messages: the peer may close then.
  var isIdle: Bool { if case .head = state { headBytes == 0 } else { false } }
  var endsWithConnection: Bool { if case .untilClose = state { true } else { false } }

  mutating func parse(_ bytes: [UInt8], _ emit: (Event) -> Void) throws(HTTPParseError) {
    var position = 0
    while position < bytes.count {
      switch state {
      case .head, .chunkSize, .chunkEnd, .trailer:
        guard let text = try takeLine(bytes, &position) else { continue }
        try take(text, emit)
      case .fixed(let left), .chunk(let left):
        let count = min(left, bytes.count - position)
        try addBody(Array(bytes[position..<position + count]), emit)
        position += count
        advance(left - count, emit)
      case .untilClose:
        try addBody(Array(bytes[position...]), emit)
        position = bytes.count
      }
    }
  }

  private mutating func advance(_ left: Int, _ emit: (Event) -> Void) {
    if case .chunk = state {
      state = left == 0 ? .chunkEnd : .chunk(left: left)
    } else if left == 0 {
      finish(emit)
    } else {
      state = .fixed(left: left)
    }
  }

  private mutating func finish(_ emit: (Event) -> Void) {
    state = .head
    headBytes = 0
    bodyBytes = 0
    emit(.end)
  }

  private mutating func addBody(_ bytes: [UInt8], _ emit: (Event) -> Void) throws(HTTPParseError) {
    bodyBytes += bytes.count
    guard bodyBytes <= mostBody else { throw .bodyTooLarge }
    if !bytes.isEmpty { emit(.body(bytes)) }
  }

  private mutating func takeLine(_ bytes: [UInt8], _ position: inout Int) throws(HTTPParseError) -> String? {
    while position < bytes.count {
      let byte = bytes[position]
      position += 1
      headBytes += 1
      guard headBytes <= Self.mostHead else { throw .headTooLarge }
      guard byte == 10 else {
        line.append(byte)
        continue
      }
      if line.last == 13 { line.removeLast() }
      let text = String(decoding: line, as: UTF8.self)
      line.removeAll()
      return text
    }
    return nil
  }

  private mutating func take(_ text: String, _ emit: (Event) -> Void) throws(HTTPParseError) {
    switch state {
    case .head:
      if text.isEmpty {
        guard !head.isEmpty else { return }  // blank lines before a message are allowed
        let lines = head
        head = []
        try begin(lines, emit)
      } else {
        head.append(text)
      }
    case .chunkSize:
      let digits = text.prefix { $0 != ";" }.filter { $0 != " " }
      guard let size = Int(digits, radix: 16), size >= 0, size <= mostBody else {
        throw digits.isEmpty || Int(digits, radix: 16) == nil ? .malformed("chunk size") : .bodyTooLarge
      }
      headBytes = 0
      state = size == 0 ? .trailer : .chunk(left: size)
    case .chunkEnd:
      guard text.isEmpty else { throw .malformed("chunk end") }
      state = .chunkSize
    default:
      if text.isEmpty { finish(emit) }
    }
  }

  private mutating func begin(_ lines: [String], _ emit: (Event) -> Void) throws(HTTPParseError) {
    var headers = HTTPHeaders()
    for line in lines.dropFirst() {
      guard let colon = line.firstIndex(of: ":"), colon != line.startIndex, !line.hasPrefix(" ") else {
        throw .malformed("header")
      }
      headers.add(String(line[..<colon]), String(line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }))
    }
    let words = lines[0].split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
    guard words.count >= 2 else { throw .malformed("first line") }
    headBytes = 0
    keepsAlive = headers["Connection"]?.lowercased() != "close"
    if kind == .requests {
      guard words.count == 3, words[2].hasPrefix("HTTP/1."), words[1].hasPrefix("/") else {
        throw .malformed("request line")
      }
      emit(.request(method: words[0], target: words[1], headers))
      try beginBody(headers, hasBody: true, emit)
    } else {
      guard words[0].hasPrefix("HTTP/1."), let status = Int(words[1]), (100...599).contains(status) else {
        throw .malformed("status line")
      }
      guard status >= 200 else { return }  // 100 Continue and the like: the real head follows
      emit(.response(status: status, headers))
      try beginBody(headers, hasBody: status != 204 && status != 304, emit)
    }
  }

  private mutating func beginBody(
    _ headers: HTTPHeaders, hasBody: Bool, _ emit: (Event) -> Void
  ) throws(HTTPParseError) {
    if let coding = headers["Transfer-Encoding"] {
      guard coding.lowercased() == "chunked" else { throw .malformed("transfer encoding") }
      state = .chunkSize
    } else if let text = headers["Content-Length"] {
      guard let length = Int(text), length >= 0 else { throw .malformed("content length") }
      guard length <= mostBody else { throw .bodyTooLarge }
      state = .fixed(left: length)
      if length == 0 { finish(emit) }
    } else if kind == .responses, hasBody {
      state = .untilClose
    } else {
      finish(emit)
    }
  }
}
