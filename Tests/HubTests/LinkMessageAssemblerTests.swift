// SPDX-License-Identifier: MIT

import Deflate
import NIOCore
import NIOWebSocket
import Testing
import Timing

@testable import Hub

@Suite struct LinkMessageAssemblerTests {
  private static let most = 1 << 16
  private static let agreed: PerMessageDeflate = {
    var agreed = PerMessageDeflate()
    (agreed.clientBits, agreed.hasDictionary) = (12, true)
    return agreed
  }()

  private func frame(
    _ opcode: WebSocketOpcode, _ bytes: some Collection<UInt8>, final: Bool = true, isCompressed: Bool = false
  ) -> WebSocketFrame {
    WebSocketFrame(
      fin: final, rsv1: isCompressed, opcode: opcode, maskKey: nil, data: ByteBuffer(bytes: Array(bytes)))
  }

  private func messages(_ compression: PerMessageDeflate? = agreed) -> LinkMessageAssembler {
    LinkMessageAssembler(most: Self.most, compression)
  }

  private func deflater() throws -> Deflater {
    try #require(Deflater(windowBits: 12, memoryLevel: 4, dictionary: LinkDictionary.fromGateway))
  }

  @Test func `messages are assembled from one frame or many, compressed or not, with pings in between`() throws {
    var random = SeededRandom(seed: 1)
    let deflater = try deflater()
    var messages = self.messages()
    for number in 0..<500 {
      let text = Array("{\"type\":\"events\",\"n\":\(number),\"after\":\(number * 7)}".utf8)
      let isCompressed = Bool.random(using: &random)
      let payload = isCompressed ? deflater.message(text) : text
      let cut = Int.random(in: 0...payload.count, using: &random)
      #expect(
        try messages.take(frame(.text, payload.prefix(cut), final: false, isCompressed: isCompressed)) == nil)
      #expect(try messages.take(frame(.ping, [7])) == .ping(ByteBuffer(bytes: [7])))
      #expect(try messages.take(frame(.continuation, payload.dropFirst(cut))) == .text(text))
    }
  }

  @Test func `a decompression bomb, a damaged message or one out of order ends the link`() throws {
    let bomb = try deflater().message([UInt8](repeating: 0x61, count: 10 << 20))
    var messages = self.messages()
    #expect(throws: LinkMessageAssembler.Failure.tooLarge) { try messages.take(frame(.text, bomb, isCompressed: true)) }
    let wrong: [([WebSocketFrame], LinkMessageAssembler.Failure)] = [
      ([frame(.text, [0xFF, 0xFF, 0xFF], isCompressed: true)], .damaged),
      ([frame(.continuation, [1])], .malformed),
      ([frame(.text, [1], final: false), frame(.text, [2])], .malformed),
      ([frame(.text, [1], final: false), frame(.continuation, [2], isCompressed: true)], .malformed),
      ([frame(.ping, [], isCompressed: true)], .malformed),
      ([frame(.text, [UInt8](repeating: 1, count: Self.most + 1))], .tooLarge),
      ([frame(.text, [], final: false)] + (0..<1024).map { _ in frame(.continuation, [], final: false) }, .malformed),
    ]
    for (frames, failure) in wrong {
      var messages = self.messages()
      #expect(throws: failure) { for frame in frames { _ = try messages.take(frame) } }
    }
    var plain = self.messages(nil)
    #expect(throws: LinkMessageAssembler.Failure.malformed) { try plain.take(frame(.text, [1], isCompressed: true)) }
  }

  @Test(arguments: [UInt64(2), 3]) func `random frames give messages or a failure`(_ seed: UInt64) throws {
    var random = SeededRandom(seed: seed)
    let opcodes: [WebSocketOpcode] = [.text, .binary, .continuation, .ping, .pong]
    for _ in 0..<2000 {
      var messages = self.messages()
      let deflater = try deflater()
      for _ in 0..<5 {
        var payload = deflater.message(Array("a message of a gateway".utf8))
        if Bool.random(using: &random) {
          payload[Int.random(in: payload.indices, using: &random)] = .random(in: 0...255, using: &random)
        }
        let one = frame(
          opcodes.randomElement(using: &random) ?? .text, payload, final: .random(using: &random),
          isCompressed: .random(using: &random))
        // `try?`: failures are allowed, traps are not.
        if case .text(let text)? = try? messages.take(one) { #expect(text.count <= Self.most + 2048) }
      }
    }
  }
}
