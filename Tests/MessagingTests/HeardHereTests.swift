// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Store
import TestSupport
import Testing
import UntrustedText

@testable import Messaging

/// Messages that another gateway has heard, and those that the local radio has.
@Suite struct HeardHereTests {
  private static let time: UInt32 = 1_795_000_500

  private static func relayed(_ text: String) -> SendRequest {
    let digest = ChannelSecret.publicChannel.digest
    let identity = Store.identity(
      ofMessageOn: digest, senderName: "r1", senderTime: time, text: Text(text))
    return SendRequest(
      to: digest, text: Text("⇄r1@hill: \(text)"), key: RelayMark.sign + identity, priority: .relayed)
  }

  @Test
  func `a message of another place that waited when the database was put back is not sent`() throws {
    let bench = try Bench(on: InventedMachine())
    var sent = 0
    bench.swallow { command in
      if case .sendChannelText = command { sent += 1 }
      return false
    }
    let waits = try #require(try bench.send(Self.relayed("said there")).get().first?.key)
    // As when this database is found to be an older copy of itself: what waits in it may be on the air.
    try bench.store.renewEpoch()
    try bench.run("its end") { try bench.state(waits).hasEnded }
    #expect(try bench.state(waits).reason == "before_restore" && sent == 0 && bench.state(waits).airtime == 0)

    let news = try #require(try bench.send(Self.relayed("said later")).get().first?.key)
    try bench.run("the next one on the air") { try bench.state(news).state == .sent }
    #expect(sent == 1)
  }

  @Test func `a text of ours that the radio hands over is not received, and one of others under our name is`() throws {
    let bench = try Bench(on: InventedMachine())
    _ = try bench.send(SendRequest(to: "Public", text: "hello", key: "k")).get()
    try bench.run("it on the air") { try bench.state("k").state == .sent }
    let time = try #require(try bench.state("k").senderTime)
    // As after a restart of the radio, which has forgotten what it has sent.
    bench.own.injectChannelText("r0: hello", slot: 0, time: time)
    bench.own.injectChannelText("r0: hello", slot: 0, time: time + 1)
    bench.own.injectChannelText("r1: hello", slot: 0, time: time)
    try bench.run("those of others") { try bench.store.messageCount() == 2 }
    var received: [String] = []
    try bench.store.eachMessage(limit: 10) { message in
      received.append("\(message.senderName?.string ?? "") \((message.senderTime ?? 0) &- time)")
      return true
    }
    #expect(received == ["r0 1", "r1 0"])
  }

  @Test
  func `a message that the radio received itself is not relayed to the mesh, even if its notification was lost`()
    throws
  {
    let bench = try Bench(on: InventedMachine())
    var (sent, asked, isAnswered) = (0, 0, true)
    bench.swallow { command in
      if case .sendChannelText = command { sent += 1 }
      guard command == .syncNextMessage else { return false }
      asked += 1
      return !isAnswered
    }
    bench.lose { $0.first == PushCode.messageWaiting.rawValue }
    bench.other.received(
      Command.sendChannelText(type: .plain, slot: 0, time: Self.time, text: "heard by both").encode())
    try bench.run("the radio has it") { bench.own.queuedMessages == 1 }
    let heard = try #require(try bench.send(Self.relayed("heard by both")).get().first?.key)
    try bench.run("its end") { try bench.state(heard).hasEnded }
    #expect(try bench.state(heard).reason == "heard_by_radio" && sent == 0 && bench.state(heard).airtime == 0)

    let news = try #require(try bench.send(Self.relayed("heard there alone")).get().first?.key)
    try bench.run("the other one on the air") { try bench.state(news).state == .sent }
    #expect(sent == 1)

    // A message that a repeater brings seconds after the hub.
    let later = try #require(try bench.send(Self.relayed("heard here later")).get().first?.key)
    let comes = bench.loop.schedule(after: .seconds(8)) {
      bench.other.received(
        Command.sendChannelText(type: .plain, slot: 0, time: Self.time, text: "heard here later").encode())
    }
    defer { comes.cancel() }
    try bench.run("its end") { try bench.state(later).hasEnded }
    #expect(try bench.state(later).reason == "heard_by_radio" && sent == 1)

    // A radio that does not hand over its messages may have the same one.
    (isAnswered, asked) = (false, 0)
    let doubtful = try #require(try bench.send(Self.relayed("perhaps heard by both")).get().first?.key)
    try bench.run("three questions") { asked >= 3 }
    #expect(try bench.state(doubtful).state == .pending && sent == 1)
    isAnswered = true
    try bench.run("it on the air, after an answer") { try bench.state(doubtful).state == .sent }
  }
}
