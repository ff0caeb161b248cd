// SPDX-License-Identifier: MIT

import Companion
import Foundation
import Hub
import RadioSession
import Store
import TOML
import TestSupport
import Testing
import Timing

@testable import Messaging

/// Random and mutated bytes: nothing may trap. A failure ends the process, and the seed printed before repeats it.
@Suite struct FuzzTests {
  /// All recorded frames of the radio, from which the mutations start.
  private static let corpus: [[UInt8]] = Fixtures.traceNames.flatMap { name in
    Fixtures.trace(name).filter { !$0.isRaw }.map(\.bytes)
  }

  private func mutated(_ bytes: [UInt8], _ random: inout SeededRandom) -> [UInt8] {
    var bytes = bytes
    for _ in 0..<Int.random(in: 1...4, using: &random) {
      let position = bytes.isEmpty ? 0 : Int.random(in: 0..<bytes.count, using: &random)
      switch Int.random(in: 0..<6, using: &random) {
      case 0 where !bytes.isEmpty: bytes[position] = UInt8.random(in: 0...255, using: &random)
      case 1 where !bytes.isEmpty: bytes[position] ^= 1 << UInt8.random(in: 0..<8, using: &random)
      case 2: bytes = Array(bytes.prefix(position))
      case 3: bytes.insert(UInt8.random(in: 0...255, using: &random), at: position)
      case 4 where !bytes.isEmpty: bytes[position] = [0, 0x7F, 0x80, 0xFF].randomElement(using: &random) ?? 0
      default: bytes += (0..<8).map { _ in UInt8.random(in: 0...255, using: &random) }
      }
    }
    return bytes
  }

  /// Decodes a frame with all readers of frames and of their content.
  private func readEverything(_ bytes: [UInt8]) {
    _ = try? Command(decoding: bytes).encode()
    _ = SecretMask.hex(bytes, .fromRadio)
    _ = SecretMask.hex(bytes, .toRadio)
    guard let frame = try? RadioFrame(decoding: bytes) else { return }
    _ = frame.encode()
    let content = Array(bytes.dropFirst(3))
    _ = Telemetry(decoding: content).encode()
    _ = AccessEntry.list(decoding: content)
    _ = try? Neighbours(decoding: content, keyBytes: Int(bytes.first ?? 0) % 33)
    _ = try? NodeStatus(decoding: content, of: .repeater).encode()
    _ = try? ControlPayload(decoding: content).encode()
    if let packet = try? Packet(decoding: content) {
      _ = packet.encode()
      if case .advert(let advert)? = try? packet.content() { _ = try? advert.content() }
    }
  }

  /// $MESHPOST_FUZZ_FRAMES; a million take six minutes of a processor.
  private static let frames =
    ProcessInfo.processInfo.environment["MESHPOST_FUZZ_FRAMES"].flatMap(Int.init) ?? 100_000

  @Test(arguments: [UInt64(1)]) func `mutated frames do not trap the decoders, the stream and the session`(
    _ seed: UInt64
  ) {
    print("fuzz: seed \(seed)")
    var random = SeededRandom(seed: seed)
    var decoder = SerialDecoder(.fromRadio)
    var session = RadioSession()
    var now = MonotonicTime(seconds: 0)
    _ = session.linkUp(now: now)
    let commands: [Command] = [.getContacts(since: nil), .syncNextMessage, .getDeviceTime, .getChannel(slot: 1)]
    for round in 0..<Self.frames {
      let base = Self.corpus[Int.random(in: 0..<Self.corpus.count, using: &random)]
      let frame = mutated(base, &random)
      if round % 4 == 0 { readEverything(frame) }
      now = now + .milliseconds(Int64.random(in: 0...40, using: &random))
      decoder.append(round % 3 == 0 ? frame : SerialFraming.wrap(frame, .fromRadio), now: now)
      decoder.timedOut(now: now)
      while let found = decoder.next(now: now) { step(&session, found, now) }
      if round % 7 == 0, let command = commands.randomElement(using: &random) {
        _ = session.submit(command, round % 2 == 0 ? .interactive : .sync, now: now)
      }
      if let deadline = session.deadline, deadline <= now { react(session.timedOut(now: now), &session, now) }
    }
    #expect(decoder.skippedBytes > 0)
  }

  private func step(_ session: inout RadioSession, _ frame: [UInt8], _ now: MonotonicTime) {
    react(session.received(frame, now: now), &session, now)
  }

  private func react(_ actions: [RadioSession.Action], _ session: inout RadioSession, _ now: MonotonicTime) {
    for case .dropLink in actions {
      _ = session.linkLost()
      _ = session.linkUp(now: now)
    }
  }

  @Test(arguments: [UInt64(2)]) func `mutated batches, JSON and TOML do not trap their parsers`(_ seed: UInt64) {
    print("fuzz: seed \(seed)")
    var random = SeededRandom(seed: seed)
    let batch =
      Array(
        #"{"epoch":"e1","events":[{"seq":1,"at":2,"trusted":true,"kind":"message","body":{"text":"a\u00e9\ud83c\udf32"}},"#
          .utf8) + Array(#"{"seq":2,"at":-3,"kind":"gap","body":{"first":1e5,"x":[null,[[]]]}}]}"#.utf8)
    let toml = Array("[a]\nb = [1, 2.5, \"x\\u00e9\", { c = 'd' }]\n[[e.f]]\ng = \"\"\"\nh\"\"\" # i\n".utf8)
    for round in 0..<100_000 {
      let bytes = mutated(round % 2 == 0 ? batch : toml, &random)
      if let taken = try? EventBatch(parsing: bytes) { #expect(taken.events.count <= EventBatch.maxEvents) }
      _ = try? TOMLParser.parse(bytes)
    }
  }

  /// Texts from people and from the air: links, reactions, mentions, texts to split, stray acknowledgements.
  @Test(arguments: [UInt64(3)]) func `mutated texts and links do not trap their parsers`(_ seed: UInt64) {
    print("fuzz: seed \(seed)")
    var random = SeededRandom(seed: seed)
    let texts = [
      "👍@[AlphaNode]\nb45pc4ek", "@[Alder]❤️\nb45pc4ek", "hello @[Alder] and @[Birch] 🦊🦊🦊",
      "meshcore://contact/add?name=Hill%20Top+x&public_key=\(String(repeating: "ab", count: 32))&type=2",
      "meshcore://channel/add?name=%23test&secret=000102030405060708090a0b0c0d0e0f",
      "meshcore://11003fc33af581c8cbb171fb4b5f2d292a3ec6691626abd6ce8d01df427eda5f0f3036540",
    ].map { Array($0.utf8) }
    for round in 0..<50_000 {
      let bytes = mutated(texts[round % texts.count], &random)
      let text = Text(bytes: bytes)
      let reaction = ReactionText(reading: text, inChannel: round % 2 == 0)
      if let reaction { #expect(reaction.hash.utf8.count == 8 && !reaction.emoji.isEmpty) }
      #expect(Mention.names(in: text).count <= Mention.most)
      _ = try? SharedLink(parsing: text.string)
      let limit = Int.random(in: 0...170, using: &random)
      for part in TextLimit.split(text, limit: limit) ?? [] { #expect(part.bytes.count <= limit) }
      _ = AckInResponse.code(in: bytes)
    }
  }
}
