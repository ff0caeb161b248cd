// SPDX-License-Identifier: MIT

import Companion
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import EventLoop
@testable import Sync

@Suite struct CutTests {
  /// A cut must leave no unknown or doubled message, and no task or timer behind.
  @Test(arguments: [StoreProfile.durable, .wear])
  func `a link that is cut a thousand times loses and duplicates no message, and leaves nothing behind`(
    _ profile: StoreProfile
  ) throws {
    var pair: Pair? = try Pair(contacts: 4, channels: 6, profile: profile)
    let (loop, link, radio) = (pair!.loop, pair!.link, pair!.radio)
    let (timers, watches) = (loop.waitingTimers, loop.watchCount)
    var random = SeededRandom(seed: 20_261_122)
    var phases: Set<String> = []
    link.returnsAtOnce = true
    link.onCut = { [unowned pair = pair!] in phases.insert(Self.phase(pair)) }
    pair!.sync()
    var keys: [PublicKey] = []
    try pair!.store.eachContact {
      keys.append($0.contact.key)
      return true
    }
    // Only urgent data is committed.
    pair!.letsWait = true
    var (sent, strays): ([String], Set<String>) = ([], [])
    for round in 0..<1000 {
      link.framesUntilCut = Int.random(in: 1...60, using: &random)
      for _ in 0..<Int.random(in: 0...2, using: &random) {
        sent.append("W: \(sent.count)")
        // One in four arrives on a slot that the gateway first has to query.
        let isStray = sent.count % 4 == 0
        if isStray { strays.insert(sent.last!) }
        radio.injectChannelText(sent.last!, slot: isStray ? 5 : 0, time: UInt32(sent.count))
      }
      if round % 3 == 0, let key = keys.randomElement(using: &random) {
        loop.later { radio.output?(Push.advert(key).encode()) }
      }
      pair!.run(
        until: {
          // There is nothing more to cut, so the link is cut while it waits.
          if pair!.synchronizer.state == .synced, radio.queuedMessages == 0 { link.cut() }
          return link.cuts > round
        }, "cut \(round)")
      pair!.run(until: { pair!.losses == link.cuts }, "noticed")
      #expect(loop.waitingTimers <= 6, "timers add up")
    }
    pair!.run(until: { pair!.synchronizer.state == .synced && radio.queuedMessages == 0 }, "undisturbed")
    pair!.store.commit(everything: true)
    let dropped = Set(link.lost.compactMap(Self.text))
    #expect(
      pair!.stored.filter { !strays.contains($0) } == sent.filter { !strays.contains($0) && !dropped.contains($0) },
      "each once, in order, but for what was on the line when it was cut")
    // Messages that were stored because the radio could not be queried any more.
    let kept = pair!.stored.filter(strays.contains)
    #expect(!kept.isEmpty && kept.count < strays.count && Set(kept).count == kept.count)
    #expect(
      kept.count + dropped.intersection(strays).count + pair!.synchronizer.counters.emptySlotMessages == strays.count)
    #expect(pair!.synchronizer.counters.duplicates == 0)
    #expect(phases.isSuperset(of: ["handshaking", "time", "contacts", "channels", "messages", "synced"]), "\(phases)")

    pair!.end()
    #expect(loop.waitingTimers == timers && loop.watchCount == watches)
    weak let synchronizer = pair!.synchronizer
    weak let connection = pair!.connection
    weak let inbox = pair!.synchronizer.inbox
    pair = nil
    #expect(synchronizer == nil && connection == nil && inbox == nil, "no task holds them")
  }

  private static func phase(_ pair: Pair) -> String {
    guard pair.connection.state == .up else { return "handshaking" }
    if case .syncing(let phase, _, _) = pair.synchronizer.state { return phase.rawValue }
    return pair.synchronizer.state.name
  }

  private static func text(_ reply: Reply) -> String? {
    if case .message(.channel(let message)) = reply { message.text.string } else { nil }
  }
}

@Suite struct InboxTests {
  @Test func `a message is on disk before the next one is requested`() throws {
    let pair = try Pair(channels: 4)
    for number in 1...6 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    var asked = 0
    pair.link.onCommand = { [unowned pair] command in
      guard case .syncNextMessage = command else { return }
      asked += 1
      #expect(pair.synchronizer.counters.messagesStored == pair.link.messagesDelivered)
    }
    pair.sync()
    #expect(pair.stored.count == 6)
    #expect(asked >= 7)
  }

  @Test func `with a profile that delays commits, 32 messages are fetched and committed together`() throws {
    let pair = try Pair(channels: 4, profile: .wear)
    pair.sync()
    var most = 0
    pair.link.onCommand = { [unowned pair] command in
      guard case .syncNextMessage = command else { return }
      most = max(most, pair.synchronizer.inbox.count)
    }
    pair.letsWait = true
    for number in 1...40 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    pair.run(until: { pair.radio.queuedMessages == 0 && pair.synchronizer.inbox.count == 8 }, "all asked for")
    #expect(pair.stored.count == 32 && most == 31)
    #expect(pair.synchronizer.hasMessageInHand)
    pair.store.commit(everything: true)
    pair.run(until: { pair.stored.count == 40 && !pair.synchronizer.hasMessageInHand }, "all are stored")
  }

  @Test func `an unasked answer changes nothing, and an unasked message is kept`() throws {
    let pair = try Pair(channels: 4)
    pair.sync()
    pair.radio.output?(Reply.noMoreMessages.encode())
    pair.radio.output?(Reply.error(.notFound).encode())
    let message = ChannelMessage(snr: nil, slot: 0, path: ReceivedPath(raw: 0), senderTime: 7, text: "W: unasked")
    pair.radio.output?(Reply.message(.channel(message)).encode())
    pair.run(until: { pair.stored == ["W: unasked"] }, "kept")
    #expect(pair.synchronizer.state == .synced && pair.synchronizer.counters.unaskedReplies == 3)
    pair.radio.injectChannelText("W: asked", slot: 0, time: 8)
    pair.run(until: { pair.stored == ["W: unasked", "W: asked"] }, "the next one")
  }

  @Test func `a radio that returns one message for ever ends the sync, and is reported`() throws {
    let pair = try Pair(channels: 4, on: InventedMachine())
    pair.sync()
    var asked = 0
    pair.link.onCommand = { [unowned pair] command in
      guard case .syncNextMessage = command else { return }
      asked += 1
      pair.radio.injectChannelText("W: again", slot: 0, time: 7)
    }
    pair.radio.injectChannelText("W: again", slot: 0, time: 7)
    pair.run(
      until: {
        if case .failed(let words, _) = pair.synchronizer.state { words.contains("again and again") } else { false }
      }, "told")
    // A minute with a radio that constantly announces messages: the gateway tries a few times, and the link stays usable.
    let end = pair.loop.now + .seconds(60)
    while pair.loop.now < end {
      let timer = pair.loop.schedule(after: .milliseconds(100)) { pair.radio.output?(Push.messageWaiting.encode()) }
      pair.loop.turn(wait: true)
      timer.cancel()
    }
    #expect(asked < 1000 && pair.stored == ["W: again"] && pair.losses == 0, "\(asked)")
  }

  @Test func `the daemon stops when the radio's present message is on disk, or after a time limit`() throws {
    for answers in [true, false] {
      let pair = try Pair(channels: 4)
      pair.sync()
      pair.link.isHeldUp = true
      for number in 1...3 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
      pair.radio.isClientConnected = false
      pair.synchronizer.heard(.messageWaiting, in: [])
      pair.run(until: { pair.radio.queuedMessages == 2 }, "handed over")
      var isDone = false
      _ = pair.loop.begin {
        await pair.synchronizer.finish(within: answers ? .seconds(60) : .milliseconds(50))
        isDone = true
      }
      pair.loop.turn(wait: false)
      #expect(!isDone)
      if answers { pair.link.isHeldUp = false }
      pair.run(until: { isDone }, "the end")
      #expect(pair.stored == (answers ? ["W: 1"] : []))
      #expect(pair.radio.queuedMessages == 2, "nothing more is asked for")
    }
  }

  @Test func `a message in hand survives the link and an unanswered question about its channel`() throws {
    let pair = try Pair(channels: 12)
    pair.sync()
    pair.link.onCommand = { [unowned link = pair.link] command in
      if case .getChannel = command { link.cut() }
    }
    pair.radio.injectChannelText("W: where", slot: 9, time: 1)
    pair.run(until: { pair.stored == ["W: where"] }, "kept, as the radio could not be asked")
    pair.run(until: { pair.synchronizer.state == .idle }, "down")
  }

  @Test func `a sync that restarts in the middle of a contact list ends with one list`() throws {
    let pair = try Pair(contacts: 30, channels: 4)
    pair.start()
    pair.run(
      until: { if case .syncing(.contacts, 3..., _) = pair.synchronizer.state { true } else { false } }, "in the middle"
    )
    pair.synchronizer.restart(fully: true)
    pair.run(until: { pair.synchronizer.state == .synced }, "synced")
    #expect(pair.synchronizer.counters.fullContactLists == 1)
    #expect(try pair.store.contactCount(onRadio: true) == 30)
  }
}
