// SPDX-License-Identifier: MIT

import Companion
import Foundation
import MeshCrypto
import MeshIdentity
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Messaging

@Suite struct TextLimitTests {
  @Test func `the parts of a long text are numbered, fit, are cut at blanks, and are complete`() throws {
    let words = (1...60).map { "word\($0)" }.joined(separator: " ")
    let parts = try #require(TextLimit.split(Text(words), limit: 156))
    #expect(parts.count == 3)
    #expect(parts.allSatisfy { $0.bytes.count <= 156 })
    #expect(parts.enumerated().allSatisfy { $0.element.string.hasPrefix("[\($0.offset + 1)/3] word") })
    #expect(parts.map { $0.string.dropFirst(6) }.joined(separator: " ") == words)
    #expect(TextLimit.split("short", limit: 156) == ["short"])
    #expect(TextLimit.split(Text(String(repeating: "x", count: 2000)), limit: 156) == nil)
  }

  @Test func `a text is never cut inside a character, whatever its bytes are`() throws {
    let emojis = String(repeating: "🦊", count: 80)
    let parts = try #require(TextLimit.split(Text(emojis), limit: 156))
    #expect(parts.map { $0.string.dropFirst(6) }.joined() == emojis)
    var random = SeededRandom(seed: 4)
    for _ in 0..<500 {
      let bytes = (0..<Int.random(in: 0...900, using: &random)).map { _ in UInt8.random(in: 1...255, using: &random) }
      guard let parts = TextLimit.split(Text(bytes: bytes), limit: 150), parts.count > 1 else { continue }
      #expect(parts.allSatisfy { $0.bytes.count <= 150 && $0.bytes.count > 6 })
      let joined = parts.flatMap { $0.bytes.dropFirst(6) }
      #expect(joined.filter { $0 != 0x20 } == bytes.filter { $0 != 0x20 })
    }
  }

  @Test func `a channel's limit includes the name that the radio puts before the text`() {
    #expect(TextLimit.channel(ownName: "Hilltop") == 151)
    #expect(TextLimit.channel(ownName: nil) == 127, "as for the longest name")
  }
}

@Suite struct AddressingTests {
  private let scratch = Scratch()

  @Test func `a node whose name is a key or a channel's name does not take their messages`() throws {
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let key = try #require(PublicKey(bytes: (1...32).map { UInt8($0) }))
    let secret = ChannelSecret.hashtag("#trees")
    let names: [Text] = [Text(key.prefix.hex), Text(key.hex), "trees", Text(secret.digest)]
    store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, name: "Birch"), onRadio: true, heard: false, at: 1)
      for (number, name) in names.enumerated() {
        let other = PublicKey(bytes: Array(repeating: UInt8(100 + number), count: 32))
        _ = try other.map { other throws(SQLiteError) in
          try store.upsert(Contact(key: other, name: name), onRadio: true, heard: false, at: 1)
        }
      }
      _ = try store.setChannel(Channel(slot: 1, name: "trees", secret: secret))
    }
    try store.commitNow()
    let addressing = Addressing(store)
    #expect(try addressing.contact(key.hex).contact.name == "Birch")
    #expect(try addressing.contact(key.prefix.hex).contact.name == "Birch")
    #expect(try addressing.channel(secret.digest).slot == 1)
    #expect(try addressing.find("trees") == .channel(Channel(slot: 1, name: "trees", secret: secret)))
  }

  @Test(arguments: [1, 3]) func `two digits name no node, and of several keys that begin with them it is told`(
    _ count: Int
  ) throws {
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    store.write { store throws(SQLiteError) in
      for number in 0..<count {
        guard let key = PublicKey(bytes: [0x7A] + [UInt8](repeating: UInt8(number), count: 31)) else { continue }
        // One of them is in the radio's table: it is not the only one that may be meant.
        _ = try store.upsert(Contact(key: key, name: "Birch"), onRadio: number == 0, heard: false, at: 1)
      }
    }
    try store.commitNow()
    let addressing = Addressing(store)
    for find in [{ _ = try addressing.find("7a") }, { _ = try addressing.contact("7A") }] as [() throws -> Void] {
      do {
        try find()
        Issue.record("7a is taken for one of them")
      } catch Refusal.ambiguous(_, let candidates) {
        #expect(count == 3 && candidates.count == 3, "\(candidates)")
      } catch {
        #expect(count == 1 && (error as? Refusal)?.code == "not_found", "\(error)")
      }
    }
  }

  @Test(arguments: [true, false]) func `a name of both a channel and a node's alias is not unique`(
    _ onRadio: Bool
  ) throws {
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let key = try #require(PublicKey(bytes: (1...32).map { UInt8($0) }))
    let channel = Channel(slot: 1, name: "trees", secret: .hashtag("#trees"))
    store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, name: "Birch"), onRadio: onRadio, heard: false, at: 1)
      _ = try store.setChannel(channel)
      _ = try store.editDocument("node/\(key.hex)/alias", "\"trees\"", at: Moment(milliseconds: 1, trusted: true))
    }
    try store.commitNow()
    let addressing = Addressing(store)
    // One of the two would get the other's messages.
    let refusal = #expect(throws: Refusal.self) { _ = try addressing.find("trees") }
    guard case .ambiguous(_, let candidates) = refusal else {
      Issue.record("\(String(describing: refusal))")
      return
    }
    #expect(candidates.count == 2 && candidates.contains("trees (channel 1 \(channel.secret.digest))"), "\(candidates)")
    #expect(try addressing.contact("trees").contact.key == key && addressing.channel("trees") == channel)
    #expect(try addressing.find(key.hex) != .channel(channel))
  }
}

@Suite struct SenderClockTests {
  private func at(_ seconds: Int64, trusted: Bool) -> Moment { Moment(milliseconds: seconds * 1000, trusted: trusted) }

  @Test func `every message has its own time, near the clock that is more likely right`() {
    var clock = SenderClock(last: 0, lastInRooms: 0)
    #expect(clock.next(at(1000, trusted: true), radio: 5000) == 1000)
    #expect(clock.next(at(1000, trusted: true), radio: 5000) == 1001)
    #expect(clock.next(at(1000, trusted: false), radio: 5000) == 5000)
    #expect(clock.next(at(9000, trusted: false), radio: nil) == 9000)
    var wrong = SenderClock(last: 4_000_000_000, lastInRooms: 0)
    #expect(wrong.next(at(1_800_000_000, trusted: true), radio: nil) == 1_800_000_000, "an error is not gone on from")
  }

  @Test func `a message to a room has a time by the radio's clock`() {
    var clock = SenderClock(last: 9000, lastInRooms: 0)
    #expect(clock.nextInRoom(at(9000, trusted: false), radio: 5000) == 5001)
    #expect(clock.nextInRoom(at(9000, trusted: true), radio: 5000) == 5002)
    #expect(clock.nextInRoom(at(9000, trusted: true), radio: 5100) == 5101)
    #expect(clock.nextInRoom(at(9000, trusted: true), radio: nil) == 9000)
    // A post by a wrong clock must not take all later ones with it.
    let now: Int64 = 1_800_000_000
    var wrong = SenderClock(last: 0, lastInRooms: 4_000_000_000)
    #expect(wrong.nextInRoom(at(now, trusted: false), radio: nil) == 4_000_000_001, "nobody knows better")
    #expect(wrong.nextInRoom(at(now, trusted: true), radio: UInt32(now) - 5) == UInt32(now) - 4)
    var ahead = SenderClock(last: 0, lastInRooms: UInt32(now) + 3600)
    #expect(ahead.nextInRoom(at(now, trusted: true), radio: UInt32(now)) == UInt32(now) + 3601)
    #expect(ahead.nextInRoom(at(now, trusted: true), radio: 1_715_770_351) == UInt32(now) + 3602, "it lost its time")
  }

  @Test func `the times of programs that share the radio are not gone on from`() throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    store.write { store throws(SQLiteError) in
      for (origin, time) in [("control", 1000), ("proxy/app", 4_000_000_000)] as [(String, UInt32)] {
        var message = OutgoingMessage(
          key: origin, origin: origin, priority: 1, kind: .room, text: "x",
          created: Moment(milliseconds: 1, trusted: true), lifetime: 1000)
        message.senderTime = time
        _ = try store.insertOutgoing(message)
      }
    }
    try store.commitNow()
    #expect(try store.lastSenderTime() == 1000 && store.lastSenderTime(of: .room) == 1000)
    #expect(try store.lastSenderTime(of: .channel) == 0)
  }
}

@Suite struct MeshLinkTests {
  private static let key = String(repeating: "ab", count: 32)
  private static let secret = "000102030405060708090a0b0c0d0e0f"

  @Test func `links of nodes and channels are parsed`() throws {
    let node = try SharedLink(parsing: "meshcore://contact/add?name=Hill+Top%20%2B1&public_key=\(Self.key)&type=2")
    #expect(node == .contact(try #require(PublicKey(hex: Self.key)), name: "Hill Top +1", type: .repeater))
    let channel = try SharedLink(parsing: "meshcore://channel/add?name=Club&secret=\(Self.secret)")
    guard case .channel(let name, let secret, nil) = channel else {
      Issue.record("\(channel)")
      return
    }
    #expect(name == "Club" && secret.bytes == Array(0...15))
    #expect(
      try SharedLink(parsing: "meshcore://channel/add?name=%23test")
        == .channel(name: "#test", .hashtag("#test"), region: nil))
  }

  @Test func `a signed contact card is accepted, and an altered one is refused`() throws {
    let identity = PrivateIdentity(seed: [UInt8](repeating: 7, count: 32))
    var advert = Advert(
      key: identity.publicKey, time: 9, signature: [],
      appData: AdvertContent(type: .chat, position: nil, name: "Birch").encode())
    advert.signature = identity.sign(advert.signedBytes)
    let card = Packet(route: .flood, type: .advert, payload: advert.encode()).encode()
    guard case .card(_, let read) = try SharedLink(parsing: "meshcore://\(Hex.string(card))") else {
      Issue.record("no card")
      return
    }
    #expect(read.key == identity.publicKey)
    var altered = card
    altered[altered.count - 1] ^= 1
    #expect(throws: Refusal.self) { try SharedLink(parsing: "meshcore://\(Hex.string(altered))") }
  }

  @Test(arguments: [
    "", "http://x", "meshcore://", "meshcore://zz", "meshcore://00", "meshcore://contact/add",
    "meshcore://contact/add?name=x&public_key=12", "meshcore://channel/add?name=x", "meshcore://channel/add?secret=00",
    "meshcore://channel/add?name=x&secret=00000000000000000000000000000000", "meshcore://map?lat=1&lon=2",
    "meshcore://contact/add?name=%zz&public_key=%&type=99",
  ]) func `an invalid link is refused`(_ text: String) {
    #expect(throws: Refusal.self) { try SharedLink(parsing: text) }
  }

  @Test(arguments: ["%20", "%E2%80%8B", "%E2%A0%80"])
  func `a link with a name of which nothing is seen is refused`(_ name: String) {
    for link in ["channel/add?secret=\(Self.secret)", "contact/add?public_key=\(Self.key)"] {
      #expect(throws: Refusal.invalid("nothing of the link's name is visible"), "\(link)") {
        try SharedLink(parsing: "meshcore://\(link)&name=\(name)")
      }
      #expect(throws: Refusal.self, "\(link)") { try SharedLink(parsing: "meshcore://\(link)&name=a%1B\(name)b") }
    }
  }
}

@Suite struct ReactionTextTests {
  @Test func `the forms of reactions in use are read, and one form is written`() throws {
    let direct = try #require(ReactionText(reading: "👍\nb45pc4ek", inChannel: false))
    #expect(direct == ReactionText(emoji: "👍", targetSender: nil, hash: "b45pc4ek"))
    #expect(direct.text == "👍\nb45pc4ek")
    #expect(TextDigest.reactionHash("Hello", senderTime: 1_704_067_200) == direct.hash)
    for form in ["👍@[AlphaNode]\nb45pc4ek", "@[AlphaNode]👍\nB45PC4EK"] {
      let channel = try #require(ReactionText(reading: Text(form), inChannel: true))
      #expect(channel == ReactionText(emoji: "👍", targetSender: "AlphaNode", hash: "b45pc4ek"))
      #expect(channel.text == "👍@[AlphaNode]\nb45pc4ek")
    }
    // Names that form one character with the brackets.
    for name in ["\u{301}A", "A\u{600}", "\u{FE0F}", "\u{200D}A\u{110BD}"] {
      let channel = try #require(ReactionText(reading: Text("👍@[\(name)]\nb45pc4ek"), inChannel: true))
      #expect(channel.targetSender.map { Array($0.utf8) } == Array(name.utf8))
    }
    for emoji in ["❤️", "👍🏽", "👩‍🚀", "☝️", "🏳️‍🌈"] {
      #expect(ReactionText(reading: Text("\(emoji)\n0123456j"), inChannel: false)?.emoji == emoji)
    }
  }

  @Test(arguments: [
    "", "👍", "👍\n", "👍\nb45pc4e", "👍\nb45pc4eu", "a\nb45pc4ek", "1\nb45pc4ek", "#\nb45pc4ek", "👍👍\nb45pc4ek",
    "👍@[x]\nb45pc4ek", "hello 👍\nb45pc4ek", "👍\nb45pc4ek\n",
  ]) func `any other text to a node is no reaction`(_ text: String) {
    #expect(ReactionText(reading: Text(text), inChannel: false) == nil)
  }

  @Test(arguments: ["👍\nb45pc4ek", "👍@[]x\nb45pc4ek", "@[x]\nb45pc4ek", "👍@x]\nb45pc4ek", "👍@[x]👍\nb45pc4ek"])
  func `any other text in a channel is no reaction`(_ text: String) {
    #expect(ReactionText(reading: Text(text), inChannel: true) == nil)
  }

  @Test func `mentions are found in a text`() {
    #expect(Mention.names(in: "@[Alder] and @[Birch], @[Alder] @Cedar @[] @[x") == ["Alder", "Birch"])
  }
}

@Suite struct CredentialsTests {
  private let scratch = Scratch()
  private let one = PublicKey(bytes: [UInt8](repeating: 1, count: 32))!
  private let two = PublicKey(bytes: [UInt8](repeating: 2, count: 32))!

  @Test func `credentials are kept for their owner only, and can be forgotten`() throws {
    let credentials = Credentials(location: scratch.location("credentials"))
    #expect(try credentials.read().isEmpty)
    try credentials.set("pass word", for: one)
    try credentials.set("", for: two)
    #expect(try credentials.read() == [one: "pass word", two: ""])
    let mode = try FileManager.default.attributesOfItem(atPath: credentials.location)[.posixPermissions] as? Int
    #expect(mode == 0o600)
    try credentials.set(nil, for: one)
    #expect(try credentials.read() == [two: ""])
  }

  @Test func `a password is stored only if all others are read, and all have room`() throws {
    let folder = scratch.location("folder")
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
    try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: folder)
    #expect(throws: Credentials.Failure.self, "a read that fails is no end") {
      try Credentials(location: folder).read()
    }
    // Lines of 72 bytes.
    func lines(_ count: Int) -> String {
      var text = ""
      for number in 0..<count {
        var key = [UInt8](repeating: 3, count: 32)
        (key[0], key[1]) = (UInt8(number / 256), UInt8(number % 256))
        text += "\(Hex.string(key)) secret\n"
      }
      return text
    }
    let most = 910
    let full = scratch.write("full", lines(most))
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: full)
    let credentials = Credentials(location: full)
    #expect(try credentials.read().count == most)
    #expect(throws: Credentials.Failure.self) { try credentials.set("secret", for: one) }
    #expect(try credentials.read().count == most)
    let larger = scratch.write("larger", lines(2 * most))
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: larger)
    #expect(throws: Credentials.Failure.self) { try Credentials(location: larger).set("secret", for: one) }
    #expect(try String(contentsOfFile: larger, encoding: .utf8) == lines(2 * most))
  }

  @Test func `a credentials file that others can read is refused until its mode is corrected`() throws {
    let location = scratch.write("credentials", "\(one.hex) secret\nnonsense\n")
    let credentials = Credentials(location: location)
    try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: location)
    #expect(throws: Credentials.Failure.self) { try credentials.read() }
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: location)
    #expect(try credentials.read() == [one: "secret"])
  }
}

@Suite struct ChannelEchoTests {
  @Test func `a repeater that repeats our message is counted once, and other packets are not`() throws {
    var echoes = ChannelEchoes()
    let now = MonotonicTime(seconds: 0)
    let secret = ChannelSecret.hashtag("#test")
    _ = echoes.expect(5, text: "hello", time: 77, name: "r0", secret: secret, now: now)
    let envelope = try #require(GroupEnvelope.seal(GroupText(time: 77, text: "r0: hello"), with: secret))
    func packet(_ path: [UInt8], _ payload: [UInt8]) -> [UInt8] {
      Packet(
        route: .flood, type: .groupText, pathLength: PathLength(raw: UInt8(path.count)), path: path, payload: payload
      ).encode()
    }
    let payload = envelope.encode()
    #expect(echoes.heard(packet([], payload), now: now) == nil, "our own, as another gateway might hear it")
    #expect(echoes.heard(packet([0xAA], payload), now: now) == 5)
    #expect(echoes.heard(packet([0xBB, 0xAA], payload), now: now) == nil, "the same repeater again")
    #expect(echoes.heard(packet([0xAA, 0xCC], payload), now: now) == 5)
    #expect(echoes.heard(packet([0xAA], payload), now: now) == 5, "another repeater with the same hash")
    #expect(echoes.heard(packet([0xAA], payload), now: now) == nil, "a third one is played back")
    #expect(echoes.heard(packet([0xBB, 0xAA], payload), now: now) == nil)
    #expect(echoes.heard(packet([0xDD], payload.dropLast() + [0]), now: now) == nil)
    #expect(echoes.heard([1, 2, 3], now: now) == nil)
    #expect(echoes.heard(packet([0xDD], payload), now: now + .seconds(61)) == nil)
  }

  @Test func `a stray acknowledgement of pymc_core is read, and other data is not`() {
    #expect(AckInResponse.code(in: Hex.bytes("000393 02cb74".filter { $0 != " " }) ?? [])?.hex == "9302cb74")
    #expect(AckInResponse.code(in: [2, 0xAA, 0xBB, 3, 1, 2, 3, 4, 0, 0])?.hex == "01020304")
    #expect(AckInResponse.code(in: [0, 1, 1, 2, 3, 4]) == nil)
    #expect(AckInResponse.code(in: [0xFF, 3, 1, 2, 3, 4]) == nil)
    #expect(AckInResponse.code(in: []) == nil)
  }
}
