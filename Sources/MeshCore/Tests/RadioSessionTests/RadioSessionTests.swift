// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import RadioSession

/// A session after its handshake, and the frames of the handshake.
struct ReadySession {
  var session = RadioSession()
  var now = MonotonicTime(seconds: 100)

  static let info = Hex.bytes(
    "050114147a39adb4320c2366098bf31738f4a6c9067cb279d04972644abba9557d2c2425000000000000000000000000"
      + "38f60d0090d003000a053741333941444234")!
  static let device = DeviceInfo(
    protocolVersion: 13,
    details: .init(
      halfMaxContacts: 175, channelSlots: 40, pin: 0, build: "14 Aug 2026", model: "Test", version: "v1.17.1"),
    clientRepeat: 0, pathHashMode: 0)

  init() {
    _ = session.linkUp(now: now)
    _ = session.received(Reply.deviceInfo(Self.device).encode(), now: now)
    _ = session.received(Self.info, now: now)
  }

  mutating func submit(_ command: Command, _ priority: CommandPriority = .sync) -> (UInt64?, [RadioSession.Action]) {
    let (id, actions) = session.submit(command, priority, now: now)
    return (id, actions)
  }

  mutating func receive(_ reply: Reply) -> [RadioSession.Action] { session.received(reply.encode(), now: now) }
  mutating func receive(_ push: Push) -> [RadioSession.Action] { session.received(push.encode(), now: now) }
}

@Suite struct HandshakeTests {
  @Test func `the session asks for the device, then starts, then is ready`() {
    var session = RadioSession()
    let now = MonotonicTime(seconds: 1)
    #expect(session.linkUp(now: now) == [.send([22, 3])])
    #expect(session.submit(.getDeviceTime, .sync, now: now).id == nil, "nothing goes before the handshake")
    let next = session.received(Reply.deviceInfo(ReadySession.device).encode(), now: now)
    #expect(next == [.send(Command.start(client: "meshpost").encode())])
    guard case .ready(let identity)? = session.received(ReadySession.info, now: now).first else {
      Issue.record("not ready")
      return
    }
    #expect(identity.device == ReadySession.device)
    #expect(identity.info.key.hex.hasPrefix("7a39adb4"))
    #expect(session.isUp)
  }

  @Test func `a radio that does not support the device query is started nevertheless`() {
    var session = RadioSession()
    let now = MonotonicTime(seconds: 1)
    _ = session.linkUp(now: now)
    let next = session.received(Reply.error(.unsupported).encode(), now: now)
    #expect(next == [.send(Command.start(client: "meshpost").encode())])
  }

  @Test func `a silent radio is tried with the other line setting, then with zero bytes, then the link is dropped`() {
    var session = RadioSession()
    var now = MonotonicTime(seconds: 1)
    _ = session.linkUp(now: now)
    #expect(session.deadline == now + .seconds(2))
    now = now + .seconds(2)
    #expect(session.timedOut(now: now) == [.tryOtherLineSettings, .send([22, 3])])
    now = now + .seconds(2)
    #expect(session.timedOut(now: now) == [.sendRaw(Array(repeating: 0, count: 200)), .send([22, 3])])
    now = now + .seconds(2)
    #expect(session.timedOut(now: now) == [.dropLink(.handshakeUnanswered)])
  }
}

@Suite struct ExchangeTests {
  @Test func `one command is in flight, and interactive commands go before waiting ones`() {
    var radio = ReadySession()
    let (first, sent) = radio.submit(.getDeviceTime)
    #expect(sent == [.send([5])])
    let (second, none) = radio.submit(.getBattery)
    #expect(none.isEmpty)
    let (third, noneEither) = radio.submit(.getStats(0), .interactive)
    #expect(noneEither.isEmpty)
    let reply = Reply.currentTime(7)
    #expect(radio.receive(reply) == [.completed(id: first!, .replied(reply)), .send([56, 0])])
    let stats = Reply.stats(.core(.init(batteryMillivolts: 1, uptime: 2, errorFlags: 0, queueLength: 0)))
    #expect(radio.receive(stats) == [.completed(id: third!, .replied(stats)), .send([20])])
    let battery = Reply.battery(Battery(millivolts: 4000))
    #expect(radio.receive(battery) == [.completed(id: second!, .replied(battery))])
  }

  @Test func `an unasked OK completes no command`() {
    var radio = ReadySession()
    let (id, _) = radio.submit(.getDeviceTime)
    #expect(radio.receive(.ok) == [.unasked(.ok)])
    #expect(radio.receive(.currentTime(1)) == [.completed(id: id!, .replied(.currentTime(1)))])
    #expect(radio.receive(.ok) == [.unasked(.ok)])
  }

  @Test func `a push between a command and its answer is passed on`() {
    var radio = ReadySession()
    let (id, _) = radio.submit(.getDeviceTime)
    #expect(radio.receive(.messageWaiting) == [.push(.messageWaiting)])
    #expect(radio.receive(.currentTime(1)) == [.completed(id: id!, .replied(.currentTime(1)))])
  }

  @Test func `a push answers the request for the radio's own telemetry`() {
    var radio = ReadySession()
    let (id, _) = radio.submit(.sendTelemetryRequest(nil))
    let other = Push.telemetryResponse(KeyPrefix(value: 1), data: [1, 116, 1, 0x9C])
    #expect(radio.receive(other) == [.push(other)], "another node's")
    let push = Push.telemetryResponse(KeyPrefix(bytes: Hex.bytes("7a39adb4320c")!)!, data: [1, 116, 1, 0x9C])
    #expect(radio.receive(push) == [.completed(id: id!, .pushed(push))])
  }

  @Test func `a contact completes only the request for its key`() {
    var radio = ReadySession()
    let key = PublicKey(bytes: Array(repeating: 5, count: 32))!
    let other = PublicKey(bytes: Array(repeating: 6, count: 32))!
    let (id, _) = radio.submit(.getContactByKey(key))
    let late = Reply.contact(Contact(key: other, name: "late"))
    #expect(radio.receive(late) == [.unasked(late)])
    let right = Reply.contact(Contact(key: key, name: "right"))
    #expect(radio.receive(right) == [.completed(id: id!, .replied(right))])
  }

  @Test func `after a time-out the session waits for silence before the next command`() {
    var radio = ReadySession()
    let (id, _) = radio.submit(.getDeviceTime)
    _ = radio.submit(.getBattery)
    radio.now = radio.now + .seconds(5)
    #expect(radio.session.timedOut(now: radio.now) == [.completed(id: id!, .failed(.timedOut))])
    #expect(radio.session.deadline == radio.now + .milliseconds(100))
    #expect(radio.receive(.currentTime(1)) == [.unasked(.currentTime(1))], "the late answer")
    radio.now = radio.now + .milliseconds(100)
    #expect(radio.session.timedOut(now: radio.now) == [.send([20])])
  }

  @Test(arguments: [Reply.ok, .error(.badState)])
  func `a late answer is not taken for that of any next command`(_ late: Reply) {
    var radio = ReadySession()
    _ = radio.submit(.setAdvertPosition(latitude: 1, longitude: 1, altitude: nil))
    radio.now = radio.now + .seconds(20)
    _ = radio.session.timedOut(now: radio.now)
    let name = Command.setAdvertName("r0")
    let (id, none) = radio.submit(name)
    #expect(none.isEmpty)
    radio.now = radio.now + .seconds(1)
    #expect(radio.session.timedOut(now: radio.now) == [.send(Command.getBattery.encode())])
    #expect(radio.receive(late) == [.unasked(late)], "the position's")
    let battery = Reply.battery(Battery(millivolts: 4000))
    #expect(radio.receive(battery) == [.send(name.encode())])
    #expect(radio.receive(.error(.tableFull)) == [.completed(id: id!, .failed(.refused(.tableFull)))], "its own")
    #expect(radio.submit(.getTuning).1 == [.send(Command.getTuning.encode())], "one query for each time-out")
  }

  @Test func `a command is not sent while the radio does not answer the query before it, and a reboot is`() {
    var radio = ReadySession()
    _ = radio.submit(.getDeviceTime)
    radio.now = radio.now + .seconds(6)
    _ = radio.session.timedOut(now: radio.now)
    let (id, _) = radio.submit(.getTuning)
    radio.now = radio.now + .seconds(1)
    #expect(radio.session.timedOut(now: radio.now) == [.send(Command.getBattery.encode())])
    radio.now = radio.now + .seconds(6)
    #expect(radio.session.timedOut(now: radio.now) == [.completed(id: id!, .failed(.notSent(isRefused: false)))])
    let (reboot, _) = radio.submit(.reboot)
    radio.now = radio.now + .seconds(1)
    #expect(
      radio.session.timedOut(now: radio.now)
        == [.send(Command.reboot.encode()), .completed(id: reboot!, .unanswered)])
  }

  @Test func `three unanswered commands in a row drop the link`() {
    var radio = ReadySession()
    for number in 1...3 {
      _ = radio.submit(.getDeviceTime)
      radio.now = radio.now + .seconds(1)
      _ = radio.session.timedOut(now: radio.now)
      radio.now = radio.now + .seconds(5)
      let actions = radio.session.timedOut(now: radio.now)
      #expect(actions.contains(.dropLink(.unresponsive)) == (number == 3))
    }
  }

  @Test func `a lost link fails each waiting command once`() {
    var radio = ReadySession()
    let ids = (0..<3).map { _ in radio.submit(.getDeviceTime).0! }
    let lost = radio.session.linkLost()
    #expect(lost == ids.map { .completed(id: $0, .failed(.linkLost)) })
    #expect(radio.session.linkLost().isEmpty)
    #expect(radio.submit(.getDeviceTime).0 == nil)
  }

  @Test func `the queue of commands is bounded`() {
    var radio = ReadySession()
    for _ in 0..<65 { #expect(radio.submit(.getDeviceTime).0 != nil) }
    #expect(radio.submit(.getDeviceTime).0 == nil)
  }

  @Test func `commands that were submitted as a group go out together, with their original bytes`() {
    var radio = ReadySession()
    let (first, _) = radio.submit(.getDeviceTime)
    let group = [
      RadioSession.Submission(.getBattery, frame: [20, 9]), RadioSession.Submission(.getTuning),
    ]
    let (ids, _) = radio.session.submit(group: group, .client, now: radio.now)
    let (person, _) = radio.submit(.getAutoAdd, .interactive)
    #expect(radio.receive(.currentTime(1)) == [.completed(id: first!, .replied(.currentTime(1))), .send([59])])
    let autoAdd = Reply.autoAdd(AutoAdd(flags: 0, maxHops: 0))
    #expect(radio.receive(autoAdd) == [.completed(id: person!, .replied(autoAdd)), .send([20, 9])])
    let (late, none) = radio.submit(.getDeviceTime, .interactive)
    #expect(none.isEmpty)
    let battery = Reply.battery(Battery(millivolts: 1))
    #expect(radio.receive(battery) == [.completed(id: ids![0], .replied(battery)), .send([43])], "not the latecomer")
    #expect(radio.receive(.error(.unsupported)).last == .send([5]))
    #expect(late != nil)
  }

  @Test(arguments: [false, true])
  func `a command is skipped after a failure if it needs the one before it, and is sent otherwise`(_ isRefused: Bool) {
    var radio = ReadySession()
    let group: [RadioSession.Submission] = [
      .init(.getBattery), .init(.getTuning, needsSuccess: true), .init(.getDeviceTime),
    ]
    let ids = radio.session.submit(group: group, .interactive, now: radio.now).ids ?? []
    let skipped = RadioSession.Action.completed(id: ids[1], .failed(.notSent(isRefused: isRefused)))
    if isRefused {
      #expect(
        radio.receive(.error(.unsupported))
          == [.completed(id: ids[0], .failed(.refused(.unsupported))), skipped, .send([5])])
    } else {
      radio.now = radio.now + .seconds(6)
      #expect(
        radio.session.timedOut(now: radio.now) == [.completed(id: ids[0], .failed(.timedOut)), skipped],
        "the third follows when the link was silent for a while")
    }
  }

  @Test func `unreadable frames are counted, and too many in a row drop the link`() {
    var radio = ReadySession()
    for number in 1...64 {
      let actions = radio.session.received([5, 1], now: radio.now)
      #expect(actions.contains(.dropLink(.garbage)) == (number == 64))
    }
  }
}

@Suite struct ContactListTests {
  private func contact(_ number: UInt8) -> Contact {
    Contact(key: PublicKey(bytes: Array(repeating: number, count: 32))!, name: "n")
  }

  @Test func `the contacts of a list are delivered one by one, and an interactive command goes in between`() {
    var radio = ReadySession()
    let (list, _) = radio.submit(.getContacts(since: nil))
    #expect(radio.receive(.contactsStart(total: 2)) == [.listBegan(id: list!, total: 2)])
    #expect(radio.receive(.contact(contact(1))) == [.contact(id: list!, contact(1))])
    let (sync, held) = radio.submit(.getChannel(slot: 0))
    #expect(held.isEmpty, "the sync waits for the end of the list")
    let (question, sent) = radio.submit(.getBattery, .interactive)
    #expect(sent == [.send([20])])
    #expect(radio.receive(.contact(contact(2))) == [.contact(id: list!, contact(2))])
    let battery = Reply.battery(Battery(millivolts: 1))
    #expect(radio.receive(battery) == [.completed(id: question!, .replied(battery))])
    let end = radio.receive(.endOfContacts(lastModified: 9))
    #expect(end == [.completed(id: list!, .contacts(total: 2, received: 2, lastModified: 9)), .send([31, 0])])
    #expect(sync != nil)
  }

  @Test func `a list that stops half-way fails after five seconds`() {
    var radio = ReadySession()
    let (list, _) = radio.submit(.getContacts(since: nil))
    _ = radio.receive(.contactsStart(total: 2))
    _ = radio.receive(.contact(contact(1)))
    radio.now = radio.now + .seconds(5)
    let broken = RadioSession.Outcome.failed(.listBroken(received: 1, total: 2))
    #expect(radio.session.timedOut(now: radio.now) == [.completed(id: list!, broken)])
  }

  @Test func `a list whose end does not come is not kept open by further records`() {
    var radio = ReadySession()
    let (list, _) = radio.submit(.getContacts(since: nil))
    _ = radio.receive(.contactsStart(total: 2))
    for _ in 1...70 {
      _ = radio.receive(.contact(contact(1)))
      radio.now = radio.now + .seconds(1)
    }
    // The 66th was the last that counted: its five seconds are over.
    let broken = RadioSession.Outcome.failed(.listBroken(received: 70, total: 2))
    #expect(radio.session.timedOut(now: radio.now) == [.completed(id: list!, broken)])
  }

  @Test func `a list that is refused fails`() {
    var radio = ReadySession()
    let (list, _) = radio.submit(.getContacts(since: 5))
    #expect(radio.receive(.error(.badState)) == [.completed(id: list!, .failed(.refused(.badState)))])
  }
}
