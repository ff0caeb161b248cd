// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import TestSupport
import Testing
import Timing

@testable import MQTT

@Suite struct MQTTCodecTests {
  private func events(_ bytes: [UInt8], _ version: MQTTVersion = .v5) throws -> [MQTTEvent] {
    var decoder = MQTTDecoder(version)
    var events: [MQTTEvent] = []
    // Byte by byte: however it is cut, it reads the same.
    for byte in bytes {
      decoder.append([byte])
      while let event = try decoder.next() { events.append(event) }
    }
    return events
  }

  @Test func `what we send is as the standard has it`() {
    let options = MQTTOptions(clientID: "c", user: "u", password: [0x70], keepAlive: 60, sessionExpiry: 1)
    let hello = MQTTCommand.connect(options, .v3).encode()
    #expect(hello == [0x10, 19, 0, 4, 0x4D, 0x51, 0x54, 0x54, 4, 0xC0, 0, 60, 0, 1, 0x63, 0, 1, 0x75, 0, 1, 0x70])
    let five = MQTTCommand.connect(options, .v5).encode()
    #expect(five.count == hello.count + 14 && five[8] == 5, "properties: session expiry, receive maximum, packet size")
    let message = MQTTMessage(topic: "a/b", payload: [1, 2], retain: true)
    #expect(
      MQTTCommand.publish(message, id: 258, isRepeated: false, .v3).encode()
        == [0x33, 9, 0, 3, 0x61, 0x2F, 0x62, 1, 2, 1, 2])
    #expect(MQTTCommand.publish(message, id: 1, isRepeated: true, .v5).encode().prefix(2) == [0x3B, 10])
    #expect(MQTTCommand.length(127) == [127] && MQTTCommand.length(128) == [0x80, 1])
    #expect(MQTTCommand.length(16_384) == [0x80, 0x80, 1])
  }

  @Test func `what a broker says reads, whole or in pieces`() throws {
    let bytes: [UInt8] =
      [0x20, 6, 0, 0, 3, 0x21, 0, 20] + [0x40, 2, 0, 7] + [0x40, 4, 0, 8, 0x87, 0] + [0xD0, 0] + [0xE0, 1, 0x8B]
    #expect(
      try events(bytes) == [
        .connected(code: 0, hasSession: false, receiveMaximum: 20, keepAlive: nil, mostBytes: nil),
        .acknowledged(id: 7, code: 0), .acknowledged(id: 8, code: 0x87), .pong, .disconnected(code: 0x8B),
      ])
    #expect(
      try events([0x20, 2, 1, 5], .v3) == [
        .connected(code: 5, hasSession: true, receiveMaximum: 65535, keepAlive: nil, mostBytes: nil)
      ])
    let command: [UInt8] = [0x32, 16, 0, 1, 0x74, 0, 9, 8, 0x08, 0, 1, 0x72, 0x09, 0, 1, 0xFF, 0x68, 0x69]
    #expect(
      try events(command) == [
        .message(
          MQTTMessage(topic: "t", payload: [0x68, 0x69], responseTopic: "r", correlation: [0xFF]), id: 9)
      ])
  }

  @Test func `mutated packets never trap, and nothing grows without bound`() {
    var random = SeededRandom(seed: 5)
    let corpus: [[UInt8]] = [
      [0x20, 6, 0, 0, 3, 0x21, 0, 20], [0x40, 4, 0, 8, 0x87, 0], [0x90, 4, 0, 1, 0, 1], [0xE0, 1, 0x8B],
      [0x32, 16, 0, 1, 0x74, 0, 9, 8, 0x08, 0, 1, 0x72, 0x09, 0, 1, 0xFF, 0x68, 0x69],
    ]
    var refused = 0
    for round in 0..<200_000 {
      var bytes = corpus[round % corpus.count]
      for _ in 0..<Int.random(in: 0...3, using: &random) {
        let place = Int.random(in: 0..<bytes.count, using: &random)
        switch Int.random(in: 0...2, using: &random) {
        case 0: bytes[place] = UInt8.random(in: 0...255, using: &random)
        case 1: bytes.insert(UInt8.random(in: 0...255, using: &random), at: place)
        default: if bytes.count > 1 { bytes.remove(at: place) }
        }
      }
      var decoder = MQTTDecoder(round % 2 == 0 ? .v5 : .v3)
      decoder.append(bytes)
      do {
        while try decoder.next() != nil {}
      } catch {
        refused += 1
      }
    }
    #expect(refused > 1000)
    var decoder = MQTTDecoder(.v5)
    decoder.append([0x20, 0xFF, 0xFF, 0xFF, 0x7F])
    #expect(throws: MQTTError.self) { try decoder.next() }
  }

  @Test func `a message that is too large is skipped, and can be acknowledged`() throws {
    let payload = [UInt8](repeating: 0x78, count: 200_000)
    let large = MQTTCommand.publish(MQTTMessage(topic: "t", payload: payload), id: 77, isRepeated: false, .v3).encode()
    var decoder = MQTTDecoder(.v3)
    var events: [MQTTEvent] = []
    for start in stride(from: 0, to: large.count, by: 1000) {
      decoder.append(Array(large[start..<min(start + 1000, large.count)]))
      while let event = try decoder.next() { events.append(event) }
    }
    decoder.append([0xD0, 0])
    while let event = try decoder.next() { events.append(event) }
    #expect(events == [.message(MQTTMessage(topic: "t", payload: []), id: 77), .pong])
  }
}

/// A broker that answers from a list.
private final class ScriptedBroker {
  let port: UInt16
  private let listener: Int32
  private let loop: EventLoop
  private var client: Int32 = -1
  /// First bytes of what each connection began with: the version stands at 8.
  private(set) var hellos: [[UInt8]] = []
  var answers: [[UInt8]]

  init(on loop: EventLoop, answers: [[UInt8]]) throws {
    self.loop = loop
    self.answers = answers
    (listener, port) = try LoopbackSocket.listen(on: 0)
    loop.watch(listener, for: .readable) { [unowned self] _ in self.accept() }
  }

  deinit {
    loop.unwatch(listener)
    close(listener)
  }

  private func accept() {
    let socket = Glibc.accept(listener, nil, nil)
    guard socket >= 0 else { return }
    Descriptor.setNonBlocking(socket)
    loop.watch(socket, for: .readable) { [unowned self] _ in
      guard case .bytes(let bytes) = Descriptor.read(socket) else {
        self.loop.unwatch(socket)
        close(socket)
        return
      }
      if bytes.first == 0x10 { self.hellos.append(bytes) }
      guard !self.answers.isEmpty else { return }
      let answer = self.answers.removeFirst()
      _ = Glibc.write(socket, answer, answer.count)
    }
  }
}

@Suite struct MQTTClientTests {
  private func run(_ loop: EventLoop, _ condition: () -> Bool) throws {
    let isSo = turn(loop, until: condition)
    try #require(isSo, "waited in vain")
  }

  @Test(arguments: [[UInt8](arrayLiteral: 0x20, 2, 0, 1), [0x20, 3, 0, 0x84, 0]])
  func `a broker that does not know version 5 is spoken to in 3.1.1`(_ refusal: [UInt8]) throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(on: loop, answers: [refusal, [0x20, 2, 0, 0]])
    let client = MQTTClient(host: "127.0.0.1", port: broker.port, tls: nil, on: loop)
    client.connect(MQTTOptions(clientID: "c"))
    try run(loop) { client.isUp }
    #expect(broker.hellos.map { $0[8] } == [5, 4])
    client.close()
  }

  @Test func `a refusal says why, and garbage ends the connection`() throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 3, 0, 0x86, 0], [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]])
    let client = MQTTClient(host: "127.0.0.1", port: broker.port, tls: nil, on: loop)
    var failures: [MQTTFailure] = []
    client.onDown = { failures.append($0) }
    client.connect(MQTTOptions(clientID: "c"))
    try run(loop) { failures.count == 1 }
    #expect(failures[0] == .refused("the broker refuses: user or password is wrong"))
    client.connect(MQTTOptions(clientID: "c"))
    try run(loop) { failures.count == 2 }
    #expect(failures[1].description.contains("no MQTT"))
  }
}
