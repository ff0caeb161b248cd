// SPDX-License-Identifier: MIT

import Companion
import JSON
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import Sync

@Suite struct StartedAnewQueueTests {
  private let radio = PublicKey(bytes: Array(repeating: 1, count: 32))!

  private func at(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }
  private func took(_ count: Int, from queue: inout RadioQueue) { for _ in 0..<count { queue.took() } }

  @Test(arguments: [0, 5], [true, false])
  func `for a reading that a restart of the radio cut off, the number of lost messages is unknown`(
    _ taken: Int, _ isLate: Bool
  ) {
    var queue = RadioQueue()
    queue.connected(to: radio, now: at(10))
    #expect(!queue.dependsOnStart, "nothing is known about the time before this link")
    took(taken, from: &queue)
    queue.wasSilent()
    if !isLate { queue.connected(to: radio, now: at(20)) }
    #expect(queue.dependsOnStart)
    // The radio restarted while the link was open, or before the next link.
    let loss = queue.wasStarted(at: at(15), now: at(30))
    #expect(loss == .init(waited: taken, start: .anew))
    #expect(loss?.description.contains("nobody knows how many") == true)
    took(2, from: &queue)
    let rest = queue.wasEmpty(askedAt: at(31))
    #expect(rest == nil && !queue.dependsOnStart, "the loss is reported once")
  }

  @Test func `a restart of the radio before or after a reading does not count against it`() {
    var queue = RadioQueue()
    queue.connected(to: radio, now: at(10))
    took(5, from: &queue)
    queue.wasSilent()
    queue.connected(to: radio, now: at(20))
    let none = queue.wasStarted(at: at(9), now: at(21))
    #expect(none == nil)
    let answer = queue.wasEmpty(askedAt: at(22))
    #expect(answer == .init(waited: 5, atMost: 1), "as much as before")
    queue.hinted(now: at(23))
    took(1, from: &queue)
    queue.connected(to: radio, now: at(40))
    #expect(!queue.dependsOnStart, "all announced messages are here")
    let idle = queue.wasEmpty(askedAt: at(41))
    queue.connected(to: radio, now: at(60))
    #expect(idle == nil && !queue.dependsOnStart)
  }

  @Test func `messages of a new queue do not hide losses of the old one`() {
    var queue = RadioQueue()
    queue.connected(to: radio, now: at(10))
    _ = queue.wasEmpty(askedAt: at(11))
    for _ in 1...3 { queue.hinted(now: at(50)) }
    took(1, from: &queue)
    queue.connected(to: radio, now: at(60))
    queue.hinted(now: at(61))
    let loss = queue.wasStarted(at: at(55), now: at(62))
    #expect(loss == .init(waited: 1, atLeast: 2, start: .anew))
    #expect(loss?.description.contains("1 came, and at least 2 are lost") == true)
    took(4, from: &queue)
    let rest = queue.wasEmpty(askedAt: at(63))
    #expect(rest == nil)
  }

  @Test func `announced messages that a restart has taken are reported once, by the restart or by the empty queue`() {
    for isFoundFirst in [true, false] {
      var queue = RadioQueue()
      queue.connected(to: radio, now: at(10))
      _ = queue.wasEmpty(askedAt: at(11))
      queue.hinted(now: at(50))
      #expect(queue.lacksAnnounced && !queue.dependsOnStart)
      let loss = isFoundFirst ? queue.wasStarted(at: at(55), now: at(60)) : nil
      #expect(loss == (isFoundFirst ? RadioQueue.Loss(waited: 0, start: .anew) : nil))
      let rest = queue.wasEmpty(askedAt: at(61))
      #expect(rest == (isFoundFirst ? nil : RadioQueue.Loss(waited: 0, atLeast: 1)))
      #expect(queue.hasToldLoss(ofStart: at(55)) != isFoundFirst)
      #expect(!queue.hasToldLoss(ofStart: at(49)) && !queue.hasToldLoss(ofStart: at(70)), "another restart")
    }
  }

  @Test func `a start at an unknown time gives no bound, and a sum with an unbounded loss has none`() {
    var queue = RadioQueue()
    queue.connected(to: radio, now: at(10))
    queue.wasSilent()
    let none = queue.wasStarted(at: nil, now: at(20))
    let unknown = queue.wasEmpty(askedAt: at(21))
    #expect(none == nil && unknown == .init(waited: 0, start: .unknown))
    let (one, anew) = (RadioQueue.Loss(waited: 0, atMost: 1), RadioQueue.Loss(waited: 3, start: .anew))
    #expect(one + one == .init(waited: 0, atMost: 2))
    #expect(one + anew == anew && anew + one == anew)
    #expect(one + .init(waited: 16) == .init(waited: 16), "a full queue has none either")
    #expect(one + .init(waited: 2, atLeast: 1) == .init(waited: 2, atLeast: 1, atMost: 1))
  }
}

@Suite struct StartedAnewTests {
  private func gaps(_ pair: Pair) throws -> [JSONValue?] {
    pair.store.commit(everything: true)
    var bodies: [JSONValue?] = []
    try pair.store.readJournal(after: 0) { event, _ in
      // `try?`: the gateway has written the body itself.
      if event.kind == "radio_gap" { bodies.append(try? JSONValue(parsing: event.body)) }
      return true
    }
    return bodies
  }

  /// Cuts the link at this command after `taken` messages; the radio restarts if it `isAnew`.
  private func cut(
    _ pair: Pair, after taken: Int, at moment: Command = .syncNextMessage, isAnew: Bool, _ isCut: Bool = true
  ) {
    var isDone = false
    pair.link.returnsAtOnce = true
    pair.link.swallows = { [unowned pair] command in
      guard !isDone, command == moment, pair.link.messagesDelivered == taken else { return false }
      isDone = true
      if isAnew { pair.radio.reboot() }
      if isCut { pair.link.cut() }
      return true
    }
    let losses = pair.losses + (isCut ? 1 : 0)
    if pair.connection.state != .up { pair.start() }
    pair.run(until: { isDone && pair.losses == losses && pair.synchronizer.state == .synced }, "synced")
  }

  @Test(arguments: [true, false])
  func `a radio that restarts during a reading makes the number of lost messages unknown`(_ isAnew: Bool)
    throws
  {
    let pair = try Pair(on: InventedMachine())
    pair.inject(14)
    cut(pair, after: 5, isAnew: isAnew)
    #expect(pair.stored.count == (isAnew ? 5 : 14))
    #expect(pair.messageLosses == [isAnew ? .init(waited: 5, start: .anew) : .init(waited: 14, atMost: 1)])
    let gap = try #require(gaps(pair).first ?? nil)
    #expect(gap["waited"]?.integer == (isAnew ? 5 : 14) && gap["restarted"]?.bool == (isAnew ? true : nil))
    #expect(gap["at_most"]?.integer == (isAnew ? nil : 1) && gap["lost"] == nil)
  }

  @Test(arguments: [true, false])
  func `a radio that restarts before a reading makes the number of lost messages unknown`(_ isAnew: Bool) throws {
    let pair = try Pair(on: InventedMachine())
    pair.inject(14)
    cut(pair, after: 0, at: .getDeviceTime, isAnew: isAnew)
    #expect(pair.stored.count == (isAnew ? 0 : 14))
    #expect(pair.messageLosses == (isAnew ? [.init(waited: 0, start: .anew)] : []))
  }

  @Test func `a restart without a lost link is found by its unanswered request`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.inject(14)
    // Time passes before the radio restarts.
    var isLost = false
    pair.link.losesReply = { reply in
      guard !isLost, case .currentTime = reply else { return false }
      isLost = true
      return true
    }
    cut(pair, after: 5, isAnew: true, false)
    #expect(pair.losses == 0 && pair.messageLosses == [.init(waited: 5, start: .anew)])
  }

  @Test func `an idle radio that restarts has lost nothing`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.inject(3)
    pair.sync()
    cut(pair, after: 3, isAnew: true)
    pair.radio.injectChannelText("W: next", slot: 0, time: 100)
    pair.run(until: { pair.stored.count == 4 && pair.synchronizer.state == .synced }, "the next")
    cut(pair, after: 4, isAnew: true)
    #expect(pair.messageLosses.isEmpty && pair.losses == 2)
  }

  /// `taken`: the messages before the end of the first run. The power fails: machine and radio restart.
  @Test(arguments: [0, 5], [true, false])
  func `the next run knows that the last reading was not finished`(_ taken: Int, _ isPowerCut: Bool) throws {
    let scratch = Scratch()
    do {
      let pair = try Pair(on: InventedMachine(), in: scratch)
      pair.inject(14)
      pair.link.swallows = { [unowned pair] in
        $0 == .syncNextMessage && pair.link.messagesDelivered == taken
      }
      var asked = 0
      pair.link.onCommand = { if $0 == .syncNextMessage { asked += 1 } }
      pair.start()
      pair.run(until: { asked == taken + 1 && pair.stored.count == taken }, "the moment")
    }
    let machine = InventedMachine()
    if isPowerCut { machine.boot = "the second" }
    let pair = try Pair(on: machine, in: scratch)
    pair.sync()
    // Whichever ended first, the gateway or its link.
    let isOfEnd = pair.messageLosses.first?.gatewayEnded ?? false
    let one = RadioQueue.Loss(waited: taken, atMost: 1, gatewayEnded: isOfEnd)
    #expect(pair.messageLosses == [isPowerCut ? .init(waited: taken, start: .anew) : one])
    pair.store.commit(everything: true)
    #expect(try pair.store.queueCounts(of: pair.radio.key) == nil)
  }

  @Test func `the beginning of a reading is kept with its boot, and counts of an older program are read`() throws {
    let machine = InventedMachine(), scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
    let key = try #require(PublicKey(bytes: Array(repeating: 1, count: 32)))
    var counts = QueueCounts(taken: 2, hints: 1, unanswered: 3, isAsked: true, began: MonotonicTime(seconds: 7))
    store.keep(counts, ofQueue: key)
    store.write { _ in }
    store.settle()
    #expect(try store.queueCounts(of: key) == counts)
    machine.boot = "the second"
    counts.began = MonotonicTime(seconds: -60)
    #expect(try store.queueCounts(of: key) == counts, "before this boot")
    machine.boot = ""
    #expect(try store.queueCounts(of: key) == counts, "nobody can tell")
    counts.began = nil
    store.keep(counts, ofQueue: key)
    store.write { _ in }
    store.settle()
    #expect(try store.queueCounts(of: key) == counts)
  }
}
