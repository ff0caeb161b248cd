// SPDX-License-Identifier: MIT

import Companion
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import EventLoop
@testable import Sync

@Suite struct DoubtTests {
  private static func channel(_ name: Text, _ byte: UInt8) -> Channel {
    Channel(slot: 1, name: name, secret: .init(bytes: Array(repeating: byte, count: 16))!)
  }

  private func firstContact(_ pair: Pair) throws -> PublicKey {
    var first: PublicKey?
    try pair.store.eachContact {
      first = $0.contact.key
      return false
    }
    return try #require(first)
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

  @Test func `the radio's clock is set once ours is synchronised, and again when a doubt about it has ended`() throws {
    let machine = InventedMachine()
    machine.isWallSynchronised = false
    let pair = try Pair(on: machine)
    var set: [UInt32] = []
    pair.link.onCommand = { if case .setDeviceTime(let time) = $0 { set.append(time) } }
    func aWhile() {
      let end = pair.loop.now + .seconds(150)
      pair.run(until: { pair.loop.now > end && pair.synchronizer.state == .synced }, "a while")
    }
    pair.sync()
    aWhile()
    #expect(set.isEmpty)
    machine.isWallSynchronised = true
    aWhile()
    #expect(set.count == 1)
    machine.wallOffset = 3_600_000
    aWhile()
    #expect(set.count == 1 && !pair.store.judgingNow.trusted)
    pair.store.confirmClock()
    aWhile()
    #expect(set.count == 2 && set.last.map { Int64($0) + 150 >= machine.wallMilliseconds / 1000 } == true, "\(set)")
    aWhile()
    #expect(set.count == 2)
  }

  @Test func `a radio that did not answer about its clock is asked again`() throws {
    let pair = try Pair(on: InventedMachine())
    var set = 0
    pair.link.onCommand = { if case .setDeviceTime = $0 { set += 1 } }
    pair.link.losesReply = { if case .currentTime = $0 { true } else { false } }
    pair.sync()
    #expect(set == 0)
    pair.link.losesReply = { _ in false }
    pair.pass(700)
    #expect(set == 1)
  }

  @Test func `a radio that does not confirm another private key is met again`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    let other = VirtualRadio(VirtualRadioSettings(name: "other", seed: 9), on: pair.loop)
    var key: [UInt8] = []
    other.output = { frame in
      // `try?`: it answers the one question.
      if case .reply(.privateKey(let bytes))? = try? RadioFrame(decoding: frame) { key = bytes }
    }
    other.received(Command.exportPrivateKey.encode())
    try #require(!key.isEmpty)
    var isLost = false
    pair.link.losesReply = { reply in
      guard !isLost, reply == .ok else { return false }
      isLost = true
      return true
    }
    _ = pair.connection.submit(.importPrivateKey(key), .interactive)
    pair.run(until: { pair.connection.identity?.info.key == other.key }, "its new identity")
    pair.run(until: { pair.synchronizer.isAttached && pair.synchronizer.state == .synced }, "synced")
    #expect(isLost && pair.losses == 0 && pair.store.radioKey == other.key)
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
    pair.sync()
    again()
    #expect(lists() == [1, 1])
    pair.radio.received(Command.reboot.encode())
    // The radio reports whole seconds: changes within the first second are requested again.
    pair.pass(30)
    again()
    #expect(lists() == [2, 1], "contacts that the radio had not written are gone")
    again()
    #expect(lists() == [2, 2])
    let first = try firstContact(pair)
    pair.radio.received(Command.removeContact(first).encode())
    pair.synchronizer.radioDidNotKnow(first)
    pair.run(until: { pair.synchronizer.counters.fullContactLists == 3 && pair.synchronizer.state == .synced }, "all")
    #expect(try pair.store.contactCount(onRadio: true) == 2)
    pair.synchronizer.radioDidNotKnow(first)
    #expect(pair.synchronizer.knowsAllContacts, "that was known")
  }

  @Test func `contacts that the radio lacks when programs name them cause one full list in ten minutes`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    var keys: [PublicKey] = []
    try pair.store.eachContact { stored in
      keys.append(stored.contact.key)
      return true
    }
    try #require(keys.count == 3)
    func lists(after key: PublicKey) -> Int {
      pair.synchronizer.radioDidNotKnowForProgram(key)
      pair.pass(30)
      return pair.synchronizer.counters.fullContactLists
    }
    let stranger = try #require(PublicKey(bytes: Array(repeating: 9, count: 32)))
    #expect(lists(after: stranger) == 1, "anybody can name a key that nobody has")
    pair.radio.received(Command.removeContact(keys[0]).encode())
    #expect(lists(after: keys[0]) == 2)
    #expect(try pair.store.contactCount(onRadio: true) == 2)
    pair.radio.received(Command.removeContact(keys[1]).encode())
    #expect(lists(after: keys[1]) == 2)
    pair.pass(600)
    #expect(lists(after: keys[1]) == 3)
    #expect(try pair.store.contactCount(onRadio: true) == 1)
  }

  @Test(arguments: [true, false])
  func `a contact that the gateway changed and could not read again causes a full list`(_ isCut: Bool) throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    pair.link.swallows = { if case .getContactByKey = $0 { true } else { false } }
    pair.synchronizer.refresh(try firstContact(pair))
    if isCut { pair.link.cut() }
    pair.run(
      until: { pair.synchronizer.counters.fullContactLists == 2 && pair.synchronizer.state == .synced }, "all of them")
    #expect(pair.synchronizer.knowsAllContacts)
  }

  @Test func `the radio's whole table is read again after a day, also over a link that stays up`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    // Nobody reports it.
    pair.radio.received(Command.removeContact(try firstContact(pair)).encode())
    pair.pass(90_000)
    #expect(pair.synchronizer.counters.fullContactLists == 2 && pair.synchronizer.counters.connections == 1)
    #expect(try pair.store.contactCount(onRadio: true) == 2)
  }

  @Test func `a doubt about the contacts outlives a list that does not end`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.link.returnsAtOnce = true
    pair.sync()
    var isCut = false
    pair.link.onCommand = { [unowned pair] command in
      guard !isCut, case .getContacts = command else { return }
      isCut = true
      pair.link.cut()
    }
    let before = pair.synchronizer.counters.fullContactLists
    pair.synchronizer.restart(fully: true)
    pair.run(
      until: { pair.synchronizer.counters.connections == 2 && pair.synchronizer.state == .synced }, "synced again")
    #expect(isCut && pair.synchronizer.counters.fullContactLists == before + 1)
    #expect(!pair.synchronizer.contacts.areDoubted)
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

  @Test func `a radio that does not tell its settings is not asked again once the gateway stops`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    var asked = 0
    pair.link.onCommand = { if case .appStart = $0 { asked += 1 } }
    pair.link.losesReply = { if case .selfInfo = $0 { true } else { false } }
    pair.synchronizer.radioWasRestarted()
    #expect(pair.synchronizer.tasks.count == 1)
    pair.run(until: { asked == 1 }, "it is asked")
    pair.synchronizer.stop()
    pair.run(until: { pair.synchronizer.tasks.count == 0 }, "the task ends")
    #expect(asked == 1)
  }
}
