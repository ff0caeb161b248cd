// SPDX-License-Identifier: MIT

import Companion
import Foundation
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import EventLoop
@testable import Sync

@Suite struct QueueCountsTests {
  private let radio = PublicKey(bytes: Array(repeating: 1, count: 32))!
  private let other = PublicKey(bytes: Array(repeating: 2, count: 32))!

  private func took(_ count: Int, from queue: inout RadioQueue) { for _ in 0..<count { queue.took() } }
  private func empty(_ queue: inout RadioQueue) -> RadioQueue.Loss? {
    queue.wasEmpty(askedAt: MonotonicTime(seconds: 1))
  }

  @Test func `waiting messages are counted over links and runs, until the queue is empty`() {
    var queue = RadioQueue()
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(6, from: &queue)
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(10, from: &queue)
    let first = empty(&queue)
    #expect(first == .init(waited: 16))
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    let none = empty(&queue)
    #expect(none == nil, "the loss was reported already")

    var next = RadioQueue()
    next.connected(to: radio, kept: QueueCounts(taken: 6), now: MonotonicTime(seconds: 1))
    took(10, from: &next)
    let kept = empty(&next)
    #expect(kept == .init(waited: 16), "by the run before")

    // Two messages arrived between the links.
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(6, from: &queue)
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(12, from: &queue)
    let more = empty(&queue)
    #expect(more == .init(waited: 18))
    queue.connected(to: other, now: MonotonicTime(seconds: 1))
    took(6, from: &queue)
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(10, from: &queue)
    let mixed = empty(&queue)
    #expect(mixed == nil, "two queues")
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(40, from: &queue)
    let large = empty(&queue)
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(6, from: &queue)
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(10, from: &queue)
    let small = empty(&queue)
    #expect(large == nil && small == nil, "it has held forty")
  }

  @Test func `an unanswered request may have lost a message, unless hints show that there was none`() {
    var queue = RadioQueue()
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    queue.wasSilent()
    let backlog = empty(&queue)
    #expect(backlog == .init(waited: 0, atMost: 1), "the number of waiting messages is unknown")
    queue.wasSilent()
    let idle = empty(&queue)
    #expect(idle == nil, "nothing had come")
    queue.hinted(now: MonotonicTime(seconds: 1))
    queue.wasSilent()
    queue.wasSilent()
    let one = empty(&queue)
    #expect(one == .init(waited: 0, atLeast: 1), "one had come, and is not there any more")
    queue.hinted(now: MonotonicTime(seconds: 1))
    queue.wasSilent()
    queue.took()
    let same = empty(&queue)
    #expect(same == nil, "the radio had not heard the question")
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    queue.wasSilent()
    queue.took(wasAsked: false)
    let late = empty(&queue)
    #expect(late == nil, "the answer came late")
    for _ in 1...3 { queue.hinted(now: MonotonicTime(seconds: 1)) }
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    queue.took()
    let gone = empty(&queue)
    #expect(gone == .init(waited: 1, atLeast: 2), "its queue is not on a disk")
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    took(15, from: &queue)
    queue.wasSilent()
    let full = empty(&queue)
    #expect(full == .init(waited: 15), "sixteen, perhaps")
  }
}

@Suite struct KilledWhileAskingTests {
  private let radio = PublicKey(bytes: Array(repeating: 1, count: 32))!
  private let kept = QueueCounts(taken: 3, isAsked: true)

  private func loss(_ queue: inout RadioQueue) -> RadioQueue.Loss? {
    queue.connected(to: radio, kept: kept, now: MonotonicTime(seconds: 1))
    return queue.wasEmpty(askedAt: MonotonicTime(seconds: 1))
  }

  @Test func `a request at the time of a kill may have lost a message, unless its answer comes late`() {
    var (silent, message, nothing) = (RadioQueue(), RadioQueue(), RadioQueue())
    let told = loss(&silent)
    #expect(told == .init(waited: 3, atMost: 1, gatewayEnded: true))
    #expect(told?.description.contains("the gateway ended while a message") == true)
    // The bytes come from a port that has outlived the program.
    message.took(wasAsked: false)
    nothing.answeredLate()
    #expect(loss(&message) == nil && loss(&nothing) == nil)
  }

  /// `isKilled`: otherwise the gateway ends regularly, without another question.
  @Test(arguments: [StoreProfile.durable, .wear], [true, false])
  func `a message that the radio returned at the time of a kill is reported as possibly lost`(
    _ profile: StoreProfile, _ isKilled: Bool
  ) throws {
    let scratch = Scratch(), copy = Scratch()
    do {
      let pair = try Pair(profile: profile, on: InventedMachine(), in: scratch)
      for number in 1...3 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
      var handedOver = 0
      pair.link.losesReply = { reply in
        guard case .message = reply else { return false }
        handedOver += 1
        return isKilled && handedOver == 3
      }
      pair.start()
      pair.run(until: { isKilled ? handedOver == 3 && pair.stored.count == 2 : !pair.stored.isEmpty }, "the moment")
      if isKilled {
        // A copy of the disk at that moment: a regular end would write more.
        for name in ["gw.db", "gw.db-wal"] {
          try FileManager.default.copyItem(atPath: scratch.location(name), toPath: copy.location(name))
        }
      } else {
        var isDone = false
        _ = pair.loop.begin {
          await pair.synchronizer.finish(within: .seconds(60))
          isDone = true
        }
        pair.run(until: { isDone }, "the end")
        pair.store.settle()
      }
    }
    let pair = try Pair(profile: profile, on: InventedMachine(), in: isKilled ? copy : scratch)
    pair.sync()
    #expect(pair.messageLosses == (isKilled ? [.init(waited: 2, atMost: 1, gatewayEnded: true)] : []))
  }

  /// `isEach`: the radio announces each message, otherwise only one of them.
  @Test(arguments: [true, false])
  func `a kill is told behind the first of several announced messages, or the second of one announcement`(
    _ isEach: Bool
  ) throws {
    let scratch = Scratch(), copy = Scratch()
    do {
      let pair = try Pair(on: InventedMachine(), in: scratch)
      pair.sync()
      let last = isEach ? 2 : 3
      var handedOver = 0
      pair.link.losesReply = { reply in
        guard case .message = reply else { return false }
        handedOver += 1
        return handedOver == last
      }
      let output = pair.radio.output
      if !isEach { pair.radio.output = nil }
      pair.inject(4)
      pair.radio.output = output
      if !isEach { pair.radio.output?(Push.messageWaiting.encode()) }
      pair.run(until: { handedOver == last && pair.stored.count == last - 1 }, "the moment")
      for name in ["gw.db", "gw.db-wal"] {
        try FileManager.default.copyItem(atPath: scratch.location(name), toPath: copy.location(name))
      }
    }
    // This radio has none left.
    let pair = try Pair(on: InventedMachine(), in: copy)
    pair.sync()
    let one = RadioQueue.Loss(waited: 2, atMost: 1, gatewayEnded: true)
    let others = RadioQueue.Loss(waited: 1, atLeast: 3)
    #expect(pair.messageLosses == [isEach ? others : one])
  }

  @Test func `a single new message needs no stored counts`() {
    var queue = RadioQueue()
    queue.connected(to: radio, now: MonotonicTime(seconds: 1))
    _ = queue.wasEmpty(askedAt: MonotonicTime(seconds: 1))
    queue.hinted(now: MonotonicTime(seconds: 2))
    queue.took()
    #expect(!queue.isWorthKeeping && !queue.mayHaveMore)
  }
}

@Suite struct LostMessagesTests {
  @Test func `a full queue is reported although its first fetch was cut, with the message in flight`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.inject(16)
    pair.link.returnsAtOnce = true
    var asked = 0
    pair.link.onCommand = { [unowned pair] command in
      guard command == .syncNextMessage else { return }
      asked += 1
      if asked == 7 { pair.link.cut() }
    }
    pair.start()
    pair.run(until: { pair.synchronizer.state == .synced && pair.losses > 0 }, "synced")
    #expect(pair.losses == 1 && pair.stored.count == 15, "one was in the answer that was cut")
    #expect(pair.messageLosses == [.init(waited: 15)])
  }

  @Test(arguments: [StoreProfile.durable, .wear])
  func `a full queue is reported although the program ended during its first fetch`(_ profile: StoreProfile) throws {
    let scratch = Scratch()
    do {
      let pair = try Pair(profile: profile, on: InventedMachine(), in: scratch)
      pair.inject(16)
      pair.link.swallows = { [unowned pair] in $0 == .syncNextMessage && pair.radio.queuedMessages == 10 }
      pair.start()
      pair.run(until: { pair.stored.count == 6 }, "six")
      let key = pair.radio.key
      #expect(try pair.store.queueCounts(of: key)?.taken == 6, "with the message")
    }
    let pair = try Pair(profile: profile, on: InventedMachine(), in: scratch)
    pair.inject(10)
    pair.sync()
    #expect(pair.messageLosses == [.init(waited: 16)])
    pair.store.commit(everything: true)
    #expect(try pair.store.queueCounts(of: pair.radio.key) == nil)
  }

  @Test func `a message whose answer is lost is reported, and a request that did not reach the radio is not`() throws {
    let pair = try Pair(on: InventedMachine())
    loseOne(pair) { !pair.messageLosses.isEmpty }
    #expect(pair.messageLosses == [.init(waited: 0, atLeast: 1)] && pair.stored.isEmpty)
    pair.run(until: { pair.synchronizer.state == .synced }, "synced")

    var swallowed = 0
    pair.link.swallows = { command in
      guard command == .syncNextMessage, swallowed == 0 else { return false }
      swallowed += 1
      return true
    }
    pair.inject(1)
    pair.run(until: { pair.stored.count == 1 && pair.synchronizer.state == .synced }, "the next try")
    #expect(swallowed == 1 && pair.messageLosses.count == 1)
  }

  /// The radio has handed over a message, and its answer was lost.
  private func loseOne(_ pair: Pair, by isLost: @escaping () -> Bool) {
    pair.sync()
    var losing = true
    pair.link.losesReply = { reply in
      guard losing, case .message = reply else { return false }
      losing = false
      return true
    }
    pair.inject(1)
    pair.run(until: { !losing && isLost() }, "it is lost")
  }

  /// `isSamePort`: the port stayed open, and its radio is the same.
  @Test(arguments: [true, false])
  func `of what an earlier process had read, messages are stored, and answers are none to the handshake`(
    _ isSamePort: Bool
  ) throws {
    let scratch = Scratch()
    do {
      let pair = try Pair(on: InventedMachine(), in: scratch)
      pair.sync()
    }
    let pair = try Pair(on: InventedMachine(), in: scratch)
    let message = ChannelMessage(
      snr: SNR(quarters: 0), slot: 0, path: ReceivedPath(raw: 0), textType: .plain, senderTime: 1, text: "W: before")
    let frames = [Reply.error(.unsupported), .message(.channel(message)), .error(.badState)].map { $0.encode() }
    pair.link.onEvent(
      .leftOver(frames.flatMap { SerialFraming.wrap($0, .fromRadio) }, continues: isSamePort))
    pair.sync()
    #expect(pair.stored == ["W: before"] && pair.connection.identity?.device != nil)
    #expect(pair.synchronizer.counters.unaskedReplies == 1, "the message alone")
  }

  @Test func `the event of a loss is written when the disk takes it`() throws {
    let pair = try Pair(on: InventedMachine())
    // The transaction of the event fails.
    pair.whenLost = { [store = pair.store] in
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") }
    }
    func gaps() throws -> Int {
      var count = 0
      try pair.store.readJournal(after: 0) { event, _ in
        if event.kind == "radio_gap" { count += 1 }
        return true
      }
      return count
    }
    loseOne(pair) { !pair.messageLosses.isEmpty }
    #expect(try gaps() == 0)
    pair.run(until: { (try? gaps()) == 1 }, "the event")  // `try?`: it is read again
    pair.run(until: { pair.synchronizer.state == .synced }, "synced")
    #expect(try gaps() == 1 && pair.messageLosses.count == 1, "it is told once")
  }

  @Test func `a message that was lost in transit is reported by the next run, also after another radio`() throws {
    let scratch = Scratch()
    do {
      let pair = try Pair(on: InventedMachine(), in: scratch)
      loseOne(pair) { true }
      var isDone = false
      _ = pair.loop.begin {
        await pair.synchronizer.finish(within: .seconds(1))
        isDone = true
      }
      pair.run(until: { isDone }, "the end")
    }
    let pair = try Pair(on: InventedMachine(), in: scratch)
    pair.sync()
    #expect(pair.messageLosses == [.init(waited: 0, atLeast: 1)])

    let inbox = pair.synchronizer.inbox
    inbox.hinted()
    inbox.connected(to: try #require(PublicKey(bytes: Array(repeating: 2, count: 32))))
    #expect(inbox.radioWasEmpty(askedAt: pair.loop.now) == nil, "another queue")
    inbox.connected(to: pair.radio.key)
    #expect(inbox.radioWasEmpty(askedAt: pair.loop.now) == .init(waited: 0, atLeast: 1))
  }

  @Test func `a message that is announced in the same read as an empty queue is not reported as lost`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    var isFirst = true
    pair.link.losesReply = { [unowned pair] reply in
      guard case .noMoreMessages = reply, isFirst else { return false }
      isFirst = false
      pair.loop.later { [unowned pair] in
        // Its announcement is the one below.
        let output = pair.radio.output
        pair.radio.output = nil
        pair.radio.injectChannelText("W: next", slot: 0, time: 2)
        pair.radio.output = output
        let frames = [Reply.noMoreMessages.encode(), Push.messageWaiting.encode()]
        pair.link.say(frames.flatMap { SerialFraming.wrap($0, .fromRadio) })
      }
      return true
    }
    pair.inject(1)
    pair.run(until: { pair.stored.count == 2 && pair.synchronizer.state == .synced }, "both")
    #expect(pair.messageLosses.isEmpty, "\(pair.messageLosses)")
  }

  @Test func `a repeated answer does not hide a missing one`() throws {
    let pair = try Pair(on: InventedMachine())
    for number in 1...4 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    var answers = 0
    pair.link.losesReply = { reply in
      guard case .message = reply else { return false }
      answers += 1
      return answers == 3
    }
    pair.link.doublesReply = { reply in
      guard case .message = reply else { return false }
      return answers == 4
    }
    pair.start()
    pair.run(until: { pair.synchronizer.state == .synced && pair.stored.count == 3 }, "the others")
    #expect(pair.messageLosses.count == 1 && pair.messageLosses.first?.atMost == 1)
  }

  /// Its packet differs only in the number of the attempt, which the radio does not hand over.
  @Test(arguments: [true, false]) func `a sender's repeat in the same frame is no lost message`(isWaiting: Bool) throws
  {
    let pair = try Pair(on: InventedMachine())
    if !isWaiting { pair.sync() }
    for _ in 1...3 { pair.radio.injectDirectText("the same", fromContact: 0, time: 7) }
    if isWaiting { pair.start() }
    pair.run(until: { pair.synchronizer.counters.duplicates == 2 && pair.synchronizer.state == .synced }, "all")
    #expect(pair.synchronizer.counters.messagesStored == 1 && pair.messageLosses.isEmpty, "\(pair.messageLosses)")
  }

  @Test func `a radio with endless false hints costs some events a minute, and each hint is counted`()
    throws
  {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    func reported() -> Int { pair.messageLosses.reduce(0) { $0 + ($1.atLeast ?? 0) } }
    for number in 1...200 {
      pair.radio.output?(Push.messageWaiting.encode())
      pair.run(until: { reported() + (pair.synchronizer.losses.untold?.atLeast ?? 0) == number }, "it is noticed")
    }
    #expect(pair.messageLosses.count < 40)
    pair.run(until: { reported() == 200 }, "all losses are reported")
    pair.radio.output?(Push.messageWaiting.encode())
    pair.run(until: { reported() + (pair.synchronizer.losses.untold?.atLeast ?? 0) == 201 }, "one more")
    var isDone = false
    _ = pair.loop.begin {
      await pair.synchronizer.finish(within: .seconds(1))
      isDone = true
    }
    pair.run(until: { isDone }, "the end")
    #expect(reported() == 201, "before the end")
  }

  @Test func `a copy of the database has no counts of a radio's queue`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.store.keep(QueueCounts(taken: 10), ofQueue: pair.radio.key)
    pair.store.settle()
    try pair.store.renewEpoch()
    #expect(try pair.store.queueCounts(of: pair.radio.key) == nil)
  }
}
