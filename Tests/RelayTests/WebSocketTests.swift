// SPDX-License-Identifier: MIT

import TestSupport
import Testing
import Timing

@testable import HTTP

@Suite struct WebSocketTests {
  @Test func `the key's answer is the one of RFC 6455`() {
    #expect(WebSocketKey.answer(to: "dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
  }

  @Test func `frames are as in RFC 6455 § 5.7`() throws {
    let masked = WebSocketFrame(opcode: .text, payload: Array("Hello".utf8)).encode(mask: 0x3D21_FA37)
    #expect(masked == [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58])
    var decoder = WebSocketDecoder(mostPayload: 1000)
    var got: [WebSocketFrame] = []
    // A text in two pieces, a ping with a body in between.
    let bytes: [UInt8] = [
      0x01, 0x03, 0x48, 0x65, 0x6C, 0x89, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x80, 0x02, 0x6C, 0x6F,
    ]
    for byte in bytes { try decoder.decode([byte]) { got.append($0) } }
    #expect(got == [WebSocketFrame(opcode: .ping, payload: Array("Hello".utf8)), masked5("Hello")])
  }

  private func masked5(_ text: String) -> WebSocketFrame { WebSocketFrame(opcode: .text, payload: Array(text.utf8)) }

  @Test(arguments: [125, 126, 65535, 65536]) func `lengths of each form are told`(_ count: Int) throws {
    let sent = WebSocketFrame(opcode: .binary, payload: [UInt8](repeating: 7, count: count)).encode(mask: 0)
    // A server's frame is a client's without mask bit and key.
    let header = count < 126 ? 2 : count < 65536 ? 4 : 10
    var bytes = sent
    bytes[1] &= 0x7F
    bytes.removeSubrange(header..<header + 4)
    var decoder = WebSocketDecoder(mostPayload: count)
    var got: [WebSocketFrame] = []
    try decoder.decode(bytes) { got.append($0) }
    #expect(got.first?.payload.count == count)
    var strict = WebSocketDecoder(mostPayload: count - 1)
    #expect(throws: WebSocketError.tooLarge) { try strict.decode(bytes) { _ in } }
  }

  @Test(arguments: [UInt64(1), 2, 3]) func `random bytes are frames or an error, never more`(_ seed: UInt64) {
    var random = SeededRandom(seed: seed)
    for _ in 0..<20_000 {
      var decoder = WebSocketDecoder(mostPayload: 4096)
      let bytes = (0..<Int.random(in: 0...40, using: &random)).map { _ in
        UInt8.random(in: .min ... .max, using: &random)
      }
      // `try?`: an error is as good as a frame here; a trap is what must not come.
      try? decoder.decode(bytes) { frame in #expect(frame.payload.count <= 40) }
    }
  }
}
