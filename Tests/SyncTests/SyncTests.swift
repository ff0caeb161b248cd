// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Foundation
import SQLite
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import Sync

@Suite struct RadioQueueTests {
  private let radio = PublicKey(bytes: Array(repeating: 1, count: 32))!
  private let other = PublicKey(bytes: Array(repeating: 2, count: 32))!

  @Test func `messages after an empty queue are new, and earlier ones may have waited since it was empty`() {
    var queue = RadioQueue()
    func at(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }
    #expect(queue.wait(now: at(1)) == .unknown)
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    #expect(queue.wait(now: at(5)) == .unknown, "nobody knows how long")
    _ = queue.wasEmpty(askedAt: at(10))
    #expect(queue.wait(now: at(70)) == .none)
    #expect(queue.wait(now: at(500)) == .atMost(seconds: 490), "the disk was full, and nobody asked")
    _ = queue.wasEmpty(askedAt: at(600))
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    #expect(queue.wait(now: at(602.5)) == .atMost(seconds: 3), "the link came back at once")
    #expect(queue.wait(now: at(11_400)) == .atMost(seconds: 10_800))
    queue.connected(to: other, now: MonotonicTime(seconds: 1))
    #expect(queue.wait(now: at(602.5)) == .unknown, "another radio's queue")
  }

  /// The reported loss after `taken` of the waiting messages were read, while hints arrived, from a radio that was away.
  private func loss(_ taken: Int, hints: Int = 0, in queue: inout RadioQueue, away: Bool = true) -> RadioQueue.Loss? {
    if away { queue.connected(to: radio, now: MonotonicTime(seconds: 1)) }
    for _ in 0..<hints { queue.hinted(now: MonotonicTime(seconds: 1)) }
    for _ in 0..<taken { queue.took() }
    return queue.wasEmpty(askedAt: MonotonicTime(seconds: 1))
  }

  @Test func `a full queue may have lost messages, and a radio with more hints than messages has lost some`() {
    var queue = RadioQueue()
    #expect(loss(0, in: &queue) == nil && loss(15, in: &queue) == nil)
    #expect(loss(16, in: &queue) == .init(waited: 16, atLeast: nil))
    #expect(loss(16, in: &queue) == .init(waited: 16, atLeast: nil), "again")
    #expect(loss(19, hints: 3, in: &queue) == .init(waited: 19, atLeast: nil), "three came while it was emptied")
    #expect(loss(16, hints: 16, in: &queue, away: false) == nil, "each came and was taken")
    #expect(loss(16, hints: 24, in: &queue, away: false) == .init(waited: 16, atLeast: 8), "nobody asked for a while")
    #expect(loss(5, hints: 9, in: &queue, away: false) == .init(waited: 5, atLeast: 4), "the radio has restarted")
    #expect(loss(40, in: &queue) == nil)
    #expect(loss(16, in: &queue) == nil, "it has held forty")
    #expect(loss(128, in: &queue) == .init(waited: 128, atLeast: nil))
    #expect(loss(16, in: &queue) == nil, "it has held 128")
    queue.connected(to: other, now: MonotonicTime(seconds: 1))
    #expect(loss(16, in: &queue) == .init(waited: 16, atLeast: nil), "another radio was attached in between")
  }
}

@Suite struct ContactSyncTests {
  private let radio = PublicKey(bytes: Array(repeating: 1, count: 32))!
  private let other = PublicKey(bytes: Array(repeating: 2, count: 32))!

  private func sync(
    radio: PublicKey? = nil, clock: UInt32? = 2000, started: Int64? = nil, fullAt: Int64 = 0, now: Int64 = 1000,
    tries: Int = 0
  ) -> ContactSync {
    ContactSync(
      known: (self.radio, 1500, fullAt), radio: radio ?? self.radio, radioClock: clock, started: started, now: now,
      tries: tries)
  }

  @Test func `a full list is fetched the first time, for another radio, after a clock reset, and once a day`() {
    #expect(ContactSync(known: nil, radio: radio, radioClock: 1, now: 1).kind == .full)
    #expect(sync().kind == .incremental(since: 1499), "one second before the watermark: it is exclusive")
    #expect(sync(radio: other).kind == .full)
    #expect(sync(clock: 1499).kind == .full)
    #expect(sync(now: 86_400_000).kind == .full)
    #expect(sync(fullAt: 5000).kind == .full, "our own clock went back")
    #expect(sync(tries: 1).kind == .full)
    #expect(sync(started: 400, fullAt: 300).kind == .full, "contacts that the radio had not written are gone")
    #expect(sync(started: 200, fullAt: 300).kind != .full)
  }

  @Test func `wrong totals cause a full list, and an incomplete one is repeated, then given up`() {
    let unchanged = sync().ended(total: 5, received: 0, lastModified: 0, known: 5)
    #expect(unchanged == .complete(watermark: 1500, removeMissing: false))
    #expect(sync().ended(total: 4, received: 0, lastModified: 0, known: 5) == .again)
    let full = sync(tries: 1)
    #expect(full.ended(total: 4, received: 3, lastModified: 9, known: 5) == .again)
    let whole = full.ended(total: 4, received: 4, lastModified: 9, known: 5)
    #expect(whole == .complete(watermark: 9, removeMissing: true))
    #expect(sync(tries: 2).ended(total: 4, received: 3, lastModified: 9, known: 5) == .giveUp(watermark: 9))
  }

  @Test func `each contact that pushes name is fetched once, and too many cause a list`() {
    var discovery = ContactFetches()
    discovery.named(radio, by: .path)
    discovery.named(other, by: .change)
    discovery.named(radio, by: .advert)
    #expect(discovery.pending.count == 2 && discovery.next == radio, "not twice, and in order")
    let sign = discovery.took(radio)
    #expect(sign == .advert && discovery.next == other, "an advert had named it, too")
    for number in 0..<200 {
      var bytes = [UInt8](repeating: 0, count: 32)
      bytes[0] = UInt8(number)
      discovery.named(PublicKey(bytes: bytes)!, by: .advert)
    }
    #expect(discovery.pending.count == ContactFetches.bound)
    #expect(discovery.needsList)
  }
}

@Suite struct SynchronizerTests {
  @Test func `all slots of the radio are read, not only eight`() throws {
    let pair = try Pair()
    pair.radio.received(
      Command.setChannel(Channel(slot: 37, name: "far", secret: .init(bytes: Array(repeating: 7, count: 16))!)).encode()
    )
    pair.sync()
    #expect(try pair.store.channels().map(\.name.string) == ["Public", "far"])
    #expect(try pair.store.contactCount(onRadio: true) == 3)
  }

  @Test func `the second connection fetches only changes, and a removed contact is noticed by the total`() throws {
    let pair = try Pair()
    pair.sync()
    pair.link.cut()
    pair.run(until: { pair.synchronizer.counters.connections == 2 && pair.synchronizer.state == .synced }, "again")
    #expect(pair.synchronizer.counters.fullContactLists == 1)
    #expect(pair.synchronizer.counters.incrementalContactLists == 1)
    var first: PublicKey?
    try pair.store.eachContact {
      first = $0.contact.key
      return false
    }
    pair.radio.received(Command.removeContact(try #require(first)).encode())
    pair.link.cut()
    pair.run(until: { pair.synchronizer.counters.connections == 3 && pair.synchronizer.state == .synced }, "again")
    #expect(pair.synchronizer.counters.fullContactLists == 2)
    #expect(try pair.store.contactCount(onRadio: true) == 2)
  }

  @Test func `a message on an empty slot is dropped and counted, after a question to the radio`() throws {
    let pair = try Pair()
    pair.sync()
    pair.radio.injectChannelText("Ghost: boo", slot: 9, time: 1)
    pair.radio.injectChannelText("Walker: hello", slot: 0, time: 2)
    pair.run(until: { pair.synchronizer.counters.messagesStored == 1 }, "the real one")
    #expect(pair.synchronizer.counters.emptySlotMessages == 1)
    // A slot that another client has filled meanwhile is no longer empty.
    pair.radio.received(
      Command.setChannel(Channel(slot: 9, name: "new", secret: .init(bytes: Array(repeating: 7, count: 16))!)).encode())
    pair.radio.injectChannelText("Real: hi", slot: 9, time: 3)
    pair.run(until: { pair.synchronizer.counters.messagesStored == 2 }, "the one on the new channel")
  }

  @Test func `nodes are learnt in auto-add and in manual-add mode`() throws {
    for manual in [false, true] {
      let pair = try Pair(contacts: 0)
      let ether = Ether(on: pair.loop, airtimeFactor: 0)
      let other = VirtualRadio(VirtualRadioSettings(name: "Birch", seed: 9), on: pair.loop)
      ether.add(pair.radio)
      ether.add(other)
      pair.radio.received(Command.setOtherParameters(.init(manualAddContacts: manual ? 1 : 0)).encode())
      pair.sync()
      other.received(Command.sendSelfAdvert(flood: true).encode())
      pair.run(until: { (try? pair.store.contactCount(onRadio: false)) == 1 }, "learnt")
      #expect(try pair.store.contactCount(onRadio: true) == (manual ? 0 : 1))
      #expect(try pair.store.contact(other.key)?.lastHeard != nil)
    }
  }

  @Test func `a message that the disk refuses survives the end of the program`() throws {
    let scratch = Scratch()
    let pair = try Pair(in: scratch)
    pair.sync()
    pair.loop.afterTurn { [store = pair.store] in
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") }
    }
    pair.loop.schedule(after: .milliseconds(1)) {}
    pair.loop.turn(wait: true)
    pair.radio.injectChannelText("W: held", slot: 0, time: 1)
    pair.radio.injectChannelText("W: waits", slot: 0, time: 2)
    pair.run(until: { if case .failed = pair.synchronizer.state { true } else { false } }, "refused")
    #expect(pair.store.heldMessages.count == 1)
    // As after a kill: nothing of this process writes any more.
    let copy = try scratch.afterCut("gw.db")
    for _ in 0..<2 {
      // Killed again before the file was emptied: stored once.
      let next = try Store(Store.Settings(location: copy), clocks: LinuxMachine())
      let loop = EventLoop(on: LinuxMachine())
      let taken = try #require(next.heldMessages.first)
      let log = Log(level: .error, sink: { _, _ in })
      let synchronizer = Synchronizer(
        RadioConnection(MemoryLink(pair.radio, on: loop), on: loop, log: log), store: next, settings: .init(),
        on: loop, log: log)
      loop.afterTurn { next.commit() }
      #expect(turn(loop) { !synchronizer.hasMessageInHand })
      #expect(next.heldMessages.isEmpty)
      var texts: [String] = []
      try next.eachMessage(limit: 9) {
        texts.append($0.text.string)
        return true
      }
      #expect(texts == ["held"])
      synchronizer.stop()
      #expect(next.hold([taken]))
    }
  }

  @Test func `while the store refuses writes, the message in hand is kept and none is requested`() throws {
    let pair = try Pair()
    pair.sync()
    var refuses = true
    pair.loop.afterTurn { [store = pair.store] in
      // A failing write takes the whole turn with it, as on a full disk.
      if refuses { store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") } }
    }
    pair.loop.schedule(after: .milliseconds(1)) {}
    pair.loop.turn(wait: true)
    for number in 1...5 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    pair.run(until: { if case .failed = pair.synchronizer.state { true } else { false } }, "failed")
    #expect(pair.radio.queuedMessages == 4)
    refuses = false
    pair.run(until: { pair.synchronizer.counters.messagesStored == 5 }, "all of them, the held one too")
  }
}
