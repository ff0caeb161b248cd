// SPDX-License-Identifier: MIT

import Foundation
import LoopTestSupport
import Testing
import Timing

@testable import Deflate
@testable import HTTP

@Suite struct DeflateTests {
  private static let most = 1 << 16

  private func text(_ random: inout SeededRandom) -> [UInt8] {
    let words = ["taken", "acknowledged", "message", "{\"type\":", "Berlin", "🏔", "17953605", "\n"]
    return (0..<Int.random(in: 1...40, using: &random)).flatMap { _ in
      Array((words.randomElement(using: &random) ?? "").utf8) + [UInt8.random(in: 0x20...0x7E, using: &random)]
    }
  }

  private func pieces(_ bytes: [UInt8], _ random: inout SeededRandom) -> [ArraySlice<UInt8>] {
    var (rest, pieces) = (bytes[...], [ArraySlice<UInt8>]())
    while !rest.isEmpty {
      let count = Int.random(in: 1...rest.count, using: &random)
      pieces.append(rest.prefix(count))
      rest = rest.dropFirst(count)
    }
    return pieces
  }

  @Test(arguments: 9...15) func `messages are unchanged after compression and decompression, with and without context`(
    _ bits: Int
  ) throws {
    var random = SeededRandom(seed: UInt64(bits))
    for dictionary in [[], LinkDictionary.fromGateway] {
      for keepsContext in [true, false] {
        let deflater = try #require(Deflater(windowBits: bits, memoryLevel: 1 + bits % 9, dictionary: dictionary))
        let inflater = try #require(Inflater(windowBits: bits, dictionary: dictionary))
        for _ in 0..<300 {
          let message = text(&random)
          let packed = deflater.message(message)
          var output: [UInt8] = []
          for piece in pieces(packed, &random) { try inflater.append(piece, to: &output, limit: Self.most) }
          try inflater.finish(into: &output, limit: Self.most)
          #expect(output == message)
          guard !keepsContext else { continue }
          deflater.reset()
          inflater.reset()
        }
      }
    }
  }

  /// A hub has one deflater and one inflater for many links; each gateway has its own, which continues its stream.
  @Test(arguments: [(9, 9), (12, 10), (15, 15)])
  func `links that share zlib's state understand peers with a state of their own`(_ upBits: Int, _ downBits: Int) throws
  {
    struct Link {
      let gatewayDeflater: Deflater
      let gatewayInflater: Inflater
      let keepsContext: Bool
      var up: LinkContext
      var down: LinkContext
    }
    var random = SeededRandom(seed: UInt64(upBits))
    let hubDeflater = try #require(Deflater(windowBits: downBits, memoryLevel: 2))
    let hubInflater = try #require(Inflater(windowBits: upBits))
    var links = try (0..<5).map { number in
      let (ours, theirs) = number < 3 ? (LinkDictionary.fromGateway, LinkDictionary.fromHub) : ([], [])
      return Link(
        gatewayDeflater: try #require(Deflater(windowBits: upBits, memoryLevel: 4, dictionary: ours)),
        gatewayInflater: try #require(Inflater(windowBits: downBits, dictionary: theirs)),
        keepsContext: number % 2 == 0,
        up: LinkContext(reach: 1 << upBits, dictionary: ours),
        down: LinkContext(reach: Deflater.reach(windowBits: downBits), dictionary: theirs))
    }
    for _ in 0..<2000 {
      let place = Int.random(in: links.indices, using: &random)
      let message = (0..<Int.random(in: 1...10, using: &random)).flatMap { _ in text(&random) }
      guard Int.random(in: 0..<20, using: &random) > 0 else {
        // Damaged data ends its own link and no other.
        _ = try? hubInflater.message([0xFF, 0xFF, 0xFF], behind: links[place].up, limit: Self.most)
        continue
      }
      if Bool.random(using: &random) {
        let packed = links[place].gatewayDeflater.message(message)
        #expect(try hubInflater.message(packed, behind: links[place].up, limit: Self.most) == message)
        if links[place].keepsContext { links[place].up.add(message) } else { links[place].gatewayDeflater.reset() }
      } else {
        let packed = hubDeflater.message(message, behind: links[place].down)
        var output: [UInt8] = []
        for piece in pieces(packed, &random) {
          try links[place].gatewayInflater.append(piece, to: &output, limit: Self.most)
        }
        try links[place].gatewayInflater.finish(into: &output, limit: Self.most)
        #expect(output == message)
        if links[place].keepsContext { links[place].down.add(message) } else { links[place].gatewayInflater.reset() }
      }
    }
  }

  @Test func `the shared deflater with context compresses as well as a deflater for each link`() throws {
    let texts = (0..<40).map {
      Array(#"{"type":"has_new","bucket":"channel/1155f1870f917786","seq":\#($0 * 37)}"#.utf8)
    }
    let own = try #require(Deflater(windowBits: 10, memoryLevel: 2, dictionary: LinkDictionary.fromHub))
    let shared = try #require(Deflater(windowBits: 10, memoryLevel: 2))
    var context = LinkContext(reach: Deflater.reach(windowBits: 10), dictionary: LinkDictionary.fromHub)
    var sizes = (own: 0, shared: 0)
    for text in texts {
      sizes.own += own.message(text).count
      sizes.shared += shared.message(text, behind: context).count
      context.add(text)
    }
    #expect(sizes.shared <= sizes.own * 105 / 100, "\(sizes)")
  }

  @Test func `a compressed message without the required end is damaged`() throws {
    let inflater = try #require(Inflater(windowBits: 15))
    let context = LinkContext(reach: 1 << 15)
    let whole = Array("Hello".utf8)
    let hello: [UInt8] = [0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]
    #expect(try inflater.message(hello, behind: context, limit: 100) == whole)
    for wrong in [[], [0xF2, 0x48], [0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]] as [[UInt8]] {
      #expect(throws: InflateFailure.damaged) { try inflater.message(wrong, behind: context, limit: 100) }
    }
    // A stream that ends, and the beginning of the next.
    #expect(
      try inflater.message([0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00], behind: context, limit: 100) == whole)
    #expect(throws: InflateFailure.tooLarge) { try inflater.message(hello, behind: context, limit: 4) }
    #expect(try inflater.message(hello, behind: context, limit: 5) == whole)
  }

  @Test func `the examples of RFC 7692 are decompressed`() throws {
    let hello = Array("Hello".utf8)
    let examples: [[[UInt8]]] = [
      [[0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00], [0xF2, 0x00, 0x11, 0x00, 0x00]],
      [[0x00, 0x05, 0x00, 0xFA, 0xFF, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x00]],
      // A stream that ends, and another in the next message.
      [[0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00], [0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]],
      [[0xF2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xCA, 0xC9, 0xC9, 0x07, 0x00]],
    ]
    for messages in examples {
      let inflater = try #require(Inflater(windowBits: 15))
      for message in messages {
        var output: [UInt8] = []
        try inflater.append(message, to: &output, limit: 100)
        try inflater.finish(into: &output, limit: 100)
        #expect(output == hello)
      }
    }
  }

  @Test func `a decompression bomb is stopped before it is large`() throws {
    let deflater = try #require(Deflater(windowBits: 15, memoryLevel: 9))
    let bomb = deflater.message([UInt8](repeating: 0x61, count: 8 << 20))
    #expect(bomb.count < 10_000)
    let inflater = try #require(Inflater(windowBits: 15))
    var output: [UInt8] = []
    #expect(throws: InflateFailure.tooLarge) { try inflater.append(bomb, to: &output, limit: Self.most) }
    #expect(output.count <= Self.most + 4096)
    // From then on it returns nothing.
    #expect(throws: InflateFailure.tooLarge) { try inflater.append([0], to: &output, limit: 1 << 30) }
    var decoder = try decoder()
    decoder.append(frame(2, bomb, final: true, reserved: 4))
    #expect(throws: WebSocketError.tooLarge) { try decoder.next() }
  }

  @Test(arguments: [UInt64(1), 2, 3]) func `corrupted streams give bytes within the limit or an error`(_ seed: UInt64)
    throws
  {
    var random = SeededRandom(seed: seed)
    for _ in 0..<3000 {
      let deflater = try #require(Deflater(windowBits: 9, memoryLevel: 1))
      let inflater = try #require(Inflater(windowBits: 9))
      var isBroken = false
      for _ in 0..<4 where !isBroken {
        var packed = deflater.message(text(&random))
        for _ in 0..<Int.random(in: 0...3, using: &random) {
          packed[Int.random(in: packed.indices, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        }
        var output: [UInt8] = []
        do {
          try inflater.append(packed, to: &output, limit: 4096)
          try inflater.finish(into: &output, limit: 4096)
        } catch {
          isBroken = true
        }
        #expect(output.count <= 4096 + 2048)
      }
    }
  }

  // MARK: In frames

  private func decoder() throws -> WebSocketDecoder {
    var decoder = WebSocketDecoder(maxPayload: Self.most)
    decoder.compression = (try #require(Inflater(windowBits: 12)), true)
    return decoder
  }

  private func frame(_ opcode: UInt8, _ payload: some Collection<UInt8>, final: Bool, reserved: UInt8 = 0) -> [UInt8] {
    let length: [UInt8] =
      payload.count < 126
      ? [UInt8(payload.count)] : [126, UInt8(payload.count >> 8), UInt8(truncatingIfNeeded: payload.count)]
    return [(final ? 0x80 : 0) | reserved << 4 | opcode] + length + payload
  }

  @Test(arguments: [UInt64(4), 5])
  func `compressed messages are read from frames of any size, between uncompressed ones`(_ seed: UInt64)
    throws
  {
    var random = SeededRandom(seed: seed)
    let deflater = try #require(Deflater(windowBits: 12, memoryLevel: 4))
    var decoder = try decoder()
    for _ in 0..<500 {
      let message = text(&random)
      var bytes: [UInt8] = []
      if Int.random(in: 0..<5, using: &random) == 0 {
        bytes = frame(1, message, final: true)
      } else {
        let parts = pieces(deflater.message(message), &random)
        for (number, part) in parts.enumerated() {
          let isFirst = number == 0
          bytes += frame(isFirst ? 1 : 0, part, final: number == parts.count - 1, reserved: isFirst ? 4 : 0)
          if Bool.random(using: &random) { bytes += frame(9, [7], final: true) }
        }
      }
      var got: [[UInt8]] = []
      for piece in pieces(bytes, &random) {
        decoder.append(Array(piece))
        while let frame = try decoder.next() { if frame.opcode == .text { got.append(frame.payload) } }
      }
      #expect(got == [message])
    }
  }

  @Test func `compressed frames with wrong reserved bits are refused`() throws {
    let packed = try #require(Deflater(windowBits: 12, memoryLevel: 4)).message(Array("Hello, hello, hello".utf8))
    let wrong = [
      frame(1, packed, final: true, reserved: 2), frame(1, packed, final: true, reserved: 5),
      frame(1, packed.prefix(3), final: false, reserved: 4) + frame(0, packed.dropFirst(3), final: true, reserved: 4),
      frame(9, [], final: true, reserved: 4),
    ]
    for bytes in wrong {
      var decoder = try decoder()
      decoder.append(bytes)
      #expect(throws: WebSocketError.malformed("reserved bits: an extension that was not requested")) {
        while try decoder.next() != nil {}
      }
    }
    var noText = try decoder()
    let half = try #require(Deflater(windowBits: 12, memoryLevel: 4)).message([0x61, 0xC3])
    noText.append(frame(1, half, final: true, reserved: 4))
    #expect(throws: WebSocketError.notText) { try noText.next() }
    var damaged = try decoder()
    damaged.append(frame(1, [0xFF, 0xFF, 0xFF], final: true, reserved: 4))
    #expect(throws: WebSocketError.damaged) { try damaged.next() }
  }

  // MARK: Agreeing

  private static let offer = PerMessageDeflate.Offer(clientBits: 12, serverBits: 10, dictionary: true)

  @Test(
    arguments: [
      ("permessage-deflate", nil),  // our bound on its window is not in it
      ("permessage-deflate; server_max_window_bits=10", [12, 10, 1, 1, 0]),
      ("permessage-deflate; server_max_window_bits=9; client_max_window_bits=9", [9, 9, 1, 1, 0]),
      ("permessage-deflate; server_max_window_bits=\"10\";client_max_window_bits = 15", [12, 10, 1, 1, 0]),
      ("permessage-deflate; server_max_window_bits=10; server_no_context_takeover", [12, 10, 1, 0, 0]),
      ("permessage-deflate; server_max_window_bits=10; client_no_context_takeover", [12, 10, 0, 1, 0]),
      ("permessage-deflate; server_max_window_bits=10, meshpost-dictionary-1", [12, 10, 1, 1, 1]),
      ("permessage-deflate; server_max_window_bits=10; client_max_window_bits=8", [8, 10, 1, 1, 0]),
      ("permessage-deflate; server_max_window_bits=11", nil),
      ("permessage-deflate; server_max_window_bits=7", nil), ("permessage-deflate; server_max_window_bits=010", nil),
      ("permessage-deflate; server_max_window_bits", nil), ("permessage-deflate; server_max_window_bits=", nil),
      ("permessage-deflate; server_max_window_bits=10; server_max_window_bits=10", nil),
      ("permessage-deflate; server_max_window_bits=10; client_no_context_takeover=1", nil),
      ("permessage-deflate; server_max_window_bits=10; other", nil),
      ("permessage-deflate; server_max_window_bits=10, permessage-deflate; server_max_window_bits=10", nil),
      ("permessage-deflate; server_max_window_bits=10, other", nil), ("meshpost-dictionary-1", nil),
      ("permessage-deflate; server_max_window_bits=10, meshpost-dictionary-1; x", nil), ("", nil), (";", nil),
      ("permessage-deflate;;", nil), ("permessage-deflate; server_max_window_bits=99999999999999999999", nil),
    ] as [(String, [Int]?)]) func `a server's compression answer is accepted or refused as it should be`(
      _ answer: String, _ expected: [Int]?
    ) throws
  {
    // `try?`: most of these are refused.
    let agreed = try? PerMessageDeflate.answered([answer], to: Self.offer)
    let got = agreed.map {
      [
        $0.clientBits, $0.serverBits, $0.clientKeepsContext ? 1 : 0, $0.serverKeepsContext ? 1 : 0,
        $0.hasDictionary ? 1 : 0,
      ]
    }
    #expect(got == expected)
    #expect(try PerMessageDeflate.answered([], to: Self.offer) == nil)
  }

  @Test(
    arguments: [
      (
        offer.value,
        "permessage-deflate; client_max_window_bits=12; server_max_window_bits=10, meshpost-dictionary-1"
      ),
      ("permessage-deflate; client_max_window_bits", "permessage-deflate; client_max_window_bits=12"),
      ("permessage-deflate; client_max_window_bits=9", "permessage-deflate; client_max_window_bits=9"),
      // Its window would need our memory.
      ("permessage-deflate", nil), ("permessage-deflate; client_max_window_bits; server_max_window_bits=8", nil),
      (
        "x, permessage-deflate; y, permessage-deflate; client_max_window_bits; server_no_context_takeover",
        "permessage-deflate; client_max_window_bits=12; server_no_context_takeover"
      ),
      (
        "permessage-deflate; client_max_window_bits=15; server_max_window_bits=9; client_no_context_takeover",
        "permessage-deflate; client_max_window_bits=12; server_max_window_bits=9; client_no_context_takeover"
      ),
      ("meshpost-dictionary-1", nil), ("", nil), ("permessage-deflate; client_max_window_bits=16", nil),
    ] as [(String, String?)]) func `a client's compression offer is accepted or declined as it should be`(
      _ offer: String, _ answer: String?
    )
  {
    #expect(PerMessageDeflate.accepted([offer], clientBits: 12, serverBits: 10)?.answer == answer)
  }

  @Test func `random headers trap nothing`() {
    var random = SeededRandom(seed: 6)
    let parts = [
      "permessage-deflate", ";", ",", "=", " ", "client_max_window_bits", "15", "\"", "é", "server_max_window_bits",
    ]
    for _ in 0..<20_000 {
      let header = (0..<Int.random(in: 0...12, using: &random)).map { _ in parts.randomElement(using: &random) ?? "" }
        .joined()
      _ = PerMessageDeflate.accepted([header], clientBits: 12, serverBits: 10)
      // `try?`: a refusal is allowed, too.
      _ = try? PerMessageDeflate.answered([header], to: Self.offer)
    }
  }

  @Test func `the dictionaries are the documented ones`() throws {
    let page = try String(contentsOf: Checkout.folder.appending(path: "docs/link-dictionary.md"), encoding: .utf8)
    for dictionary in [LinkDictionary.fromGateway, LinkDictionary.fromHub] {
      #expect(page.contains("\n\(String(decoding: dictionary, as: UTF8.self))\n"))
    }
  }

  /// The beginning of a link between a present gateway and hub: the cost of a message that the dictionary knows, and of another one.
  @Test func `the first messages of a link are small`() throws {
    func sizes(_ messages: [String], _ dictionary: [UInt8], _ bits: Int) throws -> [Int] {
      let deflater = try #require(Deflater(windowBits: bits, memoryLevel: 4, dictionary: dictionary))
      return messages.map { deflater.message(Array($0.utf8)).count }
    }
    let message =
      #"{"type":"events","n":3,"lane":"messages","after":81,"events":[{"seq":82,"at":1795386312778,"trusted":true,"kind":"message","#
      + #""body":{"id":41,"kind":"channel","sender_name":"Anna","channel":"1155f1870f917786","channel_name":"Public","#
      + #""sender_time":1795386314,"text":"Is anybody up on the ridge?","snr":9.75,"hops":0,"direct":false}}]}"#
    let gateway = try sizes(
      [
        #"{"type":"hello","protocol":2,"gateway":"9f86d081884c7d65","epoch":"61fe457a98fcf2cc","version":"0.1.0","keep_alive_s":300,"brief":true}"#,
        #"{"type":"request","id":"2","method":"getUpdatesState","params":{"buckets":["commands"]}}"#, message,
      ], LinkDictionary.fromGateway, 12)
    #expect(gateway[0] <= 50 && gateway[1] <= 12 && gateway[2] <= 85, "\(gateway)")
    let hub = try sizes(
      [
        #"{"type":"welcome","protocol":2,"lanes":{"messages":80,"nodes":79},"window":4,"max_bytes":1048576,"at":1795386312751}"#,
        #"{"type":"response","id":"2","ok":true,"result":{"buckets":[{"bucket":"commands","seq":0,"at":0}]}}"#,
      ], LinkDictionary.fromHub, 10)
    #expect(hub[0] <= 30 && hub[1] <= 12, "\(hub)")
    #expect(try sizes([message], [], 12)[0] > 150)
  }

  // MARK: gzip

  @Test func `gzip files are unpacked whole, or not at all`() throws {
    var random = SeededRandom(seed: 7)
    for count in [0, 1, 300, 600, 70_000] {
      let bytes = (0..<count).map { _ in UInt8.random(in: 0x61...0x70, using: &random) }
      let packed = try #require(Deflater.gzip(bytes))
      #expect(try Inflater.gunzip(packed, limit: count) == bytes)
      #expect(throws: InflateFailure.damaged) { try Inflater.gunzip(packed.dropLast(), limit: count) }
      #expect(throws: InflateFailure.damaged) { try Inflater.gunzip(packed + [0], limit: count) }
      #expect(throws: InflateFailure.damaged) { try Inflater.gunzip(Array(packed.dropFirst()), limit: count) }
      if count > 0 { #expect(throws: InflateFailure.tooLarge) { try Inflater.gunzip(packed, limit: count - 1) } }
    }
    #expect(throws: InflateFailure.damaged) { try Inflater.gunzip([], limit: 10) }
  }

  @Test(arguments: [1, 7, 300, 70_000]) func `a gzip file written in pieces unpacks to the whole`(_ most: Int) throws {
    var random = SeededRandom(seed: UInt64(most))
    for count in [0, 1, 5000, 140_000] {
      let bytes = (0..<count).map { _ in UInt8.random(in: 0x61...0x70, using: &random) }
      let writer = try #require(GzipWriter())
      var (packed, rest) = ([UInt8](), bytes[...])
      while !rest.isEmpty {
        let piece = rest.prefix(Int.random(in: 1...most, using: &random))
        packed += writer.add(Array(piece))
        rest = rest.dropFirst(piece.count)
      }
      packed += writer.end()
      #expect(try Inflater.gunzip(packed, limit: count) == bytes)
    }
  }
}
