// SPDX-License-Identifier: MIT

import Companion
import Store
import TestSupport
import Testing
import Timing

@testable import EventLoop
@testable import Sync

@Suite struct DoubtTests {
  private static func channel(_ name: Text, _ byte: UInt8) -> Channel {
    Channel(slot: 1, name: name, secret: .init(bytes: Array(repeating: byte, count: 16))!)
  }

  @Test func `a message on a slot that did not answer has no known channel until the slot answers`() throws {
    let pair = try Pair(channels: 4, on: InventedMachine())
    pair.radio.received(Command.setChannel(Self.channel("#trees", 7)).encode())
    pair.sync()
    #expect(try pair.store.channel(slot: 1)?.name == "#trees" && !pair.synchronizer.doubts(1))
    pair.radio.received(Command.setChannel(Self.channel("#secret", 8)).encode())
    pair.link.losesReply = { if case .channelInfo(let channel) = $0 { channel.slot == 1 } else { false } }
    pair.link.cut()
    pair.run(until: { pair.synchronizer.counters.connections == 2 && pair.synchronizer.isServing }, "again")
    #expect(pair.synchronizer.doubts(1) && !pair.synchronizer.doubts(0) && !pair.synchronizer.doubts(2))
    guard case .failed(let words, .channels) = pair.synchronizer.state else {
      Issue.record("\(pair.synchronizer.state)")
      return
    }
    #expect(words == "channel 1: no answer; messages are still received and sent")
    pair.radio.injectChannelText("Eve: for #secret", slot: 1, time: 1)
    pair.run(until: { pair.stored.count == 1 }, "it is stored")
    pair.link.losesReply = { _ in false }
    var asked: [UInt8] = []
    pair.link.onCommand = { if case .getChannel(let slot) = $0 { asked.append(slot) } }
    pair.run(until: { pair.synchronizer.state == .synced }, "by itself")
    #expect(asked == [1], "the others are known from pushes")
    #expect(try pair.store.channel(slot: 1)?.name == "#secret" && !pair.synchronizer.doubts(1))
    pair.radio.injectChannelText("Eve: more", slot: 1, time: 2)
    pair.run(until: { pair.stored.count == 2 }, "it is stored")
    var channels: [String?] = []
    try pair.store.eachMessage(limit: 10) { message in
      channels.append(message.channel)
      return true
    }
    #expect(channels == [nil, Self.channel("#secret", 8).secret.digest])
  }

  @Test func `a radio that restarted or did not know a contact is asked for all contacts`() throws {
    let pair = try Pair(on: InventedMachine())
    func lists() -> [Int] {
      [pair.synchronizer.counters.fullContactLists, pair.synchronizer.counters.incrementalContactLists]
    }
    func again() {
      let before = pair.synchronizer.counters.connections
      pair.link.cut()
      pair.run(
        until: { pair.synchronizer.counters.connections == before + 1 && pair.synchronizer.state == .synced }, "again")
    }
    // The radio reports whole seconds: changes within the first second are requested again.
    func aWhile() {
      let moment = pair.loop.now
      pair.run(until: { pair.loop.now > moment + .seconds(30) }, "a while")
    }
    pair.sync()
    again()
    #expect(lists() == [1, 1])
    pair.radio.received(Command.reboot.encode())
    aWhile()
    again()
    #expect(lists() == [2, 1], "contacts that the radio had not written are gone")
    again()
    #expect(lists() == [2, 2])
    var first: PublicKey?
    try pair.store.eachContact {
      first = $0.contact.key
      return false
    }
    pair.radio.received(Command.removeContact(try #require(first)).encode())
    pair.synchronizer.radioDidNotKnow(try #require(first))
    pair.run(until: { pair.synchronizer.counters.fullContactLists == 3 && pair.synchronizer.state == .synced }, "all")
    #expect(try pair.store.contactCount(onRadio: true) == 2)
    pair.synchronizer.radioDidNotKnow(try #require(first))
    #expect(pair.synchronizer.knowsAllContacts, "that was known")
  }

  @Test(arguments: [0, 1, 2])
  func `a radio that does not report its start is asked again, and then for all contacts`(
    _ lost: Int
  ) throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    var left = lost
    pair.link.losesReply = { reply in
      guard left > 0, case .stats = reply else { return false }
      left -= 1
      return true
    }
    pair.link.cut()
    pair.run(until: { pair.synchronizer.counters.connections == 2 && pair.synchronizer.state == .synced }, "again")
    #expect(left == 0 && pair.synchronizer.counters.fullContactLists == (lost == 2 ? 2 : 1))
  }
}
