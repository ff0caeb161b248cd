// SPDX-License-Identifier: MIT

import EventLoop
import LoopTestSupport
import Testing
import Timing

@testable import MQTT

/// The cost of a connection on a thin line, and its bytes under way.
@Suite struct MQTTLineTests {
  private let loop = EventLoop()

  private func begin(_ client: MQTTClient, _ options: MQTTOptions = MQTTOptions(clientID: "c", keepAlive: 0)) throws {
    _ = client.loop.begin {
      // `try?`: `end` reports how it ends.
      try? await client.connect(options)
      try? await client.run()
    }
    try until(client.loop) { client.isUp }
  }

  private func until(_ loop: EventLoop, _ condition: () -> Bool) throws {
    let isSo = turn(loop, until: condition)
    try #require(isSo, "waited in vain")
  }

  private func client(_ broker: ScriptedBroker, _ version: MQTTVersion? = nil, on loop: EventLoop? = nil) -> MQTTClient
  {
    MQTTClient(host: "127.0.0.1", port: broker.port, tls: nil, version: version, on: loop ?? self.loop)
  }

  private func message(_ topic: String, recurs: Bool = true) -> MQTTMessage {
    var message = MQTTMessage(topic: topic, payload: [7])
    message.recurs = recurs
    return message
  }

  @Test func `a recurring topic is sent once to a broker that supports topic aliases`() throws {
    let greeting: [UInt8] = [0x20, 6, 0, 0, 3, 0x22, 0, 1]
    let broker = try ScriptedBroker(on: loop, answers: [greeting])
    let client = client(broker)
    let sent: [(MQTTMessage, [UInt8])] = [
      (message("ab", recurs: false), [0x32, 8, 0, 2, 97, 98, 0, 1, 0, 7]),
      (message("ab"), [0x32, 11, 0, 2, 97, 98, 0, 2, 3, 0x23, 0, 1, 7]),
      (message("ab"), [0x32, 9, 0, 0, 0, 3, 3, 0x23, 0, 1, 7]),
      (message("c"), [0x32, 7, 0, 1, 99, 0, 4, 0, 7]), (message("ab"), [0x32, 9, 0, 0, 0, 5, 3, 0x23, 0, 1, 7]),
    ]
    try begin(client)
    for (message, _) in sent { _ = client.publish(message) }
    let wanted = sent.flatMap(\.1)
    try until(loop) { broker.received.flatMap(\.self).count >= wanted.count }
    #expect(broker.received.flatMap(\.self) == wanted)
    client.close()
    // Packet identifiers belong to a connection.
    broker.answers = [.bytes(greeting)]
    let before = broker.received.flatMap(\.self).count + 2
    try begin(client)
    _ = client.publish(message("ab"))
    try until(loop) { broker.received.flatMap(\.self).count >= before + 13 }
    #expect(broker.received.flatMap(\.self).suffix(9) == [97, 98, 0, 6, 3, 0x23, 0, 1, 7])
    client.close()
  }

  @Test(arguments: [[UInt8](arrayLiteral: 0x20, 3, 0, 0, 0), [0x20, 2, 0, 0]])
  func `a broker without topic aliases gets whole topics`(_ greeting: [UInt8]) throws {
    let broker = try ScriptedBroker(on: loop, answers: [greeting])
    let client = client(broker, greeting.count == 4 ? .v3 : .v5)
    try begin(client)
    for _ in 0..<2 { _ = client.publish(message("ab")) }
    let body: [UInt8] = greeting.count == 4 ? [7] : [0, 7]
    var wanted: [UInt8] = []
    for id in 1...2 as ClosedRange<UInt8> { wanted += [0x32, UInt8(6 + body.count), 0, 2, 97, 98, 0, id] + body }
    try until(loop) { broker.received.flatMap(\.self).count >= wanted.count }
    #expect(broker.received.flatMap(\.self) == wanted)
    client.close()
  }

  @Test func `topic aliases end at the broker's maximum, and distinguish topics by their bytes`() {
    var aliases = TopicAliases(most: 2)
    for topic in ["\u{E9}", "e\u{301}"] {
      let alias = aliases.alias(of: topic)
      #expect(alias?.isKnown == false)
      if let alias { aliases.sent(alias, of: topic) }
    }
    #expect(aliases.alias(of: "e\u{301}") == TopicAliases.Alias(number: 2, isKnown: true))
    #expect(aliases.alias(of: "x") == nil && TopicAliases(most: 0).alias(of: "x") == nil)
    #expect(TopicAliases(most: 9).alias(of: String(repeating: "x", count: 300)) == nil)
  }

  @Test func `messages that are published in one turn are written together`() throws {
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 3, 0, 0, 0]])
    let client = client(broker)
    try begin(client)
    for _ in 0..<5 { _ = client.publish(message("t", recurs: false), isFollowed: true) }
    client.flush()
    try until(loop) { !broker.received.isEmpty }
    #expect(broker.received.map(\.count) == [5 * 9])
    client.close()
  }

  @Test(arguments: [MQTTVersion.v3, .v5])
  func `messages beyond the receive maximum wait their turn, and all are handled`(_ version: MQTTVersion)
    throws
  {
    let broker = try ScriptedBroker(on: loop, answers: [version == .v5 ? [0x20, 3, 0, 0, 0] : [0x20, 2, 0, 0]])
    let client = client(broker, version)
    var (inHand, most): ([() -> Void], Int) = ([], 0)
    client.onMessage = { _, acknowledge in
      inHand.append(acknowledge)
      most = max(most, inHand.count)
    }
    var options = MQTTOptions(clientID: "c", keepAlive: 0)
    options.maxHeldBytes = 40_000
    try begin(client, options)
    let properties: [UInt8] = version == .v5 ? [0] : []
    for id in UInt16(1)...500 {
      broker.say([0x32, 5 + UInt8(properties.count), 0, 1, 0x74, UInt8(id >> 8), UInt8(id & 0xFF)] + properties)
    }
    var taken = 0
    while taken < 500 {
      // As many publications as there is room for, or the last ones.
      try until(loop) { client.budget.heldBytes >= options.maxHeldBytes || taken + inHand.count == 500 }
      taken += inHand.count
      for acknowledge in inHand { acknowledge() }
      inHand = []
    }
    try until(loop) { broker.received.flatMap(\.self).count == 500 * 4 }
    #expect(most > 16 && most <= 40 && client.budget.heldBytes == 0, "\(most) in hand")
    client.close()
  }

  @Test func `no further messages are read from a broker that does not read answers, until it reads them`() throws {
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 3, 0, 0, 0]])
    let client = client(broker)
    var came = 0
    let answer = MQTTMessage(topic: "a", payload: [UInt8](repeating: 7, count: 60_000))
    client.onMessage = { _, acknowledge in
      came += 1
      acknowledge()
      _ = client.publish(answer)
    }
    try begin(client)
    var pending: Int { client.stream?.pendingBytes ?? 0 }
    broker.isDeaf = true
    for _ in 0..<250 { broker.say([0x30, 4, 0, 1, 0x74, 0]) }
    try until(loop) { pending > 256 * 1024 }
    for _ in 0..<20 { loop.turn(wait: false) }
    #expect(came < 250 && pending < 512 * 1024, "\(came) came, \(pending) bytes wait")
    broker.isDeaf = false
    try until(loop) { came == 250 }
    client.close()
  }

  @Test(arguments: [1, 3])
  func `the client keeps the broker's receive maximum, and publishes in order`(_ most: UInt8) throws {
    let broker = try ScriptedBroker(on: loop, answers: [[0x20, 6, 0, 0, 3, 0x21, 0, most]])
    let client = client(broker)
    try begin(client)
    var answers: [Int] = []
    _ = loop.begin {
      for number in 0..<10 {
        // `try?`: this task is never cancelled.
        try? await client.untilRoom()
        let answer = client.publish(MQTTMessage(topic: "t", payload: [UInt8(number)]), isFollowed: true)
        _ = self.loop.begin { if (try? await answer.value())??.isTaken == true { answers.append(number) } }
      }
      client.flush()
    }
    var taken = 0
    while taken < 10 {
      let expected = min(10, taken + Int(most))
      try until(loop) { broker.received.flatMap(\.self).count >= expected * 9 }
      // A turn in which more publications could arrive.
      loop.turn(wait: false)
      let numbers = stride(from: 8, to: broker.received.flatMap(\.self).count, by: 9).map {
        broker.received.flatMap(\.self)[$0]
      }
      #expect(numbers == (0..<UInt8(expected)).map(\.self))
      taken += 1
      broker.say([0x40, 2, 0, UInt8(taken)])
      try until(loop) { answers.count == taken }
    }
    #expect(answers == (0..<10).map(\.self))
    client.close()
  }

  @Test func `an unanswered ping shortens the keep-alive interval, and the broker gets the new interval`() throws {
    let machine = InventedMachine()
    let loop = EventLoop(on: machine)
    let greeting: [UInt8] = [0x20, 3, 0, 0, 0]
    let broker = try ScriptedBroker(
      on: loop, [.bytes(greeting), .silence, .bytes(greeting), .silence, .bytes(greeting)])
    let client = client(broker, on: loop)
    for (told, silence, next) in [(300, 300, 150), (300, 150, 75)] {
      let begun = loop.now
      try begin(client, MQTTOptions(clientID: "c", keepAlive: 300))
      try until(loop) { client.end != nil }
      #expect(
        client.end
          == .unreachable(
            "no answer to a ping in time after a silence of \(silence) s; pinged after \(next) s from now on"))
      #expect(loop.now - begun >= .seconds(silence + 20) && loop.now - begun < .seconds(silence + 60))
      #expect(broker.hellos.last.map { Int($0[10]) << 8 | Int($0[11]) } == told)
    }
    try begin(client, MQTTOptions(clientID: "c", keepAlive: 300))
    #expect(broker.hellos.last.map { Int($0[10]) << 8 | Int($0[11]) } == 150)
    // After eight answers a longer silence is tried, shorter than the one that failed.
    let first = loop.now
    var pings = 0
    for _ in 0..<9 {
      broker.answers = [.bytes([0xD0, 0])]
      try until(loop) { broker.received.flatMap(\.self).count { $0 == 0xC0 } == 2 + pings + 1 }
      pings += 1
    }
    #expect(loop.now - first >= .seconds(8 * 75 + 93) && loop.now - first < .seconds(8 * 75 + 150))
    client.close()
  }

  @Test func `the broker's keep-alive replaces ours, and does not prove that longer silences work`() throws {
    let machine = InventedMachine()
    let loop = EventLoop(on: machine)
    let broker = try ScriptedBroker(on: loop, [.bytes([0x20, 6, 0, 0, 3, 0x13, 0, 10])])
    let client = client(broker, on: loop)
    try begin(client, MQTTOptions(clientID: "c", keepAlive: 300))
    let begun = loop.now
    for ping in 1...3 {
      broker.answers = [.bytes([0xD0, 0])]
      try until(loop) { broker.received.flatMap(\.self).count { $0 == 0xC0 } == ping }
    }
    #expect(loop.now - begun >= .seconds(30) && loop.now - begun < .seconds(50))
    client.close()
  }
}
