// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import MQTT

/// The session without sockets.
@Suite struct MQTTSessionTests {
  private let now = MonotonicTime(seconds: 0)

  /// A session with an open connection to a broker that greets with these properties.
  private func session(_ properties: [UInt8] = [], keepAlive: UInt16 = 0) -> MQTTSession {
    var session = MQTTSession(nil)
    let options = MQTTOptions(clientID: "c", keepAlive: keepAlive)
    session.begin(options, now: now)
    _ = session.opened(options)
    let greeting = [0x20, UInt8(properties.count + 3), 0, 0, UInt8(properties.count)] + properties
    // Whole or in pieces, the greeting is accepted with its last byte.
    for byte in greeting.dropLast() { #expect(session.received([byte], now: now) == nil) }
    #expect(session.received(greeting.suffix(1), now: now) == .accepted)
    return session
  }

  private func message(_ size: Int = 1) -> MQTTMessage {
    MQTTMessage(topic: "t", payload: [UInt8](repeating: 7, count: size))
  }

  private func acknowledged(_ id: UInt8, _ session: inout MQTTSession) -> MQTTConnection.Action? {
    session.open { $0.append([0x40, 2, 0, id], now: now) }
    return session.open { $0.next(now: now) }
  }

  @Test func `publications beyond the window wait, and a message that is too large is refused at once`() {
    var session = session([0x21, 0, 1, 0x27, 0, 0, 0, 40])
    #expect(session.open { $0.publish(message(), now: now) } == .waits(id: 1))
    #expect(session.open { $0.publish(message(), now: now) } == .waits(id: 2))
    #expect(session.open { $0.publish(message(100), now: now) } == .settled(MQTTAnswer(0x95)))
    #expect(session.connection?.hasRoom == false && session.connection?.output.count == 9)
    #expect(acknowledged(2, &session) == nil, "it is not sent yet")
    #expect(acknowledged(1, &session) == .settle(id: 1, MQTTAnswer(0)))
    #expect(session.connection?.output.count == 18 && session.connection?.hasRoom == false)
    #expect(acknowledged(1, &session) == nil, "a second acknowledgement says nothing")
    #expect(acknowledged(2, &session) == .settle(id: 2, MQTTAnswer(0)))
    #expect(session.connection?.hasRoom == true && session.connection?.owed == nil)
  }

  @Test func `the queue of publications is bounded`() {
    var session = session([0x21, 0, 1])
    let all = (0..<300).map { _ in session.open { $0.publish(message(), now: now) } }
    #expect(all.count { $0 == .settled(MQTTAnswer(0x97)) } == 300 - 257)
  }

  @Test func `a packet identifier in use is not assigned again, also on a later connection`() {
    var session = session()
    #expect(session.open { $0.publish(message(), now: now) } == .waits(id: 1))
    for id in UInt16(2)...UInt16.max {
      #expect(session.open { $0.publish(message(), now: now) } == .waits(id: id))
      session.open { $0.append([0x40, 2, UInt8(id >> 8), UInt8(id & 0xFF)], now: now) }
      #expect(session.open { $0.next(now: now) } == .settle(id: id, MQTTAnswer(0)))
    }
    #expect(session.open { $0.publish(message(), now: now) } == .waits(id: 2))
    session.close(nil)
    let options = MQTTOptions(clientID: "c", keepAlive: 0)
    _ = session.opened(options)
    #expect(session.received([0x20, 3, 0, 0, 0], now: now) == .accepted)
    #expect(session.open { $0.publish(message(), now: now) } == .waits(id: 3))
  }

  @Test func `without a connection a publication fails, and the reason of the end stays`() {
    var session = session()
    session.close(.refused("no"))
    session.close(nil)
    #expect(session.end == .refused("no") && session.connection == nil)
    #expect(session.open { $0.publish(message(), now: now) } == nil)
    session.begin(MQTTOptions(clientID: "c"), now: now)
    #expect(session.end == nil)
  }

  @Test(arguments: [MQTTVersion.v5, .v3])
  func `a clean start deletes the session once, and the session that follows stays`(_ version: MQTTVersion) {
    var session = MQTTSession(version)
    let options = MQTTOptions(clientID: "c", keepAlive: 0, will: message())
    let greeting: [UInt8] = version == .v5 ? [0x20, 3, 0, 0, 0] : [0x20, 2, 0, 0]
    session.begin(options, now: now)
    session.forget()
    var flags = [session.opened(options)[9]]
    var greeted = [session.received(greeting, now: now)]
    if version == .v3 {
      flags.append(session.opened(options)[9])
      greeted.append(session.received(greeting, now: now))
    }
    session.close(nil)
    flags.append(session.opened(options)[9])
    // 2: a clean start; 12: a will.
    let asked: [UInt8] = version == .v5 ? [14, 12] : [2, 12, 12]
    let answers: [MQTTSession.Greeting?] = version == .v5 ? [.accepted] : [.reconnect, .accepted]
    #expect(flags == asked && greeted == answers)
  }

  @Test func `a ping is due after silence, and an unanswered ping shortens the next interval`() {
    var session = session(keepAlive: 100)
    #expect(session.connection?.pings.due == now + .seconds(100))
    session.open { $0.subscribe("t", isOthers: false, now: now + .seconds(10)) }
    #expect(session.connection?.owed == "no answer to the subscription")
    session.open { $0.append([0x90, 4, 0, 1, 0, 1], now: now + .seconds(11)) }
    #expect(session.open { $0.next(now: now) } == nil && session.connection?.owed == nil)
    #expect(session.connection?.pings.due == now + .seconds(110))
    session.open { $0.ping(now: now + .seconds(110)) }
    #expect(
      session.open { $0.overdue(now: now + .seconds(130)) }
        == .unreachable("no answer to a ping in time after a silence of 99 s; pinged after 50 s from now on"))
    session.close(nil)
    _ = session.opened(MQTTOptions(clientID: "c", keepAlive: 100))
    #expect(session.received([0x20, 3, 0, 0, 0], now: now) == .accepted)
    #expect(session.connection?.pings.due == now + .seconds(50))
  }
}
