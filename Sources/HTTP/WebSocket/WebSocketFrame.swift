// SPDX-License-Identifier: MIT

/// A frame of a WebSocket. Source: RFC 6455 § 5.2.
struct WebSocketFrame: Equatable {
  enum Opcode: UInt8 {
    case continuation = 0
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10

    var isControl: Bool { rawValue >= 8 }
  }

  var isFinal = true
  var opcode: Opcode
  var payload: [UInt8] = []

  /// As a client sends it: masked with `mask`, which is random (§ 5.3).
  func encode(mask: UInt32) -> [UInt8] {
    let key = (0..<4).map { UInt8(truncatingIfNeeded: mask >> (8 * $0)) }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(payload.count + 14)
    bytes.append((isFinal ? 0x80 : 0) | opcode.rawValue)
    // With the bit that says "masked".
    switch payload.count {
    case ..<126: bytes.append(0x80 | UInt8(payload.count))
    case ..<65536: bytes += [0xFE, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
    default:
      bytes.append(0xFF)
      for shift in stride(from: 56, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: payload.count >> shift))
      }
    }
    bytes += key
    for (index, byte) in payload.enumerated() { bytes.append(byte ^ key[index & 3]) }
    return bytes
  }
}

/// Why bytes are no WebSocket that we take.
enum WebSocketError: Error, Equatable {
  case malformed(String)
  case tooLarge
}

/// Reads what a server sends. Total; bounded by `mostPayload` bytes a message.
struct WebSocketDecoder {
  /// Whole messages and control frames.
  typealias Emit = (WebSocketFrame) -> Void

  private let mostPayload: Int
  private var bytes: [UInt8] = []
  /// The message that is coming in pieces.
  private var partial: WebSocketFrame?

  init(mostPayload: Int) { self.mostPayload = mostPayload }

  mutating func decode(_ more: [UInt8], _ emit: Emit) throws(WebSocketError) {
    bytes += more
    var position = 0
    while let (frame, end) = try next(at: position) {
      position = end
      try take(frame, emit)
    }
    bytes.removeFirst(position)
  }

  /// `nil`: not all of it is there yet.
  private func next(at start: Int) throws(WebSocketError) -> (WebSocketFrame, Int)? {
    guard bytes.count - start >= 2 else { return nil }
    let (first, second) = (bytes[start], bytes[start + 1])
    guard first & 0x70 == 0 else { throw .malformed("reserved bits: an extension nobody asked for") }
    guard let opcode = WebSocketFrame.Opcode(rawValue: first & 0x0F) else { throw .malformed("unknown opcode") }
    guard second & 0x80 == 0 else { throw .malformed("a server does not mask") }
    guard let (length, payloadStart) = try length(second & 0x7F, at: start + 2) else { return nil }
    let isFinal = first & 0x80 != 0
    guard !opcode.isControl || (isFinal && length <= 125) else { throw .malformed("control frame") }
    guard length <= mostPayload - (partial?.payload.count ?? 0) else { throw .tooLarge }
    guard bytes.count - payloadStart >= length else { return nil }
    let payload = Array(bytes[payloadStart..<payloadStart + length])
    return (WebSocketFrame(isFinal: isFinal, opcode: opcode, payload: payload), payloadStart + length)
  }

  private func length(_ short: UInt8, at start: Int) throws(WebSocketError) -> (Int, Int)? {
    guard short >= 126 else { return (Int(short), start) }
    let count = short == 126 ? 2 : 8
    guard bytes.count - start >= count else { return nil }
    let value = bytes[start..<start + count].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    guard let length = Int(exactly: value) else { throw .tooLarge }
    return (length, start + count)
  }

  private mutating func take(_ frame: WebSocketFrame, _ emit: Emit) throws(WebSocketError) {
    if frame.opcode.isControl { return emit(frame) }
    guard (frame.opcode == .continuation) == (partial != nil) else { throw .malformed("pieces out of order") }
    var whole = partial ?? WebSocketFrame(opcode: frame.opcode)
    whole.payload += frame.payload
    partial = frame.isFinal ? nil : whole
    if frame.isFinal { emit(whole) }
  }
}
