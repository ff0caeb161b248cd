// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Testing
import Timing

@testable import RadioSession

@Suite struct FloodScopeTests {
  private let back = RadioSession.Action.send(Command.setFloodScopeKey(.useDefault).encode())
  private let barrier = RadioSession.Action.send(Command.getBattery.encode())
  private let battery = Reply.battery(Battery(millivolts: 4000, usedKibibytes: nil, totalKibibytes: nil))
  private let elsewhere = Command.setFloodScopeKey(.key(.hashtag("#elsewhere")))
  private let text = Command.sendChannelText(type: .plain, slot: 0, time: 1, text: "hello")

  /// A session whose radio is in its default scope.
  private func settled() -> ReadySession {
    var radio = ReadySession()
    _ = radio.submit(.setFloodScopeKey(.useDefault))
    _ = radio.receive(.ok)
    return radio
  }

  /// A session that has sent one message in another scope, and whose command to reset the scope is in flight.
  private func returning() -> (ReadySession, UInt64) {
    var radio = settled()
    let group: [RadioSession.Submission] = [
      .init(elsewhere), .init(text, needsSuccess: true), .init(.setFloodScopeKey(.useDefault)),
    ]
    let ids = radio.session.submit(group: group, .interactive, now: radio.now).ids ?? []
    #expect(radio.receive(.ok).last == .send(text.encode()), "its scope is set: nothing comes between")
    #expect(radio.receive(.ok).last == back)
    return (radio, ids[2])
  }

  @Test func `before the first flood, the radio is returned to its default scope`() {
    var radio = ReadySession()
    let (id, asked) = radio.submit(text)
    #expect(asked == [back])
    #expect(radio.receive(.ok) == [.send(text.encode())])
    #expect(radio.receive(.ok) == [.completed(id: id!, .replied(.ok))])
    #expect(radio.submit(text).1 == [.send(text.encode())], "now it is known")
  }

  @Test(arguments: [RadioError.unsupported, .badState, .illegalArgument])
  func `after a refused return to the default scope no flooded message is sent`(_ error: RadioError) {
    var (radio, _) = returning()
    _ = radio.receive(.error(error))
    #expect(radio.session.isScopeStuck)
    for _ in 1...2 {
      let (id, asked) = radio.submit(text)
      #expect(asked == [back])
      #expect(radio.receive(.error(error)) == [.completed(id: id!, .failed(.notSent(isRefused: true)))])
    }
    #expect(radio.submit(.getDeviceTime).1 == [.send([5])], "a command that does not flood is sent")
    _ = radio.receive(.currentTime(1))
    _ = radio.submit(text)
    #expect(radio.receive(.ok) == [.send(text.encode())] && !radio.session.isScopeStuck)
  }

  @Test func `messages with a path of their own, and our advert, are sent in any scope`() throws {
    var (radio, _) = returning()
    _ = radio.receive(.error(.badState))
    // A datagram for a channel: slot, path, type, data.
    let routed = try Command(decoding: [62, 0, 1, 0xA0, 1, 0, 7])
    for command in [routed, .sendSelfAdvert(flood: true)] {
      #expect(radio.submit(command).1.first == .send(command.encode()), "\(command)")
      _ = radio.receive(.ok)
    }
    #expect(try radio.submit(Command(decoding: [62, 0, 0xFF, 1, 0, 7])).1 == [back], "a flood")
  }

  @Test func `after an unanswered return to the default scope the radio is asked again before the next message`() {
    var (radio, id) = returning()
    let (next, none) = radio.submit(text)
    #expect(none.isEmpty)
    radio.now = radio.now + .seconds(6)
    #expect(radio.session.timedOut(now: radio.now) == [.completed(id: id, .failed(.timedOut))])
    radio.now = radio.now + .seconds(1)
    #expect(radio.session.timedOut(now: radio.now) == [barrier], "first its answer has its last chance")
    #expect(radio.receive(battery) == [back])
    radio.now = radio.now + .seconds(6)
    #expect(
      radio.session.timedOut(now: radio.now).first == .completed(id: next!, .failed(.notSent(isRefused: false))))
  }

  @Test(arguments: [Reply.ok, .error(.badState)])
  func `a late answer to another command is not taken for the scope's`(_ late: Reply) {
    var radio = settled()
    _ = radio.submit(.setAdvertPosition(latitude: 1, longitude: 1, altitude: nil))
    radio.now = radio.now + .seconds(20)
    _ = radio.session.timedOut(now: radio.now)
    let group: [RadioSession.Submission] = [
      .init(elsewhere), .init(text, needsSuccess: true), .init(.setFloodScopeKey(.useDefault)),
    ]
    let ids = radio.session.submit(group: group, .interactive, now: radio.now).ids ?? []
    radio.now = radio.now + .seconds(1)
    #expect(radio.session.timedOut(now: radio.now) == [barrier])
    #expect(radio.receive(late) == [.unasked(late)], "the position's")
    #expect(radio.receive(battery) == [.send(elsewhere.encode())])
    let refused = radio.receive(.error(.unsupported))
    #expect(refused.contains(.completed(id: ids[1], .failed(.notSent(isRefused: true)))))
    #expect(!refused.contains(.send(text.encode())), "the scope was refused, whatever was answered before")
  }

  @Test func `without an answer to the query before it, a scope is not set, and its message not sent`() {
    var radio = settled()
    _ = radio.submit(.getBattery)
    radio.now = radio.now + .seconds(6)
    _ = radio.session.timedOut(now: radio.now)
    let group: [RadioSession.Submission] = [.init(elsewhere), .init(text, needsSuccess: true)]
    let ids = radio.session.submit(group: group, .interactive, now: radio.now).ids ?? []
    radio.now = radio.now + .seconds(1)
    let query = Command.getDeviceTime
    #expect(radio.session.timedOut(now: radio.now) == [.send(query.encode())], "the battery's answer may be late")
    radio.now = radio.now + .seconds(6)
    let ended = radio.session.timedOut(now: radio.now)
    #expect(ended == ids.map { .completed(id: $0, .failed(.notSent(isRefused: false))) })
  }

  @Test func `a late error does not make a radio one without scopes`() {
    var session = RadioSession()
    let now = MonotonicTime(seconds: 1)
    _ = session.linkUp(now: now)
    #expect(session.received(Reply.error(.badState).encode(), now: now).count == 1, "it goes on with APP_START")
    #expect(session.received(Reply.deviceInfo(ReadySession.device).encode(), now: now).isEmpty)
    guard case .ready(let identity)? = session.received(ReadySession.info, now: now).first else {
      Issue.record("not ready")
      return
    }
    #expect(identity.device == ReadySession.device)
    #expect(session.submit(text, .sync, now: now).actions == [back], "it may be in any scope")
  }

  @Test(arguments: [
    (UInt8(0), ScopeSetting.impossible, ScopeSetting.asIs), (7, .impossible, .asIs),
    (8, .set(.key(.hashtag("#elsewhere"))), .asIs), (9, .set(.key(.hashtag("#elsewhere"))), .asIs),
    (11, .set(.key(.hashtag("#elsewhere"))), .impossible),
    (12, .set(.key(.hashtag("#elsewhere"))), .set(.unscoped)),
  ])
  func `the version says which scopes a radio knows`(
    _ version: UInt8, _ key: ScopeSetting, _ none: ScopeSetting
  ) {
    var session = RadioSession()
    let now = MonotonicTime(seconds: 1)
    var device = ReadySession.device
    device.protocolVersion = version
    _ = session.linkUp(now: now)
    _ = session.received(Reply.deviceInfo(device).encode(), now: now)
    _ = session.received(ReadySession.info, now: now)
    #expect(session.setting(for: .key(.hashtag("#elsewhere"))) == key && session.setting(for: .unscoped) == none)
    #expect(session.setting(for: .useDefault) == .asIs)
  }

  @Test func `a radio that has said it does not know a scope is not asked again over this link`() {
    var radio = ReadySession()
    _ = radio.submit(elsewhere)
    _ = radio.receive(.error(.unsupported))
    #expect(radio.session.setting(for: .key(.hashtag("#other"))) == .impossible)
    #expect(radio.session.setting(for: .unscoped) == .set(.unscoped))
    _ = radio.session.linkLost()
    _ = radio.session.linkUp(now: radio.now)
    #expect(radio.session.setting(for: .key(.hashtag("#other"))) != .impossible, "its firmware may be a newer one")
  }

  @Test func `firmware without scopes gets the message without a scope`() {
    var radio = ReadySession()
    let (id, asked) = radio.submit(text)
    #expect(asked == [back])
    #expect(radio.receive(.error(.unsupported)) == [.send(text.encode())])
    #expect(radio.receive(.ok) == [.completed(id: id!, .replied(.ok))] && !radio.session.isScopeStuck)
  }

  @Test func `after a reconnection the scope of the radio is unknown`() {
    var (radio, _) = returning()
    _ = radio.session.linkLost()
    _ = radio.session.linkUp(now: radio.now)
    _ = radio.session.received(Reply.deviceInfo(ReadySession.device).encode(), now: radio.now)
    _ = radio.session.received(ReadySession.info, now: radio.now)
    let (id, _) = radio.submit(text)
    #expect(
      radio.receive(.error(.unsupported)) == [.completed(id: id!, .failed(.notSent(isRefused: true)))],
      "it has taken a scope before, and is not without")
  }
}
