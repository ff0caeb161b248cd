// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import LoopTestSupport
import Testing
import Timing

@testable import MQTT

@Suite struct MQTTCodecTests {
  private func events(_ bytes: [UInt8], _ version: MQTTVersion = .v5) throws -> [MQTTEvent] {
    var decoder = MQTTDecoder(version)
    var events: [MQTTEvent] = []
    // Byte by byte: the result does not depend on the pieces.
    for byte in bytes {
      decoder.append([byte])
      while let event = try decoder.next() { events.append(event) }
    }
    return events
  }

  @Test func `packets are encoded as the standard defines`() {
    let options = MQTTOptions(clientID: "c", user: "u", password: [0x70], keepAlive: 60, sessionExpiry: 1)
    let hello = MQTTCommand.connect(options, .v3).encode()
    #expect(hello == [0x10, 19, 0, 4, 0x4D, 0x51, 0x54, 0x54, 4, 0xC0, 0, 60, 0, 1, 0x63, 0, 1, 0x75, 0, 1, 0x70])
    let five = MQTTCommand.connect(options, .v5).encode()
    #expect(five.count == hello.count + 14 && five[8] == 5, "properties: session expiry, receive maximum, packet size")
    let secret = MQTTOptions(clientID: "c", password: [0x70])
    let (empty, none) = (MQTTCommand.connect(secret, .v3).encode(), MQTTCommand.connect(secret, .v5).encode())
    #expect(empty[9] == 0xC0 && empty.suffix(5) == [0, 0, 0, 1, 0x70], "3.1.1 has no password without a user")
    #expect(none[9] == 0x40)
    let message = MQTTMessage(topic: "a/b", payload: [1, 2], retain: true)
    #expect(
      MQTTCommand.publish(message, id: 258, .v3).encode()
        == [0x33, 9, 0, 3, 0x61, 0x2F, 0x62, 1, 2, 1, 2])
    #expect(MQTTCommand.publish(message, id: 1, .v5).encode().prefix(2) == [0x33, 10])
    let subscription = MQTTCommand.subscribe(topic: "t", id: 1, .v5, isOthers: true).encode()
    #expect(subscription.last == 0x05, "QoS 1, No Local")
    #expect(MQTTCommand.subscribe(topic: "t", id: 1, .v3, isOthers: true).encode().last == 1)
    let end = [MQTTVersion.v5, .v3].map { MQTTCommand.unsubscribe(topic: "t", id: 1, $0).encode() }
    #expect(end == [[0xA2, 6, 0, 1, 0, 0, 1, 0x74], [0xA2, 5, 0, 1, 0, 1, 0x74]])
    #expect(MQTTCommand.length(127) == [127] && MQTTCommand.length(128) == [0x80, 1])
    #expect(MQTTCommand.length(16_384) == [0x80, 0x80, 1])
  }

  @Test func `packets of a broker are decoded, whole or in pieces`() throws {
    let bytes: [UInt8] =
      [0x20, 6, 0, 0, 3, 0x21, 0, 20] + [0x40, 2, 0, 7] + [0x40, 4, 0, 8, 0x87, 0] + [0xD0, 0] + [0xE0, 1, 0x8B]
    #expect(
      try events(bytes) == [
        .connected(MQTTGreeting(code: 0, receiveMaximum: 20, sharesSubscriptions: true)),
        .acknowledged(id: 7, code: 0, reason: nil),
        .acknowledged(id: 8, code: 0x87, reason: nil), .pong, .disconnected(code: 0x8B, reason: nil, server: nil),
      ])
    #expect(try events([0xB0, 4, 0, 7, 0, 0x11]) == [.unsubscribed(id: 7)])
    #expect(try events([0xB0, 2, 0, 7], .v3) == [.unsubscribed(id: 7)])
    #expect(
      try events([0x20, 2, 1, 0], .v3) == [.connected(MQTTGreeting(code: 0, hasSession: true))])
    let command: [UInt8] = [0x32, 16, 0, 1, 0x74, 0, 9, 8, 0x08, 0, 1, 0x72, 0x09, 0, 1, 0xFF, 0x68, 0x69]
    #expect(
      try events(command) == [
        .message(
          MQTTMessage(topic: "t", payload: [0x68, 0x69], responseTopic: "r", correlation: [0xFF]), id: 9,
          isRepeated: false)
      ])
  }

  @Test func `the capabilities and reasons that a broker reports are decoded`() throws {
    let properties: [UInt8] =
      [0x24, 0, 0x25, 0, 0x27, 0, 0, 1, 0, 0x13, 0, 9, 0x22, 0, 5, 0x28, 0, 0x29, 0, 0x2A, 0] + [0x12, 0, 1, 0x61]
      + [0x1F, 0, 2, 0x68, 0x69] + [0x1C, 0, 1, 0x73] + [0x26, 0, 1, 0x61, 0, 1, 0x62, 0x26, 0, 1, 0x61, 0, 1, 0x62]
    let bytes: [UInt8] = [0x20, UInt8(properties.count + 3), 0, 0x9C, UInt8(properties.count)] + properties
    #expect(
      try events(bytes) == [
        .connected(
          MQTTGreeting(
            code: 0x9C, topicAliases: 5, keepAlive: 9, maxBytes: 256, takesQuality1: false, retains: false,
            sharesSubscriptions: false, clientID: "a", reason: "hi", server: "s"))
      ])
    #expect(MQTTReason.words(0x9C, "hi", server: "s") == "another server is to be used for now: hi; it names s")
    #expect(
      try events([0x40, 9, 0, 8, 0x99, 5, 0x1F, 0, 2, 0x68, 0x69]) == [.acknowledged(id: 8, code: 0x99, reason: "hi")])
    #expect(
      try events([0xE0, 10, 0x9D, 8, 0x1C, 0, 1, 0x73, 0x1F, 0, 1, 0x68]) == [
        .disconnected(code: 0x9D, reason: "h", server: "s")
      ])
  }

  /// Violations of the protocol by a broker: version, bytes.
  private static let breaches: [(String, MQTTVersion, [UInt8])] = [
    ("reserved flags of a greeting", .v5, [0x21, 3, 0, 0, 0]), ("of an acknowledgement", .v3, [0x41, 2, 0, 1]),
    ("of a pong", .v3, [0xD2, 0]), ("of a goodbye", .v5, [0xE1, 0]), ("of a subscription", .v3, [0x92, 3, 0, 1, 1]),
    ("QoS 3", .v5, [0x36, 6, 0, 1, 0x74, 0, 1, 0]), ("QoS 2", .v5, [0x34, 6, 0, 1, 0x74, 0, 1, 0]),
    ("repeated, of QoS 0", .v3, [0x38, 3, 0, 1, 0x74]), ("identifier 0", .v3, [0x32, 5, 0, 1, 0x74, 0, 0]),
    ("an acknowledgement of 0", .v3, [0x40, 2, 0, 0]), ("greeting's flags", .v5, [0x20, 3, 2, 0, 0]),
    ("a refusal with a session", .v5, [0x20, 3, 1, 0x87, 0]), ("a greeting too long", .v3, [0x20, 3, 0, 0, 0]),
    ("a greeting too short", .v3, [0x20, 1, 0]), ("a pong with content", .v3, [0xD0, 1, 0]),
    ("an acknowledgement too long", .v3, [0x40, 3, 0, 1, 0]), ("no UTF-8", .v3, [0x30, 4, 0, 2, 0xC3, 0x28]),
    ("a surrogate", .v3, [0x30, 5, 0, 3, 0xED, 0xA0, 0x80]), ("a NUL in a topic", .v3, [0x30, 3, 0, 1, 0]),
    ("a wildcard", .v3, [0x30, 3, 0, 1, 0x23]), ("an empty topic", .v5, [0x30, 3, 0, 0, 0]),
    ("a topic alias", .v5, [0x30, 7, 0, 1, 0x74, 3, 0x23, 0, 1]),
    ("a property twice", .v5, [0x20, 7, 0, 0, 4, 0x24, 1, 0x24, 1]),
    ("a property of another packet", .v5, [0x40, 6, 0, 1, 0, 2, 0x24, 1]),
    ("QoS 2 as a flag", .v5, [0x20, 5, 0, 0, 2, 0x24, 2]),
    ("receive maximum 0", .v5, [0x20, 6, 0, 0, 3, 0x21, 0, 0]),
    ("no packet at all", .v5, [0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 0]),
    ("properties longer than the packet", .v5, [0x20, 3, 0, 0, 9]),
    ("an unknown property", .v5, [0x20, 5, 0, 0, 2, 0x7F, 1]),
    ("a long length", .v5, [0x20, 0x83, 0x00, 0, 0, 0]),
    ("a length without end", .v5, [0x20, 0x80, 0x80, 0x80, 0x80, 1]),
    ("a long number", .v5, [0x20, 4, 0, 0, 0x80, 0x00]), ("a goodbye in 3.1.1", .v3, [0xE0, 0]),
    ("connect", .v5, [0x10, 0]), ("subscribe", .v5, [0x80, 0]), ("ping", .v5, [0xC0, 0]), ("auth", .v5, [0xF0, 0]),
    ("the end of a subscription without a code", .v5, [0xB0, 3, 0, 1, 0]),
    ("the same with one", .v3, [0xB0, 3, 0, 1, 0]), ("received", .v5, [0x50, 2, 0, 1]), ("type 0", .v5, [0, 0]),
    ("a subscription's code", .v3, [0x90, 3, 0, 1, 3]), ("two codes", .v3, [0x90, 4, 0, 1, 1, 1]),
    ("a large packet in 5", .v5, [0x30, 0xFF, 0xFF, 0x7F]),
  ]

  @Test func `a packet that a broker must not send is an error`() {
    for (what, version, bytes) in Self.breaches {
      #expect(throws: MQTTError.self, "\(what)") { try events(bytes, version) }
    }
  }

  @Test func `mutated packets never trap, and memory stays bounded`() {
    var random = SeededRandom(seed: 5)
    let corpus: [[UInt8]] = [
      [0x20, 6, 0, 0, 3, 0x21, 0, 20], [0x40, 4, 0, 8, 0x87, 0], [0x90, 4, 0, 1, 0, 1], [0xE0, 1, 0x8B],
      [0xB0, 4, 0, 1, 0, 0x11],
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

  @Test func `a message that is too large is skipped, and can still be acknowledged`() throws {
    let payload = [UInt8](repeating: 0x78, count: 200_000)
    let large = MQTTCommand.publish(MQTTMessage(topic: "t", payload: payload), id: 77, .v3).encode()
    var decoder = MQTTDecoder(.v3)
    var events: [MQTTEvent] = []
    for start in stride(from: 0, to: large.count, by: 1000) {
      decoder.append(Array(large[start..<min(start + 1000, large.count)]))
      while let event = try decoder.next() { events.append(event) }
    }
    decoder.append([0xD0, 0])
    while let event = try decoder.next() { events.append(event) }
    #expect(events == [.message(MQTTMessage(topic: "t", payload: []), id: 77, isRepeated: false), .pong])
  }
}

/// A broker that answers each packet, and each new connection, with the next entry of a list.
final class ScriptedBroker {
  enum Answer { case bytes([UInt8]), silence, hangUp }

  let port: UInt16
  private let listener: Int32
  private let loop: EventLoop
  private var client: Int32 = -1
  /// The first bytes of each connection; the version is at offset 8.
  private(set) var hellos: [[UInt8]] = []
  /// All other received bytes.
  private(set) var received: [[UInt8]] = []
  private(set) var ends = 0
  var answers: [Answer]
  /// It does not read.
  var isDeaf = false {
    didSet { loop.changeInterest(client, to: isDeaf ? [] : .readable) }
  }

  init(on loop: EventLoop, _ answers: [Answer]) throws {
    self.loop = loop
    self.answers = answers
    (listener, port) = try LoopbackSocket.listen(on: 0)
    loop.watch(listener, for: .readable) { [unowned self] _ in self.accept() }
  }

  convenience init(on loop: EventLoop, answers: [[UInt8]]) throws {
    try self.init(on: loop, answers.map { .bytes($0) })
  }

  deinit {
    loop.unwatch(listener)
    close(listener)
  }

  func say(_ bytes: [UInt8]) { _ = Glibc.write(client, bytes, bytes.count) }

  private func end(_ socket: Int32) {
    ends += 1
    loop.unwatch(socket)
    close(socket)
  }

  private func accept() {
    let socket = Glibc.accept(listener, nil, nil)
    guard socket >= 0 else { return }
    client = socket
    Descriptor.setNonBlocking(socket)
    loop.watch(socket, for: .readable) { [unowned self] _ in
      guard case .bytes(let bytes) = Descriptor.read(socket) else { return self.end(socket) }
      if bytes.first == 0x10 { self.hellos.append(bytes) } else { self.received.append(bytes) }
      // A DISCONNECT gets no answer.
      guard bytes.first != 0xE0, !self.answers.isEmpty else { return }
      switch self.answers.removeFirst() {
      case .bytes(let answer): _ = Glibc.write(socket, answer, answer.count)
      case .silence: break
      case .hangUp: self.end(socket)
      }
    }
  }
}

@Suite struct MQTTClientTests {
  /// Connects, and keeps the connection until it ends.
  private func begin(
    _ client: MQTTClient, _ options: MQTTOptions, _ loop: EventLoop, failed: @escaping (MQTTFailure) -> Void = { _ in }
  ) {
    _ = loop.begin {
      do throws(MQTTFailure) {
        try await client.connect(options)
        try await client.run()
      } catch {
        failed(error)
      }
    }
  }

  private func run(_ loop: EventLoop, _ condition: () -> Bool) throws {
    let isSo = turn(loop, until: condition)
    try #require(isSo, "waited in vain")
  }

  @Test(arguments: [[UInt8](arrayLiteral: 0x20, 2, 0, 1), [0x20, 3, 0, 0x84, 0]])
  func `the client speaks 3.1.1 with a broker that does not know version 5`(_ refusal: [UInt8]) throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(on: loop, answers: [refusal, [0x20, 2, 0, 0]])
    let client = MQTTClient(host: "127.0.0.1", port: broker.port, tls: nil, on: loop)
    begin(client, MQTTOptions(clientID: "c"), loop)
    try run(loop) { client.isUp }
    #expect(broker.hellos.map { $0[8] } == [5, 4])
    client.close()
  }

  @Test func `a refusal has its reason, and garbage ends the connection`() throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 3, 0, 0x86, 0], [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]])
    let client = MQTTClient(host: "127.0.0.1", port: broker.port, tls: nil, on: loop)
    var failures: [MQTTFailure] = []
    begin(client, MQTTOptions(clientID: "c"), loop) { failures.append($0) }
    try run(loop) { failures.count == 1 }
    #expect(failures[0] == .refused("the broker refuses: user or password is wrong"))
    begin(client, MQTTOptions(clientID: "c"), loop) { failures.append($0) }
    try run(loop) { failures.count == 2 }
    #expect(failures[1].description.contains("not MQTT"))
  }

  private func client(
    _ broker: ScriptedBroker, _ loop: EventLoop, version: MQTTVersion? = nil, guess: Duration = .milliseconds(200)
  ) -> MQTTClient {
    let client = MQTTClient(host: "127.0.0.1", port: broker.port, tls: nil, version: version, on: loop)
    client.session.guessPatience = guess
    return client
  }

  @Test(arguments: [true, false])
  func `the client speaks 3.1.1 from then on with a broker that does not answer version 5`(_ isSilent: Bool)
    throws
  {
    let loop = EventLoop()
    let taken: [UInt8] = [0x20, 2, 0, 0]
    let broker = try ScriptedBroker(on: loop, [isSilent ? .silence : .hangUp, .bytes(taken), .bytes(taken)])
    let client = client(broker, loop)
    begin(client, MQTTOptions(clientID: "c"), loop)
    try run(loop) { client.isUp }
    #expect(broker.hellos.map { $0[8] } == [5, 4])
    client.close()
    begin(client, MQTTOptions(clientID: "c"), loop)
    try run(loop) { client.isUp }
    #expect(broker.hellos.map { $0[8] } == [5, 4, 4])
    client.close()
  }

  @Test func `a configured version is the only one that is tried`() throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(on: loop, [.bytes([0x20, 2, 0, 0]), .bytes([0x20, 3, 0, 0x84, 0]), .hangUp])
    let old = client(broker, loop, version: .v3)
    begin(old, MQTTOptions(clientID: "c"), loop)
    try run(loop) { old.isUp }
    old.close()
    var failures: [MQTTFailure] = []
    let new = client(broker, loop, version: .v5)
    begin(new, MQTTOptions(clientID: "c"), loop) { failures.append($0) }
    try run(loop) { failures.count == 1 }
    #expect(failures[0] == .refused("the broker refuses: unsupported MQTT version"))
    begin(new, MQTTOptions(clientID: "c"), loop) { failures.append($0) }
    try run(loop) { failures.count == 2 }
    #expect(broker.hellos.map { $0[8] } == [4, 5, 5])
  }

  /// Violations of a broker after its greeting, and the reason code of a version 5 client's DISCONNECT.
  private static let breaches: [(String, [UInt8], UInt8)] = [
    ("a second greeting", [0x20, 3, 0, 0, 0], 0x82),
    ("an answer without a subscription", [0x90, 4, 0, 9, 0, 1], 0x82),
    ("the end of no subscription", [0xB0, 4, 0, 9, 0, 0], 0x82),
    ("bad UTF-8", [0x30, 5, 0, 2, 0xC3, 0x28, 0], 0x81),
    ("one identifier twice", [0x32, 6, 0, 1, 0x74, 0, 9, 0, 0x32, 6, 0, 1, 0x74, 0, 9, 0], 0x91),
    ("a topic alias", [0x30, 7, 0, 1, 0x74, 3, 0x23, 0, 1], 0x94), ("too large", [0x30, 0xFF, 0xFF, 0x7F], 0x95),
  ]

  @Test func `a breach of the protocol ends the connection, and the broker gets the reason`() throws {
    for (what, bytes, code) in Self.breaches {
      let loop = EventLoop()
      let broker = try ScriptedBroker(on: loop, answers: [[0x20, 3, 0, 0, 0]])
      let client = client(broker, loop)
      var failures: [MQTTFailure] = []
      client.onMessage = { _, _ in }  // and does not acknowledge
      begin(client, MQTTOptions(clientID: "c", keepAlive: 0), loop) { failures.append($0) }
      try run(loop) { client.isUp }
      broker.say(bytes)
      try run(loop) { failures.count == 1 && broker.ends == 1 }
      #expect(failures.first?.description.contains("not MQTT") == true, "\(what)")
      #expect(broker.received.flatMap(\.self) == [0xE0, 1, code], "\(what)")
    }
  }

  @Test func `a repeated message that is still being handled is delivered once`() throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 2, 0, 0]])
    let client = client(broker, loop, version: .v3)
    var acknowledge: [() -> Void] = []
    client.onMessage = { _, done in acknowledge.append(done) }
    begin(client, MQTTOptions(clientID: "c", keepAlive: 0), loop)
    try run(loop) { client.isUp }
    broker.say([0x32, 5, 0, 1, 0x74, 0, 9, 0x3A, 5, 0, 1, 0x74, 0, 9, 0x32, 5, 0, 1, 0x74, 0, 10])
    try run(loop) { acknowledge.count == 2 }
    acknowledge.forEach { $0() }
    acknowledge.forEach { $0() }
    try run(loop) { broker.received.flatMap(\.self).count >= 8 }
    #expect(broker.received.flatMap(\.self) == [0x40, 2, 0, 9, 0x40, 2, 0, 10], "each once")
    #expect(client.isUp)
    client.close()
  }

  @Test func `a broker without retention gets no retained message, and one with only QoS 0 is not used`() throws {
    let loop = EventLoop()
    let will = MQTTMessage(topic: "w", payload: [], retain: true)
    // The broker first refuses the will, then accepts the connection.
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 3, 0, 0x9A, 0], [0x20, 5, 0, 0, 2, 0x25, 0]])
    let client = client(broker, loop)
    begin(client, MQTTOptions(clientID: "c", keepAlive: 0, will: will), loop)
    try run(loop) { client.isUp }
    #expect(broker.hellos.map { $0[9] & 0x20 } == [0x20, 0])
    _ = client.publish(MQTTMessage(topic: "t", payload: [], retain: true))
    try run(loop) { !broker.received.isEmpty }
    #expect(broker.received.first?.first == 0x32)
    client.close()

    let weak = try ScriptedBroker(on: loop, answers: [[0x20, 5, 0, 0, 2, 0x24, 0], [0x20, 3, 0, 0x9B, 0]])
    let other = self.client(weak, loop)
    var failures: [MQTTFailure] = []
    for count in 1...2 {
      begin(other, MQTTOptions(clientID: "c"), loop) { failures.append($0) }
      try run(loop) { failures.count == count }
      guard case .refused(let words)? = failures.last else {
        Issue.record("\(failures)")
        return
      }
      #expect(words.contains("only QoS 0"))
    }
  }

  @Test func `answers and failures contain the broker's words`() throws {
    let loop = EventLoop()
    let broker = try ScriptedBroker(
      on: loop,
      answers: [
        [0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 40], [0x40, 9, 0, 1, 0x99, 5, 0x1F, 0, 2, 0x68, 0x69],
        [0xE0, 7, 0x9D, 5, 0x1C, 0, 2, 0x62, 0x32],
      ])
    let client = client(broker, loop)
    var (answers, failures): ([MQTTAnswer], [MQTTFailure]) = ([], [])
    begin(client, MQTTOptions(clientID: "c", keepAlive: 0), loop) { failures.append($0) }
    try run(loop) { client.isUp }
    for message in [
      MQTTMessage(topic: "t", payload: [1]), MQTTMessage(topic: "t", payload: [UInt8](repeating: 1, count: 100)),
    ] {
      let answer = client.publish(message)
      // `try?`: this task is never cancelled.
      _ = loop.begin { if let given = try? await answer.value() { answers.append(given) } }
    }
    try run(loop) { answers.count == 2 }
    #expect(Set(answers.map(\.message)) == ["invalid payload format: hi", "the packet is too large"])
    _ = client.publish(MQTTMessage(topic: "t", payload: [1]))
    try run(loop) { failures.count == 1 }
    #expect(
      failures
        == [.refused("the broker ends the connection: another server is to be used from now on; it names b2")])
  }
}

@Suite struct VersionSearchTests {
  private let start = MonotonicTime(seconds: 0)

  @Test func `version 5 is tried first, then 3.1.1, and a version that works is kept`() {
    var search = VersionSearch(nil)
    search.begins(now: start)
    #expect(search.version == .v5 && search.isGuess)
    #expect(search.failed(.silent, now: start) == true)
    #expect(search.version == .v3 && !search.isGuess)
    search.answered()
    for _ in 1...2 {
      #expect(search.failed(.hungUp, now: start) == false)
      #expect(search.version == .v3, "it has worked: the broker is going down")
    }
    search.answered()
    #expect(search.failed(.hungUp, now: start) == false)
    // A day later the client tries version 5 again: the broker may only have been busy.
    search.begins(now: start + .seconds(86_399))
    #expect(search.version == .v3)
    search.begins(now: start + .seconds(86_400))
    #expect(search.version == .v5 && search.isGuess)
    search.answered()
    #expect(search.failed(.hungUp, now: start) == false && search.version == .v5, "proven")
    #expect(search.failed(.silent, now: start) == false && search.version == .v5)
    #expect(search.failed(.silent, now: start) == false, "the third time it is doubted")
    #expect(search.isGuess)
  }

  @Test func `a broker's refusal of version 5 is believed, and after a refusal of both the search starts again`() {
    var search = VersionSearch(nil)
    #expect(search.failed(.refused, now: start) == true)
    #expect(search.version == .v3)
    search.answered()
    search.begins(now: start + .seconds(1_000_000))
    #expect(search.version == .v3)
    #expect(search.failed(.refused, now: start) == false, "it was exchanged for another")
    #expect(search.version == .v5)
    #expect(search.failed(.hungUp, now: start) == true)
    #expect(search.failed(.hungUp, now: start) == false)
    #expect(search.version == .v5)
    var wished = VersionSearch(.v3)
    #expect(wished.failed(.refused, now: start) == false && wished.version == .v3 && !wished.isGuess)
  }
}
