// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import MeshCrypto
import MeshIdentity
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Messaging
@testable import VirtualRadio

/// A room sends its posts only to those whom it knows, and forgets its guests when it is started anew.
@Suite struct RoomKeepingTests {
  private final class Fixture {
    let bench: Bench
    let service: NodeService
    let polling: NodePolling
    let room: Contact
    /// What the radio was told to send to the room.
    var logins: [Text] = []
    var loginMoments: [MonotonicTime] = []
    /// By the radio's clock.
    var loginTimes: [UInt32] = []
    var signs: [MonotonicTime] = []
    var times: [UInt32] = []
    /// Whether the room answers a login with this password, a sign of life, and for how long it has run when it is asked for its status.
    var answersLogin: (Text) -> Bool = { $0 == "hello" }
    var acknowledgesSigns = true
    /// Whether the room lets anybody read.
    var isOpen = false
    var uptime: UInt8?
    /// In place of `uptime`, which stays as it is.
    var restartedAt: MonotonicTime?
    /// The room's clock.
    var clock: UInt32 = 1
    /// From when on the room was asked for its posts.
    var sinces: [UInt32] = []
    var discoveries = 0
    private var isSign = false
    private var content: [UInt8] = []

    init(interval: Duration = .zero) throws {
      var settings = Messenger.Settings()
      settings.delivery.maxAttempts = 2
      let bench = try Bench(settings, on: InventedMachine())
      let key = PrivateIdentity(seed: Array(repeating: 0x52, count: 32)).publicKey
      let room = Contact(key: key, type: .room, outPath: .direct, name: "Lobby")
      bench.own.received(Command.addUpdateContact(room).encode())
      bench.synchronizer.refresh(key)
      try bench.run("the room to be known") { try bench.store.contact(key) != nil }
      var routine = NodePolling.Settings()
      routine.roomInterval = interval
      service = NodeService(bench.messenger, credentials: Credentials(location: bench.scratch.location("passwords")))
      polling = NodePolling(bench.messenger, service, routine)
      (self.bench, self.room) = (bench, room)
      bench.requests = service.requests
      bench.swallow { [weak self] command in
        self?.heard(command)
        return false
      }
      bench.lose { [weak self] frame in
        self?.sent(frame)
        return false
      }
    }

    deinit { polling.linkDown() }

    private func heard(_ command: Command) {
      isSign = false
      switch command {
      case .sendLogin(room.key, let password):
        logins.append(password)
        loginMoments.append(bench.loop.now)
        loginTimes.append(bench.synchronizer.radioTime ?? 0)
        guard answersLogin(password) else { return }
        push(
          .loginSuccess(
            LoginSuccess(
              permissions: 0, prefix: room.key.prefix, serverTime: clock, acl: isOpen && password.bytes.isEmpty ? 0 : 2,
              firmwareLevel: 1)))
      case .sendBinaryRequest(room.key, let request) where request.type == 2:
        isSign = true
        content = request.parameters
        signs.append(bench.loop.now)
        sinces.append(content.reversed().reduce(0) { $0 << 8 | UInt32($1) })
      case .sendStatusRequest(room.key):
        let running = restartedAt.map { UInt16((bench.loop.now - $0).inSeconds) }
        guard let uptime = running ?? uptime.map(UInt16.init) else { return }
        var status = [UInt8](repeating: 0, count: 52)
        (status[20], status[21]) = (UInt8(truncatingIfNeeded: uptime), UInt8(uptime >> 8))
        push(.statusResponse(room.key.prefix, data: status))
      case .sendText(let text) where text.recipient == room.key.prefix: times.append(text.time)
      case .sendPathDiscovery(room.key): discoveries += 1
      default: break
      }
    }

    /// The radio has sent something: the room acknowledges a sign of life.
    private func sent(_ frame: [UInt8]) {
      guard isSign, acknowledgesSigns, frame.first == 0x06, frame.count >= 6 else { return }
      let request: [UInt8] = [2] + content
      let hash = Digest.sha256(Array(frame[2..<6]) + request + bench.own.key.bytes)
      let packet = Packet(route: .direct, type: .ack, payload: Array(hash.prefix(4)) + [0])
      push(.logRxData(snr: SNR(quarters: 20), rssi: -80, packet: packet.encode()))
    }

    private func push(_ push: Push) { bench.loop.schedule(after: .seconds(2)) { [own = bench.own] in own.push(push) } }

    func pass(_ time: Duration) throws {
      let end = bench.loop.now + time
      try bench.run("time") { bench.loop.now >= end }
    }

    /// The gateway has a post of this time, by the room's clock.
    func hear(postOf time: UInt32) throws {
      let post = ContactMessage(
        snr: nil, sender: room.key.prefix, path: ReceivedPath(raw: 0), textType: .signedPlain, senderTime: time,
        author: [1, 2, 3, 4], text: "news")
      let moment = bench.synchronizer.now
      bench.store.write { store throws(SQLiteError) in _ = try store.insert(.contact(post), at: moment) }
      try bench.store.commitNow()
    }

    func logInFirst(_ password: Text = "hello") throws {
      try service.credentials.set(password, for: room.key)
      polling.linkUp()
      try bench.run("the first login") { !logins.isEmpty }
      try pass(.seconds(5))
    }

    /// Posts, and returns when the first round is over.
    func post(_ key: String = "p") throws {
      _ = try bench.send(SendRequest(to: "Lobby", text: "hello all", key: key)).get()
      try bench.run("the first round") { try bench.state(key).state == .heldForRecipient }
    }
  }

  @Test func `a room that is logged in to while the link is up gets signs of life, until its password is forgotten`()
    throws
  {
    let fixture = try Fixture(interval: .seconds(60))
    fixture.polling.linkUp()
    try fixture.service.credentials.set("hello", for: fixture.room.key)
    try fixture.bench.run("the login") { !fixture.logins.isEmpty }
    try fixture.bench.run("two signs of life") { fixture.signs.count == 2 }
    #expect(fixture.logins == ["hello"], "the room acknowledges them")
    try fixture.service.credentials.set(nil, for: fixture.room.key)
    try fixture.pass(.seconds(180))
    #expect(fixture.signs.count == 2)
  }

  @Test func `a sign of life that is not acknowledged is followed by a login`() throws {
    let fixture = try Fixture(interval: .seconds(60))
    fixture.acknowledgesSigns = false
    try fixture.logInFirst()
    try fixture.bench.run("another login") { fixture.logins.count == 2 }
    let sign = try #require(fixture.signs.first)
    #expect(fixture.bench.loop.now - sign < .seconds(60) && fixture.logins == ["hello", "hello"])
  }

  @Test func `a post that a restarted room has ignored goes on with a new time after a login`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    // It is started anew, and does not know us.
    try fixture.pass(.seconds(240))
    fixture.uptime = 200
    try fixture.post()
    let first = try #require(fixture.times.first)
    let attempts = fixture.times.count
    try fixture.bench.run("another attempt") { fixture.times.count > attempts }
    #expect(fixture.logins == ["hello", "", "hello"])
    #expect(try #require(fixture.times.last) > first && Set(fixture.times).count == 2, "\(fixture.times)")
    #expect(try !fixture.bench.state("p").hasEnded)
  }

  @Test func `a post that a restarted room ignores goes on with a new time when the answer of a login was lost`() throws
  {
    let fixture = try Fixture()
    try fixture.logInFirst()
    try fixture.pass(.seconds(240))
    fixture.restartedAt = fixture.bench.loop.now
    try fixture.pass(.seconds(10))
    fixture.answersLogin = { _ in false }
    try fixture.post()
    try fixture.bench.run("a login without an answer") { fixture.logins.count == 3 }
    // The room has had it, and knows us.
    fixture.answersLogin = { _ in true }
    try fixture.bench.run("the post with a new time") { Set(fixture.times).count == 2 }
    #expect(fixture.logins == ["hello", "", "hello", "", "hello"])
    #expect(try !fixture.bench.state("p").hasEnded)
  }

  @Test func `a post ends when a login that made it too old had no answer, in a room that was not restarted`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    fixture.answersLogin = { _ in false }
    try fixture.post()
    try fixture.bench.run("a login without an answer") { fixture.logins.count == 3 }
    fixture.answersLogin = { _ in true }
    try fixture.bench.run("its end") { try fixture.bench.state("p").hasEnded }
    #expect(try fixture.bench.state("p").reason == "no_acknowledgement" && Set(fixture.times).count == 1)
  }

  @Test func `a post after a login without an answer is not sent twice: the room may have known us`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    try fixture.pass(.seconds(240))
    fixture.restartedAt = fixture.bench.loop.now
    try fixture.pass(.seconds(10))
    fixture.answersLogin = { _ in false }
    let (bench, service) = (fixture.bench, fixture.service)
    let stored = try #require(try bench.store.contact(fixture.room.key))
    let silence = try bench.result("a login") { () throws(Refusal) in try await service.logIn(stored, password: nil) }
    #expect(throws: Refusal.self) { try silence.get() }
    try fixture.post()
    fixture.answersLogin = { $0 == "hello" }
    try bench.run("its end") { try bench.state("p").hasEnded }
    #expect(try bench.state("p").reason == "no_acknowledgement" && Set(fixture.times).count == 1, "\(fixture.times)")
  }

  @Test func `a post that is later than a question without an answer keeps its time`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    fixture.answersLogin = { _ in true }
    let (bench, service) = (fixture.bench, fixture.service)
    let stored = try #require(try bench.store.contact(fixture.room.key))
    let silence = try bench.result("a question") { () throws(Refusal) in
      try await service.askOnce(.status, stored.contact, .interactive)
    }
    #expect(throws: Refusal.self) { try silence.get() }
    try fixture.post()
    let attempts = fixture.times.count
    try bench.run("further attempts") { fixture.times.count >= attempts + 2 }
    #expect(fixture.logins == ["hello", ""] && Set(fixture.times).count == 1, "\(fixture.logins) \(fixture.times)")
  }

  @Test func `a room that still knows us gets no login after an unanswered post, which keeps its time`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    fixture.answersLogin = { _ in true }
    try fixture.post()
    let attempts = fixture.times.count
    try fixture.bench.run("further attempts") { fixture.times.count >= attempts + 2 }
    #expect(fixture.logins == ["hello", ""] && Set(fixture.times).count == 1, "\(fixture.logins) \(fixture.times)")
  }

  @Test func `a room without a password that still knows us gets an unanswered post again with its time`() throws {
    let fixture = try Fixture()
    fixture.answersLogin = { $0.bytes.isEmpty }
    try fixture.logInFirst("")
    try fixture.post()
    let attempts = fixture.times.count
    try fixture.bench.run("another attempt after the room's answer") {
      fixture.logins.count == 2 && fixture.times.count > attempts
    }
    #expect(Set(fixture.times).count == 1, "\(fixture.times)")
    #expect(try !fixture.bench.state("p").hasEnded)
  }

  @Test func `a room without a password that does not answer is logged in to again after its post has ended`() throws {
    let fixture = try Fixture()
    fixture.answersLogin = { $0.bytes.isEmpty }
    try fixture.logInFirst("")
    fixture.answersLogin = { _ in false }
    try fixture.post()
    try fixture.bench.run("a login without an answer") { fixture.logins.count == 2 }
    try fixture.pass(.seconds(60))
    _ = try fixture.bench.messenger.cancel(key: "p")
    try fixture.bench.run("another login") { fixture.logins.count == 3 }
  }

  @Test func `a room without a password that was restarted gets the post with a new time after two rounds`() throws {
    let fixture = try Fixture()
    fixture.answersLogin = { $0.bytes.isEmpty }
    try fixture.logInFirst("")
    try fixture.pass(.seconds(240))
    fixture.restartedAt = fixture.bench.loop.now
    // How long it has run is told in whole seconds, and its answer takes some.
    try fixture.pass(.seconds(10))
    try fixture.post()
    try fixture.bench.run("the post with a new time") { Set(fixture.times).count == 2 }
    #expect(fixture.logins == ["", "", ""])
    #expect(try !fixture.bench.state("p").hasEnded)
  }

  @Test func `a room that lets anybody read is asked only once whether it knows us`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    fixture.isOpen = true
    fixture.answersLogin = { _ in true }
    try fixture.post()
    try fixture.bench.run("the end of the post, which a login has made too old") {
      try fixture.bench.state("p").hasEnded
    }
    #expect(fixture.logins == ["hello", "", "hello"])
    let attempts = fixture.times.count
    try fixture.post("q")
    try fixture.bench.run("a round of the next post") { fixture.times.count > attempts }
    // A question would be due ten minutes after the last login.
    try fixture.pass(.seconds(650))
    #expect(fixture.logins == ["hello", "", "hello"])
  }

  @Test func `a room that does not answer is not asked again and again`() throws {
    let fixture = try Fixture()
    try fixture.logInFirst()
    fixture.answersLogin = { _ in false }
    try fixture.post()
    try fixture.bench.run("a login in vain") { fixture.logins.count == 3 }
    try fixture.pass(.seconds(300))
    #expect(fixture.logins == ["hello", "", "hello"])
  }

  @Test func `a post that waits after a login without an answer gets one more before the pause is over`() throws {
    for isWell in [true, false] {
      let fixture = try Fixture()
      fixture.answersLogin = { _ in false }
      try fixture.logInFirst()
      try fixture.bench.run("its failure") { fixture.bench.messenger.rooms[fixture.room.key]?.doubt != nil }
      try fixture.pass(.seconds(60))
      fixture.answersLogin = { isWell && $0 == "hello" }
      try fixture.post()
      try fixture.bench.run("an early login") { fixture.logins.count == 3 }
      #expect(fixture.bench.loop.now - fixture.loginMoments[0] < .seconds(300), "the pause is of 600 seconds")
      try fixture.pass(.seconds(150))
      #expect(fixture.logins == ["hello", "", "hello"])
      guard !isWell else { continue }
      try fixture.bench.run("the next one") { fixture.logins.count > 3 }
      let pause = fixture.loginMoments[3] - fixture.loginMoments[0]
      #expect(pause > .seconds(590) && pause < .seconds(700), "as without the early one: \(pause)")
    }
  }

  @Test func `a login right after a post waits until the radio's clock is past the time of the post`() throws {
    let fixture = try Fixture()
    let (bench, service) = (fixture.bench, fixture.service)
    _ = try bench.send(SendRequest(to: "Lobby", text: "hello all", key: "p")).get()
    try bench.run("the post") { fixture.times.count == 1 }
    let stored = try #require(try bench.store.contact(fixture.room.key))
    let answer = try bench.result("the login") { () throws(Refusal) in
      try await service.logIn(stored, password: "hello")
    }
    _ = try answer.get()
    let (login, post) = (try #require(fixture.loginTimes.first), try #require(fixture.times.first))
    #expect(login > post, "the room takes a login that is not newer for a repetition")
  }

  @Test func `a program that shares the radio logs in to a room only later than the time of a post`() throws {
    let fixture = try Fixture()
    let (bench, requests, room) = (fixture.bench, fixture.service.requests, fixture.room.key)
    _ = try bench.send(SendRequest(to: "Lobby", text: "hello all", key: "p")).get()
    try bench.run("the post") { fixture.times.count == 1 }
    var turn: NodeRequests.SharedTurn?
    _ = bench.loop.begin { turn = try? await requests.share(with: room) }  // `try?`: without a turn the test fails
    try bench.run("its turn") { turn != nil }
    let (now, post) = (try #require(bench.synchronizer.radioTime), try #require(fixture.times.first))
    #expect(now > post, "the radio gives the login the time of its clock")
    turn?.leave()
  }

  @Test func `a room whose clock was set back is asked for its posts after each login, as far as they are new`() throws
  {
    let fixture = try Fixture()
    let (bench, service) = (fixture.bench, fixture.service)
    let newest: UInt32 = 1_795_000_000
    try fixture.hear(postOf: newest)
    // It was started anew, and has no clock of its own.
    fixture.clock = 1_715_770_000
    try fixture.logInFirst()
    try bench.run("the question for all posts") { fixture.sinces == [1] }
    try fixture.pass(.seconds(50))
    #expect(fixture.sinces == [1], "it was acknowledged")
    fixture.clock += 60
    let last = fixture.clock - 30
    try fixture.hear(postOf: last)
    let stored = try #require(try bench.store.contact(fixture.room.key))
    func logIn() throws {
      _ = try bench.result("a login") { () throws(Refusal) in try await service.logIn(stored, password: nil) }.get()
    }
    try logIn()
    try bench.run("the question for newer ones") { fixture.sinces.count == 2 }
    #expect(fixture.sinces == [1, last])
    try fixture.pass(.seconds(50))
    fixture.clock = newest + 100
    try logIn()
    try fixture.pass(.seconds(50))
    #expect(fixture.sinces.count == 2, "the clock is right")
  }

  @Test func `a room is asked for its path only while no post is under way, which would be older`() throws {
    let fixture = try Fixture()
    let bench = fixture.bench
    _ = try bench.send(SendRequest(to: "Lobby", text: "hello all", key: "p")).get()
    try bench.run("the post") { fixture.times.count == 1 }
    fixture.service.discoverPath(fixture.room.key)
    try fixture.pass(.seconds(10))
    #expect(fixture.discoveries == 0)
    _ = try bench.messenger.cancel(key: "p")
    fixture.service.discoverPath(fixture.room.key)
    try bench.run("the question") { fixture.discoveries == 1 }
  }

  @Test func `a room whose clock was set back is asked for its posts once no post of ours is under way`() throws {
    let fixture = try Fixture()
    let (bench, service) = (fixture.bench, fixture.service)
    try fixture.hear(postOf: 1_795_000_000)
    fixture.clock = 1_715_770_000
    try fixture.post()
    let stored = try #require(try bench.store.contact(fixture.room.key))
    let answer = try bench.result("a login") { () throws(Refusal) in
      try await service.logIn(stored, password: "hello")
    }
    _ = try answer.get()
    let loggedIn = bench.loop.now
    try bench.run("the question for all posts") { fixture.sinces == [1] }
    let asked = try #require(fixture.signs.first)
    #expect(try bench.state("p").hasEnded || asked - loggedIn >= .seconds(300), "the room would ignore the post")
  }
}
