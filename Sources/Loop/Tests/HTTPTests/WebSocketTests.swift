// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import HTTP

@Suite struct WebSocketTests {
  @Test func `the answer to a key is the one of RFC 6455`() {
    #expect(WebSocketKey.answer(to: "dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
  }

  @Test func `frames are encoded and decoded as in RFC 6455 § 5.7`() throws {
    let masked = WebSocketFrame(opcode: .text, payload: Array("Hello".utf8)).encode(mask: 0x3D21_FA37)
    #expect(masked == [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58])
    var decoder = WebSocketDecoder(maxPayload: 1000)
    var got: [WebSocketFrame] = []
    // A text in two pieces, with a ping with a body between them.
    let bytes: [UInt8] = [
      0x01, 0x03, 0x48, 0x65, 0x6C, 0x89, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x80, 0x02, 0x6C, 0x6F,
    ]
    for byte in bytes {
      decoder.append([byte])
      while let frame = try decoder.next() { got.append(frame) }
    }
    #expect(got == [WebSocketFrame(opcode: .ping, payload: Array("Hello".utf8)), masked5("Hello")])
  }

  private func masked5(_ text: String) -> WebSocketFrame { WebSocketFrame(opcode: .text, payload: Array(text.utf8)) }

  @Test(arguments: [125, 126, 65535, 65536]) func `each of the three forms of a length is read and written`(
    _ count: Int
  ) throws {
    let sent = WebSocketFrame(opcode: .binary, payload: [UInt8](repeating: 7, count: count)).encode(mask: 0)
    // A server's frame is a client's frame without mask bit and key.
    let header = count < 126 ? 2 : count < 65536 ? 4 : 10
    var bytes = sent
    bytes[1] &= 0x7F
    bytes.removeSubrange(header..<header + 4)
    var decoder = WebSocketDecoder(maxPayload: count)
    decoder.append(bytes)
    #expect(try decoder.next()?.payload.count == count)
    var strict = WebSocketDecoder(maxPayload: count - 1)
    strict.append(bytes)
    #expect(throws: WebSocketError.tooLarge) { try strict.next() }
  }

  @Test(arguments: [UInt64(1), 2, 3]) func `random bytes give frames or an error, and no trap`(_ seed: UInt64) {
    var random = SeededRandom(seed: seed)
    for _ in 0..<20_000 {
      var decoder = WebSocketDecoder(maxPayload: 4096)
      let bytes = (0..<Int.random(in: 0...40, using: &random)).map { _ in
        UInt8.random(in: .min ... .max, using: &random)
      }
      decoder.append(bytes)
      // `try?`: errors are allowed, traps are not.
      while let frame = try? decoder.next() { #expect(frame.payload.count <= 40) }
    }
  }

  @Test func `too many empty fragments are refused, and the fragments of a large message are accepted`() throws {
    var decoder = WebSocketDecoder(maxPayload: 1 << 20)
    decoder.append([0x01, 0x00] + [UInt8](repeating: 0, count: 4096))
    #expect(throws: WebSocketError.malformed("too many fragments")) { while try decoder.next() != nil {} }
    var other = WebSocketDecoder(maxPayload: 1 << 20)
    let piece = [0x00, 64] + [UInt8](repeating: 0x61, count: 64)
    for number in 0..<16_384 {
      other.append((number == 0 ? [0x02] : number == 16_383 ? [0x80] : [0x00]) + piece.dropFirst())
      let frame = try other.next()
      #expect((frame?.payload.count ?? 0) == (number == 16_383 ? 1 << 20 : 0))
    }
  }

  @Test func `a stream passes on the pieces of messages as they arrive, whatever the messages' sizes`() throws {
    var decoder = WebSocketDecoder(maxPayload: .max)
    // A message of a gibibyte begins, in a frame of three bytes and one of the rest; a ping is between them.
    decoder.append([0x02, 3, 1, 2])
    #expect(try decoder.next() == WebSocketFrame(opcode: .binary, payload: [1, 2]))
    #expect(try decoder.next() == nil)
    decoder.append([3, 0x89, 0, 0x80, 127, 0, 0, 0, 0, 0x40, 0, 0, 0, 4])
    #expect(try decoder.next() == WebSocketFrame(opcode: .binary, payload: [3]))
    #expect(try decoder.next() == WebSocketFrame(opcode: .ping))
    #expect(try decoder.next() == WebSocketFrame(opcode: .binary, payload: [4]))
    #expect(try decoder.next() == nil)
    var short = WebSocketDecoder(maxPayload: .max)
    short.append([0x82, 1, 5, 0x02, 1, 6] + [[UInt8]](repeating: [0x00, 1, 7], count: 5000).joined())
    var heard: [UInt8] = []
    while let frame = try short.next() { heard += frame.payload }
    #expect(heard == [5, 6] + [UInt8](repeating: 7, count: 5000), "and in however many fragments")
  }

  @Test func `incremental UTF-8 validation agrees with the standard library`() {
    var random = SeededRandom(seed: 4)
    for _ in 0..<50_000 {
      let starts: [UInt8] = [0x61, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5, 0x80, 0xBF]
      let bytes = (0..<Int.random(in: 1...6, using: &random)).map { _ in
        Bool.random(using: &random)
          ? starts.randomElement(using: &random) ?? 0 : UInt8.random(in: 0x7E...0xC0, using: &random)
      }
      var check = UTF8Check()
      let isGood = bytes.allSatisfy { check.take([$0]) } && check.isComplete
      #expect(isGood == (String(validating: bytes, as: UTF8.self) != nil), "\(bytes)")
    }
  }
}
