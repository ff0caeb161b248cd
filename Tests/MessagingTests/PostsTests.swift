// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshIdentity
import Store
import TestSupport
import Testing

@testable import Messaging

/// A room takes a post with another time for another post.
@Suite struct PostsTests {
  private let room = Contact(
    key: PrivateIdentity(seed: Array(repeating: 0x52, count: 32)).publicKey, type: .room, name: "Lobby")

  private func join(_ bench: Bench) throws {
    bench.own.received(Command.addUpdateContact(room).encode())
    bench.synchronizer.refresh(room.key)
    try bench.run("the room to be known") { try bench.store.contact(room.key) != nil }
  }

  /// Posts. The radio gets none of it.
  private func post(_ bench: Bench) throws -> Sent {
    let sent = Sent()
    bench.swallow { command in
      guard case .sendText(let text) = command else { return false }
      sent.times.append(text.time)
      return true
    }
    _ = try bench.send(SendRequest(to: "Lobby", text: "once", key: "p")).get()
    try bench.run("the command") { sent.times.count == 1 }
    return sent
  }

  /// The times of posts.
  private final class Sent { var times: [UInt32] = [] }

  @Test func `a post and a direct message with the same text have acknowledgements of their own`() throws {
    let bench = try Bench(on: InventedMachine())
    try join(bench)
    var times: [KeyPrefix: UInt32] = [:]
    bench.swallow { command in
      guard case .sendText(let text) = command else { return false }
      times[text.recipient] = text.time
      return true
    }
    // Both clocks are ahead by as much.
    let ahead = UInt32(bench.synchronizer.now.milliseconds / 1000) + 1000
    bench.messenger.senderClock = SenderClock(last: ahead, lastInRooms: ahead)
    _ = try bench.send(SendRequest(to: "Lobby", text: "the same", key: "p")).get()
    _ = try bench.send(SendRequest(to: "r1", text: "the same", key: "d")).get()
    try bench.run("both commands") { times.count == 2 }
    #expect(Set(times.values).count == 2, "\(times)")
    let codes = try (bench.state("p").attempts.codes, bench.state("d").attempts.codes)
    #expect(!codes.0.isEmpty && Set(codes.0).isDisjoint(with: codes.1))
  }

  enum Cut: CaseIterable { case answerLost, linkLost, killed }

  @Test(arguments: Cut.allCases)
  func `a post that may have arrived does not get another time when the room has answered something newer`(_ cut: Cut)
    throws
  {
    let bench = try Bench(on: InventedMachine())
    try join(bench)
    let sent = try post(bench)
    switch cut {
    case .answerLost: break
    case .linkLost: bench.swap(to: bench.own)
    case .killed:
      try bench.messenger.begin()
      bench.messenger.radioChanged()
    }
    bench.messenger.roomWasAsked(room.key, at: try #require(sent.times.first) + 60)
    try bench.run("its end") { try bench.state("p").hasEnded }
    #expect(try bench.state("p").reason == "no_acknowledgement" && sent.times.count == 1, "\(sent.times)")
    #expect(try bench.state("p").attempts.accepted == 1, "it may have been transmitted")
  }

  @Test func `what a room has had, and may have had, is known after a restart and when its radio is back`() throws {
    let bench = try Bench(on: InventedMachine())
    try join(bench)
    let ahead = try #require(bench.synchronizer.radioTime) + 50_000
    bench.messenger.roomWasAsked(room.key, at: ahead)
    #expect(bench.messenger.timePast(room.key) == ahead + 1)
    bench.messenger.roomMayHave(room.key, at: ahead + 7, isLogin: true)
    try bench.run("it is on disk") { try bench.store.roomTimes() == bench.messenger.rooms }
    let next = try Messenger(
      store: bench.store, synchronizer: bench.synchronizer, settings: Messenger.Settings(), on: bench.loop,
      log: Log(level: .error, sink: { _, _ in }))
    #expect(next.rooms == bench.messenger.rooms && next.rooms[room.key]?.doubt?.firstLogin == ahead + 7)
    #expect(next.timePast(room.key) == ahead + 2)
    let mine = try #require(bench.store.radioKey)
    bench.swap(to: bench.other)
    try bench.run("the other radio") { bench.store.radioKey != mine && bench.synchronizer.isServing }
    #expect(bench.messenger.rooms.isEmpty)
    bench.swap(to: bench.own)
    try bench.run("the first radio") { bench.store.radioKey == mine && bench.synchronizer.isServing }
    #expect(bench.messenger.timePast(room.key) == ahead + 3)
  }

  @Test func `a post ends when the room has taken a newer one of a program that shares the radio`() throws {
    let bench = try Bench(on: InventedMachine())
    try join(bench)
    let sent = try post(bench)
    let newer = SharedMessage(
      to: .node(room.key.prefix, attempt: 0), text: "of a phone", time: try #require(sent.times.first) + 600)
    var kept: OutgoingMessage?
    _ = bench.loop.begin {
      // `try?`: without a row the wait below fails.
      kept = try? await bench.messenger.keepShared(newer, from: "apps")
    }
    try bench.run("the phone's post is on disk") { kept != nil }
    for code in try #require(kept).attempts.codes { bench.messenger.received(.sendConfirmed(ack: code, tripTime: 5)) }
    try bench.run("its end") { try bench.state("p").hasEnded }
    #expect(try bench.state("p").reason == "no_acknowledgement" && sent.times.count == 1, "\(sent.times)")
    for (count, key) in [(2, "q"), (3, "r")] {
      _ = try bench.send(SendRequest(to: "Lobby", text: "after it", key: key)).get()
      try bench.run("the next post") { sent.times.count >= count }
      _ = try bench.messenger.cancel(key: key)
    }
    let times = sent.times
    #expect(times[1] > newer.time && times[2] > times[1], "the room takes nothing that is older: \(times)")
  }
}
