// SPDX-License-Identifier: MIT

import Companion
import Store
import Testing
import Timing

@testable import Sync

/// A class, because `#expect` calls nothing that mutates.
private final class Ear {
  private var copies = PacketCopies()
  var due: MonotonicTime? { copies.due }

  func hear(_ packet: Packet, at seconds: Double = 0) {
    copies.heard(
      packet, HeardCopy(packet, snr: SNR(quarters: 20), rssi: -90, at: Int64(seconds * 1000)), own: 0x11,
      now: MonotonicTime(seconds: seconds))
  }

  func claim(_ type: PayloadType, _ payload: [UInt8], now: MonotonicTime) -> Int? {
    copies.claim(type, payload, now: now)
  }

  func claim(_ message: ContactMessage, own: UInt8) -> Int? { copies.claim(message, own: own) }
  func copies(of serial: Int) -> [HeardCopy] { copies.copies(of: serial) }
  func stored(_ serial: Int, _ count: Int, as message: MessageNumber, now: MonotonicTime) {
    copies.stored(serial, count, as: message, now: now)
  }
  func expect(_ message: MessageNumber, _ type: PayloadType, _ payload: [UInt8], now: MonotonicTime) {
    copies.expect(message, type, payload, now: now)
  }
  func expect(sent id: Int64, to recipient: UInt8, bytes: Int, now: MonotonicTime) {
    copies.expect(sent: id, to: recipient, bytes: bytes, now: now)
  }
  func takeDue(now: MonotonicTime?) -> [PacketCopies.Due] { copies.takeDue(now: now) }
  func wasRead() { copies.wasRead() }
  func failed(_ due: PacketCopies.Due, now: MonotonicTime) { copies.failed(due, now: now) }
}

/// Which packets are copies of which message, with invented packets and time.
@Suite struct PacketCopiesTests {
  private static let (own, alder, snr): (UInt8, UInt8, SNR) = (0x11, 0x22, SNR(quarters: 20))
  private let sender = KeyPrefix(bytes: [0x22, 1, 2, 3, 4, 5])!

  private func at(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  private func packet(
    _ payload: [UInt8], _ type: PayloadType = .groupText, path: [UInt8] = [], width: Int = 1,
    route: Packet.Route = .flood
  ) -> Packet {
    Packet(
      route: route, type: type, pathLength: PathLength(raw: UInt8((width - 1) << 6 | path.count / width)), path: path,
      payload: payload)
  }

  /// A direct message for us, sealed in `blocks` blocks; `mark` makes it differ from others.
  private func direct(_ mark: UInt8, blocks: Int = 1, from: UInt8 = Self.alder, to: UInt8 = Self.own) -> [UInt8] {
    [to, from, mark, mark] + [UInt8](repeating: mark, count: 16 * blocks)
  }

  private func message(_ text: Text, hops: UInt8 = 1, snr: SNR? = Self.snr) -> ContactMessage {
    ContactMessage(snr: snr, sender: sender, path: ReceivedPath(raw: hops), senderTime: 7, text: text)
  }

  @Test(arguments: [1, 2, 3]) func `copies of a channel message before and after it, of each width`(width: Int) throws {
    let copies = Ear()
    let path = Array([0xA1, 0xB2, 0xC3, 0xA4, 0xB5, 0xC6].prefix(2 * width)) as [UInt8]
    copies.hear(packet([5, 1, 2, 3], path: path, width: width))
    copies.hear(packet([5, 1, 2, 4], path: path, width: width))
    let serial = try #require(copies.claim(.groupText, [5, 1, 2, 3], now: at(1)))
    #expect(copies.claim(.groupText, [5, 1, 2, 3], now: at(1)) == nil, "it has a message")
    #expect(copies.copies(of: serial).map(\.hashes) == [[Array(path.prefix(width)), Array(path.suffix(width))]])
    #expect(copies.due == nil, "the message is not on disk")
    copies.stored(serial, 1, as: .received(9), now: at(1))
    copies.hear(packet([5, 1, 2, 3], path: [0xD7] + path), at: 60)
    #expect(copies.due == at(66))
    #expect(copies.takeDue(now: at(65)) == [])
    let due = copies.takeDue(now: at(66))
    #expect(due.map(\.message) == [.received(9)] && due.first?.copies.count == 1, "the first was kept with it")
    #expect(copies.due == nil && copies.takeDue(now: at(99)) == [])
    // The disk has refused them.
    copies.failed(try #require(due.first), now: at(70))
    #expect(copies.takeDue(now: at(129)) == [] && copies.takeDue(now: at(130)) == due)
  }

  @Test func `another payload, type or MAC is no copy, and the ninth copy is not kept`() throws {
    let copies = Ear()
    copies.hear(packet([5, 0xAA, 0xBB, 3]))
    for other in [[5, 0xAA, 0xBC, 3], [6, 0xAA, 0xBB, 3], [5, 0xAA, 0xBB, 3, 0]] as [[UInt8]] {
      copies.hear(packet(other))
    }
    copies.hear(packet([5, 0xAA, 0xBB, 3], .groupData))
    copies.hear(packet([5, 0xAA, 0xBB, 3], .advert))
    let serial = try #require(copies.claim(.groupText, [5, 0xAA, 0xBB, 3], now: at(0)))
    #expect(copies.copies(of: serial).count == 1)
    for number in 1...20 as ClosedRange<UInt8> { copies.hear(packet([5, 0xAA, 0xBB, 3], path: [number])) }
    #expect(copies.copies(of: serial).map(\.path) == [[]] + (1...7).map { [$0] })
  }

  @Test func `a direct message is a guess by both ends, size, way and signal, in the order of the radio`() throws {
    let copies = Ear()
    copies.hear(packet(direct(1), .text, path: [0xA1]))
    copies.wasRead()
    copies.hear(packet(direct(1), .text, path: [0xB1, 0xA2]))
    copies.hear(packet(direct(2), .text, path: [0xA1]))
    copies.wasRead()
    copies.hear(packet(direct(3, from: 0x33), .text, path: [0xA1]))
    copies.hear(packet(direct(4, to: 0x44), .text, path: [0xA1]))
    #expect(copies.claim(message("hello", hops: 3), own: Self.own) == nil, "it came another way")
    #expect(copies.claim(message("hello", snr: SNR(quarters: 21)), own: Self.own) == nil)
    #expect(copies.claim(message("a text that needs two blocks"), own: Self.own) == nil)
    #expect(copies.claim(message("hello"), own: 0x12) == nil)
    let first = try #require(copies.claim(message("hello"), own: Self.own))
    #expect(copies.copies(of: first).map(\.path) == [[0xA1], [0xB1, 0xA2]])
    #expect(copies.copies(of: first).allSatisfy { $0.isGuess })
    let second = try #require(copies.claim(message("hi"), own: Self.own))
    #expect(copies.copies(of: second).count == 1 && second != first)
    #expect(copies.claim(message("hey"), own: Self.own) == nil)
  }

  @Test(arguments: [true, false]) func `a packet for another node with the same hash is not taken`(isTold: Bool) throws
  {
    let copies = Ear()
    for number in 1...3 as ClosedRange<UInt8> {
      copies.hear(packet(direct(10 * number), .text, path: [0xEE]))
      copies.hear(packet(direct(number), .text, path: [0xA1]))
      if isTold { copies.wasRead() }
      let serial = try #require(copies.claim(message("hello"), own: Self.own))
      #expect(copies.copies(of: serial).map(\.path) == [[0xA1]])
    }
  }

  @Test func `a routed message is recognised by its last hop`() throws {
    let copies = Ear()
    copies.hear(packet(direct(1), .text, path: [0xA1, 0xB1], route: .direct))
    #expect(copies.claim(message("hello", hops: 0xFF), own: Self.own) == nil)
    copies.hear(packet(direct(1), .text, route: .direct))
    let serial = try #require(copies.claim(message("hello", hops: 0xFF), own: Self.own))
    #expect(copies.copies(of: serial).count == 2)
  }

  @Test func `repeats of our messages, and none that two of them may be`() {
    let copies = Ear()
    copies.expect(.sent(3), .groupText, [5, 1, 2, 3], now: at(0))
    copies.hear(packet([5, 1, 2, 3]))
    #expect(copies.due == nil, "our own transmission, played back")
    copies.hear(packet([5, 1, 2, 3], path: [0xA1]), at: 1)
    copies.expect(sent: 4, to: Self.alder, bytes: 5, now: at(1))
    copies.hear(packet(direct(1, from: Self.own, to: Self.alder), .text, path: [0xA1]), at: 2)
    copies.hear(packet(direct(2, blocks: 2, from: Self.own, to: Self.alder), .text, path: [0xA1]), at: 2)
    let due = copies.takeDue(now: nil)
    #expect(due.map(\.message) == [.sent(3), .sent(4)] && due.map { $0.copies.map(\.isGuess) } == [[false], [true]])
    copies.expect(sent: 5, to: Self.alder, bytes: 6, now: at(3))
    copies.hear(packet(direct(7, from: Self.own, to: Self.alder), .text, path: [0xA1]), at: 4)
    #expect(copies.takeDue(now: nil) == [], "both fit")
    copies.hear(packet(direct(8, from: Self.own, to: Self.alder), .text, path: [0xA1]), at: 99)
    #expect(copies.takeDue(now: nil) == [], "too late")
  }

  @Test func `memory is bounded, and what a message waits for is not forgotten`() throws {
    let copies = Ear()
    copies.hear(packet([5, 0, 0, 1]))
    let serial = try #require(copies.claim(.groupText, [5, 0, 0, 1], now: at(0)))
    for number in 0..<1000 {
      copies.hear(packet([6, UInt8(number >> 8), UInt8(number & 255)]), at: Double(number) / 100)
    }
    #expect(copies.copies(of: serial).count == 1)
    #expect(copies.claim(.groupText, [6, 0, 1], now: at(10)).map { copies.copies(of: $0) } == [])
    #expect(copies.claim(.groupText, [6, 3, 0xE7], now: at(10)).map { copies.copies(of: $0).count } == 1)
    copies.hear(packet([7]), at: 500)
    let late = copies.claim(.groupText, [6, 3, 0xE6], now: at(500))
    #expect(late.map { copies.copies(of: $0) } == [], "two minutes are over")

    // Many messages of which more than eight copies came: the rest is only counted, and new messages have room.
    for number in 0..<200 as Range<UInt8> {
      let (payload, now) = ([8, number], 600 + Double(number))
      for _ in 0..<8 { copies.hear(packet(payload), at: now) }
      let serial = try #require(copies.claim(.groupText, payload, now: at(now)), "message \(number)")
      copies.stored(serial, 8, as: .received(Int64(number)), now: at(now))
      _ = copies.takeDue(now: nil)
      for _ in 0..<2 { copies.hear(packet(payload), at: now) }
    }
  }

  @Test func `copies for which there is no room are counted, and playing them back costs few writes`() throws {
    let copies = Ear()
    let serial = try #require(copies.claim(.groupText, [5, 1, 2, 3], now: at(0)))
    for number in 0..<10 as Range<UInt8> { copies.hear(packet([5, 1, 2, 3], path: [number]), at: 1) }
    copies.stored(serial, 8, as: .received(9), now: at(1))
    #expect(copies.takeDue(now: at(7)).map(\.more) == [2])
    var written = 0
    for second in 10..<2000 {
      copies.hear(packet([5, 1, 2, 3], path: [1]), at: Double(second))
      for due in copies.takeDue(now: at(Double(second))) {
        written += 1
        #expect(due.copies.isEmpty && due.more > 0)
      }
    }
    #expect(written <= 5, "it counts to 255")
    #expect(copies.due == nil)
  }

  @Test func `a copy that comes an hour late is recognised, and after more messages it is not`() throws {
    let copies = Ear()
    let serial = try #require(copies.claim(.groupText, [5, 1, 2, 3], now: at(0)))
    copies.hear(packet([5, 1, 2, 3], path: [1]), at: 1)
    copies.stored(serial, 1, as: .received(9), now: at(1))
    _ = copies.takeDue(now: at(8))
    // The payload leaves the memory, as others come.
    for number in 0..<200 { copies.hear(packet([6, UInt8(number)]), at: 200 + Double(number)) }
    copies.hear(packet([5, 1, 2, 3], path: [2]), at: 3000)
    copies.hear(packet([5, 1, 2, 4], path: [2]), at: 3000)
    let due = copies.takeDue(now: at(3007))
    #expect(due.map(\.message) == [.received(9)] && due.first?.copies.map(\.path) == [[2]])
    for number in 0..<8 as Range<UInt8> { copies.hear(packet([5, 1, 2, 3], path: [number]), at: 3010) }
    let full = copies.takeDue(now: at(3017))
    #expect(full.first?.copies.count == 6 && full.first?.more == 2, "8 with those before")
    copies.hear(packet([7]), at: 3400)
    copies.hear(packet([5, 1, 2, 3], path: [3]), at: 7200)
    #expect(copies.takeDue(now: nil) == [], "an hour is over")
  }
}
