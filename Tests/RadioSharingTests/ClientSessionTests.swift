// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Messaging
@testable import RadioSharing
@testable import Sync
@testable import VirtualRadio

/// One test after the other: some count the resources of the process.
@Suite(.serialized) struct ClientSessionTests {
  static let battery: [UInt8] = [20]
  static let nextMessage: [UInt8] = [10]
  private static let noMoreMessages: [UInt8] = [10]

  private static func push(_ number: UInt8) -> [UInt8] { [0x82, number, 2, 3, 4, 0, 0, 0, 0] }

  @Test func `pushes and answers in one read reach a client in the radio's order`() throws {
    let bench = try Bench()
    let client = try bench.client()
    for round in 0..<5 {
      bench.radio.escort = (12, Self.push(1), Self.push(2))
      client.send(Self.battery)
      let frames = try client.frames(3 * (round + 1)).suffix(3).map { Array($0.prefix(2)) }
      #expect(frames[0] == [0x82, 1] && frames[1].first == 12 && frames[2] == [0x82, 2], "\(frames)")
    }
  }

  @Test func `commands that arrive together are answered in order, by the radio and by the store`() throws {
    let bench = try Bench()
    let client = try bench.client()
    client.send(Self.battery, Self.nextMessage, [5], Self.nextMessage, [200], Self.battery)
    let codes = try client.frames(6).map { $0[0] }
    #expect(codes == [12, 10, 9, 10, 1, 12])
  }

  @Test func `a client's message goes on the air only if the disk can keep it`() throws {
    let bench = try Bench()
    let client = try bench.client()
    var (isFull, sent) = (true, 0)
    bench.radio.radio.refuses = { command in
      if case .sendChannelText = command { sent += 1 }
      return nil
    }
    let fill = { [store = bench.store] in
      guard isFull else { return }
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "database or disk is full") }
    }
    // For this turn, and after the others' own work, which commits.
    fill()
    bench.loop.afterTurn(fill)
    let text = Command.sendChannelText(type: .plain, slot: 0, time: 1_795_000_100, text: "kept?").encode()
    client.send(text)
    #expect(try client.frames(1) == [[1, 3]] && sent == 0)
    isFull = false
    bench.loop.turn(wait: false)
    client.send(text)
    #expect(try client.frames(2).last == [0] && sent == 1)
    #expect(bench.log.contains { $0.contains("cannot send now: the store is full") }, "\(bench.log.suffix(3))")
  }

  @Test func `a slot that a client changed without an answer of the radio is read again`() throws {
    let bench = try Bench(on: InventedMachine())
    let client = try bench.client()
    let output = bench.radio.radio.output
    var (isAsked, isLost) = (false, false)
    bench.radio.radio.refuses = { command in
      if case .setChannel = command { isAsked = true }
      return nil
    }
    bench.radio.radio.output = { frame in
      if isAsked, !isLost, frame == Reply.ok.encode() { isLost = true } else { output?(frame) }
    }
    let secret = try #require(ChannelSecret(bytes: Array(repeating: 7, count: 16)))
    client.send(Command.setChannel(Channel(slot: 1, name: "#trees", secret: secret)).encode())
    try bench.run("the slot") { try bench.store.channel(slot: 1)?.name == "#trees" && !bench.synchronizer.doubts(1) }
    #expect(try isLost && client.frames(1).count == 1)
  }

  @Test func `a contact that the radio lacks when a client names it puts the stored contacts in doubt`() throws {
    let bench = try Bench()
    let client = try bench.client()
    let keys = ([8, 9] as [UInt8]).compactMap { PublicKey(bytes: Array(repeating: $0, count: 32)) }
    bench.store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: keys[0], name: "n"), onRadio: true, heard: false, at: 1)
    }
    let before = bench.synchronizer.counters.fullContactLists
    func isDoubted() -> Bool {
      bench.synchronizer.contacts.areDoubted || bench.synchronizer.counters.fullContactLists > before
    }
    client.send(Command.getContactByKey(keys[1]).encode())
    #expect(try client.frames(1) == [[1, 2]] && !isDoubted(), "the store does not know it, either")
    client.send(Command.getContactByKey(keys[0]).encode())
    #expect(try client.frames(2).last == [1, 2] && isDoubted())
  }

  @Test func `the time of a client's login is kept once the room has answered it`() throws {
    let bench = try Bench()
    let client = try bench.client()
    let key = try #require(PublicKey(bytes: Array(repeating: 0x52, count: 32)))
    let answer = Push.loginSuccess(LoginSuccess(permissions: 0, prefix: key.prefix, serverTime: 1, acl: 2))
    bench.radio.radio.received(Command.addUpdateContact(Contact(key: key, type: .room, name: "Lobby")).encode())
    bench.synchronizer.refresh(key)
    try bench.run("the room to be known") { try bench.store.contact(key) != nil }
    for (number, password) in (["", "hello"] as [Text]).enumerated() {
      #expect(bench.messenger.rooms[key]?.known == nil, "a login without a password changes nothing there")
      client.send(Command.sendLogin(key, password: password).encode())
      #expect(try client.frames(2 * number + 1).last?.first == 6 && bench.messenger.rooms[key]?.known == nil)
      bench.radio.radio.push(answer)
      #expect(try client.frames(2 * number + 2).last == answer.encode())
    }
    #expect(bench.messenger.rooms[key]?.known.map { $0 >= 1_795_000_000 } == true)
  }

  @Test func `a client's login may have reached a room until that has answered`() throws {
    let bench = try Bench()
    let client = try bench.client()
    let key = try #require(PublicKey(bytes: Array(repeating: 0x52, count: 32)))
    bench.radio.radio.received(Command.addUpdateContact(Contact(key: key, type: .room, name: "Lobby")).encode())
    bench.synchronizer.refresh(key)
    try bench.run("the room to be known") { try bench.store.contact(key) != nil }
    client.send(Command.sendLogin(key, password: "hello").encode())
    #expect(try client.frames(1).last?.first == 6)
    let doubt = try #require(bench.messenger.rooms[key]?.doubt)
    #expect(doubt.firstLogin == doubt.last && doubt.last >= 1_795_000_000)
    bench.radio.radio.push(
      .loginSuccess(LoginSuccess(permissions: 0, prefix: key.prefix, serverTime: 1, acl: 2)))
    try bench.run("the answer") { bench.messenger.rooms[key]?.known != nil }
    #expect(bench.messenger.rooms[key]?.doubt == nil)
  }

  private static func text(_ words: Text, slot: UInt8 = 0) -> [UInt8] {
    Command.sendChannelText(type: .plain, slot: slot, time: 1_795_000_100, text: words).encode()
  }

  private func texts(_ bench: Bench) throws -> [String] {
    var texts: [String] = []
    try bench.store.eachOutgoing {
      texts.append($0.text.string)
      return true
    }
    return texts
  }

  @Test func `a text that the radio would cut is refused, and one with a NUL is stored as it is received`() throws {
    let bench = try Bench()
    let client = try bench.client()
    // The radio prepends "r0: ".
    client.send(Self.text(Text(bytes: Array(repeating: 97, count: 157))))
    #expect(try client.frames(1) == [[1, 3]] && texts(bench).isEmpty)
    client.send(Self.text(Text(bytes: Array("whole".utf8) + [0] + Array("unread".utf8))))
    #expect(try client.frames(2).last == [0] && texts(bench) == ["whole"])
  }

  @Test func `a text goes only to a slot that the radio has reported as used`() throws {
    let bench = try Bench()
    let client = try bench.client()
    // The radio has eight slots, and the last ones are empty.
    client.send(Self.text("never read", slot: 40), Self.text("empty", slot: 7))
    #expect(try client.frames(2) == [[1, 3], [1, 3]])
  }

  @Test func `a client's flood in a region costs the air time of the region's codes, too`() throws {
    let bench = try Bench()
    let client = try bench.client()
    var answers = 0
    /// The air time of the command, which the radio accepts.
    func cost(_ frame: [UInt8]) throws -> Int64 {
      let before = bench.messenger.status.airtime.used
      answers += 1
      client.send(frame)
      #expect(try client.frames(answers).last == [0])
      return bench.messenger.status.airtime.used - before
    }
    let plain = try cost(Self.text("word one"))
    #expect(try plain > 0 && cost(Self.text("word two")) == plain)
    #expect(try cost(Command.setFloodScopeKey(.key(.hashtag("#ottawa"))).encode()) == 0)
    #expect(try cost(Self.text("word six")) > plain)
  }

  @Test func `a client's advert waits a minute after the same one went through the mesh, from whomever`() throws {
    let bench = try Bench(on: InventedMachine())
    let advert = SelfAdvert(bench.messenger, SelfAdvert.Settings())
    let (client, other) = (try bench.client(), try bench.client())
    let flood = Command.sendSelfAdvert(flood: true).encode()
    client.send(flood)
    #expect(try client.frames(1) == [[0]])
    other.send(flood)
    #expect(try other.frames(1) == [[1, 3]])
    #expect(bench.log.contains { $0.contains("cannot send an advert") && $0.contains("again in") })
    other.send(Command.sendSelfAdvert(flood: false).encode())
    #expect(try other.frames(2).last == [0])
    bench.pass(.seconds(61))
    other.send(flood)
    #expect(try other.frames(3).last == [0])
    withExtendedLifetime(advert) {}
  }

  @Test func `without a link a client's message costs no air time`() throws {
    let bench = try Bench()
    let client = try bench.client()
    client.send(Self.text("first"))
    #expect(try client.frames(1) == [[0]])
    let used = bench.messenger.status.airtime.used
    #expect(used > 0)
    bench.radio.stop()
    try bench.run("the link is lost") { bench.synchronizer.connection.state != .up }
    client.send(Self.text("second"))
    #expect(try client.frames(2).last == [1, 4] && texts(bench) == ["first"])
    #expect(bench.messenger.status.airtime.used == used)
  }

  @Test func `a connection has a position of its own only when it asks for a message`() throws {
    let bench = try Bench(isThere: false)
    let place = "apps/127.0.0.1/1"
    let silent = try bench.client()
    silent.close()
    try bench.run("it to be gone") { bench.clients == 0 }
    #expect(try bench.store.clientCursor(place) == nil)
    let client = try bench.client()
    client.send(Self.nextMessage)
    #expect(try client.frames(1) == [Self.noMoreMessages] && bench.store.clientCursor(place) == 0)
  }

  @Test func `a client that sends 65 commands without waiting is disconnected, and none is carried out`() throws {
    let bench = try Bench(isThere: false)
    let client = try bench.client()
    client.send(raw: (0..<65).flatMap { _ in SerialFraming.wrap(Self.nextMessage, .toRadio) })
    #expect(client.isDisconnected())
    #expect(client.frames.isEmpty)
    #expect(bench.log.contains { $0.hasSuffix("disconnected: 64 commands sent without waiting") })
    let other = try bench.client()
    other.send(raw: (0..<64).flatMap { _ in SerialFraming.wrap(Self.nextMessage, .toRadio) })
    #expect(try other.frames(64).allSatisfy { $0 == Self.noMoreMessages })
  }

  @Test func `bytes after a frame that are no frame end the connection before the frame is carried out`() throws {
    let bench = try Bench(isThere: false)
    let client = try bench.client()
    client.send(raw: SerialFraming.wrap(Self.nextMessage, .toRadio) + [10])
    #expect(client.isDisconnected() && client.frames.isEmpty)
    #expect(bench.log.contains { $0.contains("disconnected: not the companion protocol") })
  }

  @Test func `an incomplete frame ends the connection after 30 s, and a quiet client stays`() throws {
    let bench = try Bench(isThere: false, on: InventedMachine())
    let (half, silent) = (try bench.client(), try bench.client())
    for client in [half, silent] {
      client.send(Self.nextMessage)
      #expect(try client.frames(1) == [Self.noMoreMessages])
    }
    half.send(raw: [0x3C, 3])
    bench.loop.turn(wait: true)
    let begun = bench.loop.now
    #expect(half.isDisconnected())
    #expect((29...31).contains((bench.loop.now - begun).inSeconds))
    #expect(bench.log.contains { $0.hasSuffix("disconnected: an incomplete frame") })
    let later = bench.loop.now + .seconds(3600)
    bench.loop.schedule(at: later) {}
    while bench.loop.now < later { bench.loop.turn(wait: true) }
    silent.send(Self.nextMessage)
    #expect(try silent.frames(2) == [Self.noMoreMessages, Self.noMoreMessages])
  }

  @Test(arguments: [[], [0x3C], SerialFraming.wrap([200], .toRadio)])
  func `a client that sends no command within 10 s is disconnected`(said: [UInt8]) throws {
    let bench = try Bench(isThere: false, on: InventedMachine())
    let client = try bench.client()
    let begun = bench.loop.now
    client.send(raw: said)
    #expect(client.isDisconnected())
    #expect((9...11).contains((bench.loop.now - begun).inSeconds))
    #expect(bench.log.contains { $0.hasSuffix("disconnected: no command within 10 s") }, "\(bench.log)")
  }

  @Test func `connections without a command block nobody, and a client with a command keeps its place`() throws {
    let bench = try Bench(isThere: false, maxClients: 3)
    let real = try bench.client()
    real.send(Self.nextMessage)
    #expect(try real.frames(1) == [Self.noMoreMessages])
    let silent = [try bench.client(), try bench.client()]
    var others: [TestClient] = []
    for silent in silent {
      let other = try TestClient(bench.port, on: bench.loop)
      #expect(silent.isDisconnected())
      other.send(Self.nextMessage)
      #expect(try other.frames(1) == [Self.noMoreMessages])
      others.append(other)
    }
    #expect(try TestClient(bench.port, on: bench.loop).isDisconnected())
    for client in [real] + others { client.send(Self.nextMessage) }
    for client in [real] + others { #expect(try client.frames(2).count == 2) }
  }

  @Test func `of connections without a command, one of the address with the most is closed`() throws {
    let bench = try Bench(isThere: false, maxClients: 3)
    let slow = try bench.client(from: 2)
    let crowd = [try bench.client(from: 3), try bench.client(from: 3)]
    let further = try TestClient(bench.port, on: bench.loop, from: 3)
    #expect(crowd[0].isDisconnected())
    slow.send(Self.nextMessage)
    #expect(try slow.frames(1) == [Self.noMoreMessages])
    for client in [crowd[1], further] {
      client.send(Self.nextMessage)
      #expect(try client.frames(1) == [Self.noMoreMessages])
    }
  }

  @Test func `connections without a command write a limited number of log lines`() throws {
    let bench = try Bench(isThere: false)
    for _ in 0..<50 {
      let stranger = try bench.client()
      stranger.send(raw: Array("GET / HTTP/1.1".utf8))
      #expect(stranger.isDisconnected())
    }
    #expect(bench.log.count { $0.contains("disconnected") } == 20)
  }

  @Test func `a client that does not read is disconnected at 128 KiB, and the others get everything`() throws {
    let bench = try Bench(isThere: false)
    let deaf = try TestClient(bench.port, on: bench.loop, receiveBuffer: 4096)
    try bench.run("a client") { bench.clients == 1 }
    let other = try bench.client()
    let frame = [0x82] + Array(repeating: UInt8(7), count: 170)
    let push = Push.sendConfirmed(ack: AckCode(value: 1), tripTime: 0)
    var count = 0
    try bench.run("to be disconnected") {
      for _ in 0..<100 { bench.proxy.heard(push, frame) }
      count += 100
      bench.loop.turn(wait: false)
      _ = other.read()
      return bench.clients == 1
    }
    #expect(bench.log.contains { $0.hasSuffix("/1 disconnected: over 128 KiB unread") }, "\(bench.log)")
    #expect(try other.frames(count).count == count)
    _ = deaf
  }

  @Test func `a client that takes nothing of what waits loses its place, a slow or a silent one does not`() throws {
    let bench = try Bench(isThere: false, on: InventedMachine(), maxClients: 3)
    let deaf = try TestClient(bench.port, on: bench.loop, receiveBuffer: 4096)
    try bench.run("the deaf client") { bench.clients == 1 }
    let slow = try TestClient(bench.port, on: bench.loop, receiveBuffer: 4096)
    try bench.run("the slow client") { bench.clients == 2 }
    let silent = try bench.client()
    for client in [deaf, slow, silent] {
      client.send(Self.nextMessage)
      #expect(try client.frames(1) == [Self.noMoreMessages])
    }
    let frame = [0x82] + Array(repeating: UInt8(7), count: 170)
    for _ in 0..<400 { bench.proxy.heard(Push.sendConfirmed(ack: AckCode(value: 1), tripTime: 0), frame) }
    #expect(try silent.frames(401).count == 401)
    // The deaf client's kernel may take some more, in its own time.
    var (taken, left) = (bench.loop.now, bench.untaken("apps/127.0.0.1/1"))
    var lost: MonotonicTime?
    for _ in 0..<10 {
      let before = try #require(bench.untaken("apps/127.0.0.1/2"), "\(bench.log)")
      slow.readOnce()
      // Without the clock: the kernels talk in their own time.
      let hasTaken = turnAtOnce(bench.loop) { bench.untaken("apps/127.0.0.1/2") != before }
      try #require(hasTaken, "the slow client has read, at \(before)")
      bench.pass(.seconds(60))
      if lost == nil, bench.clients == 2 { lost = bench.loop.now }
      let now = bench.untaken("apps/127.0.0.1/1")
      if lost == nil, now != left { (taken, left) = (bench.loop.now, now) }
    }
    #expect(bench.untaken("apps/127.0.0.1/2") ?? 0 > 0, "the slow client had something waiting all the time")
    // Looked at once a minute: it took the last of it up to a minute before `taken`.
    let seconds = lost.map { ($0 - taken).inSeconds }
    #expect(seconds.map { (60...180).contains($0) } == true, "\(String(describing: seconds))")
    #expect(deaf.isDisconnected())
    let lines = bench.log.filter { $0.contains("disconnected") }
    #expect(lines.count == 1 && lines[0].hasSuffix("/1 disconnected: it took nothing for 120 s of what waits for it"))
    silent.send(Self.nextMessage)
    #expect(try silent.frames(402).last == Self.noMoreMessages)
    let another = try bench.client()
    another.send(Self.nextMessage)
    #expect(try another.frames(1) == [Self.noMoreMessages], "the place is free")
  }

  @Test func `a message of a client that disconnects before the radio's answer is stored nevertheless`() throws {
    let bench = try Bench()
    let client = try bench.client()
    client.send([3, 0, 0, 0, 0, 0, 106] + Array("hello".utf8))
    client.close()
    try bench.run("the client to be gone") { bench.clients == 0 }
    try bench.run("the message") {
      var texts: [String] = []
      try bench.store.eachOutgoing {
        texts.append($0.text.string)
        return true
      }
      return texts == ["hello"]
    }
  }

  @Test(arguments: [nil, RadioError.tableFull])
  func `a client's message is on disk before the radio gets it, and one that the radio refuses has failed`(
    _ error: RadioError?
  ) throws {
    let bench = try Bench()
    let client = try bench.client()
    var kept: [OutgoingState?] = []
    func row(_ store: Store) throws -> OutgoingMessage? {
      var found: OutgoingMessage?
      try store.eachOutgoing {
        found = $0
        return true
      }
      return found
    }
    bench.radio.radio.refuses = { command in
      guard case .sendChannelText = command else { return nil }
      // `try?`: without a store the message is missing.
      let copy = try? Store(Store.Settings(location: bench.scratch.afterCut("gw.db")))
      kept.append(copy.flatMap { try? row($0)?.state })
      return error
    }
    let text = Command.sendChannelText(type: .plain, slot: 0, time: 1_795_000_100, text: "kept?").encode()
    client.send(text)
    #expect(try client.frames(1) == [error == nil ? [0] : [1, 3]])
    #expect(kept == [.sent])
    bench.loop.turn(wait: false)
    #expect(try row(bench.store)?.state == (error == nil ? .sent : .failed))
    #expect(try row(bench.store)?.attempts.accepted == (error == nil ? 1 : 0))
    bench.radio.radio.refuses = { _ in nil }
    client.send(text)
    _ = try client.frames(2)
    bench.loop.turn(wait: false)
    let again = try #require(try row(bench.store))
    #expect(again.state == .sent && again.reason == nil && again.attempts.accepted == (error == nil ? 2 : 1))
  }

  @Test func `clients keep to the hour of a channel`() throws {
    var settings = Messenger.Settings()
    settings.delivery.budget.channelMessages = 10
    let bench = try Bench(messaging: settings)
    let client = try bench.client()
    for number in 0..<UInt32(12) {
      client.send(Command.sendChannelText(type: .plain, slot: 0, time: 1_795_000_100 + number, text: "x").encode())
    }
    // Of the hour, clients have four fifths.
    #expect(try client.frames(12) == Array(repeating: [0], count: 8) + Array(repeating: [1, 3], count: 4))
  }

  @Test func `a client beyond the limit is rejected, and a disconnected client's place is free at once`() throws {
    let bench = try Bench(isThere: false, maxClients: 2)
    let (first, second) = (try bench.client(), try bench.client())
    for client in [first, second] {
      client.send(Self.nextMessage)
      #expect(try client.frames(1) == [Self.noMoreMessages])
    }
    #expect(try TestClient(bench.port, on: bench.loop).isDisconnected())
    first.close()
    try bench.run("the first to be gone") { bench.clients == 1 }
    let again = try bench.client()
    #expect(bench.proxy.reports[0].clients.map(\.name) == ["apps/127.0.0.1/1", "apps/127.0.0.1/2"])
    again.send(Self.nextMessage)
    second.send(Self.nextMessage)
    #expect(try again.frames(1) + again.frames(1) == second.frames(2))
  }

  @Test func `a change of an address's settings restarts its listening, and disconnects its clients`() throws {
    let bench = try Bench(isThere: false)
    let client = try bench.client()
    bench.listen(3)
    #expect(client.isDisconnected())
    #expect(bench.log.contains { $0.hasSuffix("disconnected: reloaded") })
    let again = try bench.client()
    again.send(Self.nextMessage)
    #expect(try again.frames(1) == [Self.noMoreMessages])
    #expect(bench.proxy.reports.map(\.trouble) == [nil])
  }
}
