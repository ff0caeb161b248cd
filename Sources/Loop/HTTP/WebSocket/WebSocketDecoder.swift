// SPDX-License-Identifier: MIT

import Deflate

/// Why received bytes are refused.
enum WebSocketError: Error, Equatable, CustomStringConvertible {
  case malformed(String)
  /// A text or the reason of a close is not UTF-8.
  case notText
  /// Compressed data cannot be decompressed.
  case damaged
  case tooLarge

  /// The code for the close frame. Source: RFC 6455 § 7.4.1.
  var code: UInt16 {
    switch self {
    case .malformed: 1002
    case .notText, .damaged: 1007
    case .tooLarge: 1009
    }
  }

  var description: String {
    switch self {
    case .malformed(let words): "WebSocket protocol error: \(words)"
    case .notText: "a text that is not UTF-8"
    case .damaged: "a message that cannot be decompressed"
    case .tooLarge: "a message that is too large"
    }
  }
}

/// Decodes the frames of a server. Total; holds at most `maxPayload` bytes of a message, and the bytes that were
/// appended last. An error is reported as soon as it shows: in a text at the first wrong byte. With a `maxPayload` of
/// `.max` messages are a stream: they are passed on in pieces, as they arrive. Source: RFC 6455 §§ 5 to 8.
struct WebSocketDecoder {
  private struct Header {
    let isFinal: Bool
    let opcode: WebSocketFrame.Opcode
  }

  /// A message may have this many pieces, and one more for every `bytesPerPiece` bytes: empty pieces cost work and
  /// carry nothing.
  private static let freePieces = 1024
  private static let bytesPerPiece = 16

  private let maxPayload: Int
  private var isStream: Bool { maxPayload == .max }
  private var bytes: [UInt8] = []
  private var position = 0
  /// The frame that is arriving, and how much of its payload is still missing.
  private var header: Header?
  private var left = 0
  private var control: [UInt8] = []
  /// The message that is arriving; `nil`: none has begun.
  private var opcode: WebSocketFrame.Opcode?
  private var message: [UInt8] = []
  private var pieces = 0
  /// Bytes of messages, complete or not, without pings and pongs.
  private(set) var dataBytes: UInt64 = 0
  private var text = UTF8Check()
  private var isCompressed = false
  /// `nil`: compressed messages are refused.
  var compression: (inflater: Inflater, keepsContext: Bool)?

  init(maxPayload: Int) { self.maxPayload = maxPayload }

  mutating func append(_ more: [UInt8]) {
    if position == bytes.count {
      bytes = more
    } else {
      bytes.removeFirst(position)
      bytes += more
    }
    position = 0
  }

  /// The next whole message or control frame; `nil`: more bytes are needed.
  mutating func next() throws(WebSocketError) -> WebSocketFrame? {
    while true {
      if header == nil { header = try readHeader() }
      guard let header else { return nil }
      let count = min(left, bytes.count - position)
      try take(bytes[position..<position + count], of: header)
      position += count
      left -= count
      if left == 0 {
        self.header = nil
        if let whole = try finish(header) { return whole }
      }
      if isStream, !message.isEmpty, let opcode {
        defer { message = [] }
        return WebSocketFrame(opcode: opcode, payload: message)
      }
      guard left == 0 else { return nil }
    }
  }

  private mutating func take(_ piece: ArraySlice<UInt8>, of header: Header) throws(WebSocketError) {
    guard !header.opcode.isControl else {
      control.append(contentsOf: piece)
      return
    }
    dataBytes &+= UInt64(piece.count)
    guard isCompressed, let inflater = compression?.inflater else {
      guard opcode != .text || text.take(piece) else { throw .notText }
      message.append(contentsOf: piece)
      return
    }
    try inflate { (message, limit) throws(InflateFailure) in
      try inflater.append(piece, to: &message, limit: limit)
    }
  }

  private mutating func inflate(
    _ work: (inout [UInt8], _ limit: Int) throws(InflateFailure) -> Void
  ) throws(WebSocketError) {
    let known = message.count
    do throws(InflateFailure) {
      try work(&message, maxPayload)
    } catch {
      throw error == .tooLarge ? .tooLarge : .damaged
    }
    guard opcode != .text || text.take(message[known...]) else { throw .notText }
  }

  private mutating func finish(_ header: Header) throws(WebSocketError) -> WebSocketFrame? {
    if header.opcode.isControl {
      defer { control = [] }
      return WebSocketFrame(opcode: header.opcode, payload: control)
    }
    guard header.isFinal, let opcode else { return nil }
    if isCompressed, let (inflater, keepsContext) = compression {
      try inflate { (message, limit) throws(InflateFailure) in try inflater.finish(into: &message, limit: limit) }
      if !keepsContext { inflater.reset() }
    }
    guard opcode != .text || text.isComplete else { throw .notText }
    defer {
      self.opcode = nil
      message = []
    }
    return WebSocketFrame(opcode: opcode, payload: message)
  }

  // MARK: Headers

  /// `nil`: the header is not complete yet.
  private mutating func readHeader() throws(WebSocketError) -> Header? {
    guard bytes.count - position >= 1 else { return nil }
    let first = bytes[position]
    guard let opcode = WebSocketFrame.Opcode(rawValue: first & 0x0F) else { throw .malformed("unknown opcode") }
    // In the first frame of a message, the first reserved bit says that the message is compressed.
    let allowed: UInt8 = compression != nil && (opcode == .text || opcode == .binary) ? 0x40 : 0
    guard first & 0x70 & ~allowed == 0 else { throw .malformed("reserved bits: an extension that was not requested") }
    let isFinal = first & 0x80 != 0
    guard bytes.count - position >= 2 else { return nil }
    let second = bytes[position + 1]
    guard second & 0x80 == 0 else { throw .malformed("a masked frame from the server") }
    let short = second & 0x7F
    guard !opcode.isControl || (isFinal && short <= 125) else { throw .malformed("control frame") }
    guard let length = try length(short, at: position + 2) else { return nil }
    if !opcode.isControl { try begin(opcode, length, first & 0x40 != 0) }
    position += short < 126 ? 2 : short == 126 ? 4 : 10
    left = length
    return Header(isFinal: isFinal, opcode: opcode)
  }

  private func length(_ short: UInt8, at start: Int) throws(WebSocketError) -> Int? {
    guard short >= 126 else { return Int(short) }
    let count = short == 126 ? 2 : 8
    guard bytes.count - start >= count else { return nil }
    let value = bytes[start..<start + count].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    guard value >= (short == 126 ? 126 : 65536) else { throw .malformed("a length that is not in its shortest form") }
    guard let length = Int(exactly: value) else { throw .tooLarge }
    return length
  }

  /// A frame of a message: its first, or another piece.
  private mutating func begin(
    _ opcode: WebSocketFrame.Opcode, _ length: Int, _ isCompressed: Bool
  ) throws(WebSocketError) {
    guard (opcode == .continuation) == (self.opcode != nil) else { throw .malformed("fragments out of order") }
    guard length <= maxPayload - message.count else { throw .tooLarge }
    if opcode != .continuation {
      self.opcode = opcode
      self.isCompressed = isCompressed
      pieces = 0
      text = UTF8Check()
    }
    pieces += 1
    guard isStream || pieces <= Self.freePieces + message.count / Self.bytesPerPiece else {
      throw .malformed("too many fragments")
    }
  }
}

/// The content of a close frame.
enum WebSocketClose {
  /// The reason; throws if the code or the text is not allowed. Source: RFC 6455 §§ 5.5.1 and 7.4, and IANA's registry
  /// of codes.
  static func reason(_ payload: [UInt8]) throws(WebSocketError) -> String {
    guard !payload.isEmpty else { return "" }
    guard payload.count >= 2 else { throw .malformed("an incomplete close code") }
    switch UInt16(payload[0]) << 8 | UInt16(payload[1]) {
    case 1000...1003, 1007...1014, 3000...4999: break
    case let code: throw .malformed("close code \(code)")
    }
    guard let reason = String(validating: payload[2...], as: UTF8.self) else { throw .notText }
    return reason
  }
}

/// Checks incrementally that bytes are UTF-8. Source: RFC 3629 § 4.
struct UTF8Check {
  /// Bytes still missing from the current character, and the allowed range of the next one.
  private var wanted = 0
  private var range: ClosedRange<UInt8> = 0x80...0xBF

  /// Whether the last character is complete.
  var isComplete: Bool { wanted == 0 }

  /// False: the bytes are not UTF-8, whatever follows.
  mutating func take(_ bytes: ArraySlice<UInt8>) -> Bool {
    for byte in bytes {
      if wanted > 0 {
        guard range.contains(byte) else { return false }
        wanted -= 1
        range = 0x80...0xBF
        continue
      }
      guard byte >= 0x80 else { continue }
      switch byte {
      case 0xC2...0xDF: wanted = 1
      case 0xE0...0xEF: wanted = 2
      case 0xF0...0xF4: wanted = 3
      default: return false
      }
      switch byte {
      case 0xE0: range = 0xA0...0xBF  // no overlong forms
      case 0xED: range = 0x80...0x9F  // no surrogates
      case 0xF0: range = 0x90...0xBF
      case 0xF4: range = 0x80...0x8F  // nothing beyond U+10FFFF
      default: range = 0x80...0xBF
      }
    }
    return true
  }
}
