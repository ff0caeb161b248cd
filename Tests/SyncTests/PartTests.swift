// SPDX-License-Identifier: MIT

import Companion
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import EventLoop
@testable import Sync

@Suite struct SyncPlanTests {
  @Test func `a failed part is retried alone, ever more rarely, and the others do not wait for it`() {
    var plan = SyncPlan()
    var random = SeededRandom(seed: 1)
    var now = MonotonicTime(seconds: 10)
    #expect(SyncPlan.Part.allCases.allSatisfy { plan.isDue($0, now: now) })
    let broken = SyncFailure("the contact list ended early (no answer)")
    let isNews = [
      plan.failed(.contacts, broken, now: now, using: &random),
      plan.failed(.contacts, broken, now: now, using: &random),
    ]
    #expect(isNews == [true, false])
    for part in [SyncPlan.Part.channels, .messages] { plan.succeeded(part) }
    #expect(!plan.isDue(.contacts, now: now))
    plan.needs(.contacts)
    #expect(!plan.isDue(.contacts, now: now), "too many names are no reason to ask sooner")
    plan.needs(.messages, now: true)
    #expect(plan.isDue(.messages, now: now))
    plan.succeeded(.messages)
    #expect(plan.failure?.part == .contacts)
    #expect(plan.failure?.message == "\(broken.message); messages are still received and sent")
    var tries = 0
    let end = now + .seconds(24 * 3600)
    while let next = plan.nextTry, next < end {
      now = next
      tries += 1
      _ = plan.failed(.contacts, broken, now: now, using: &random)
    }
    #expect((100...1000).contains(tries), "\(tries) in a day")
    plan.succeeded(.contacts)
    #expect(plan.nextTry == nil && plan.failure == nil)
  }
}

@Suite struct PartTests {
  private static func isContactList(_ command: Command) -> Bool {
    if case .getContacts = command { true } else { false }
  }

  @Test func `a radio that does not list its contacts returns its messages, and is asked for the list again`() throws {
    let pair = try Pair(on: InventedMachine())
    var lists = 0
    pair.link.refuses = Self.isContactList
    pair.link.onCommand = { if Self.isContactList($0) { lists += 1 } }
    pair.radio.injectChannelText("W: before", slot: 0, time: 1)
    pair.start()
    pair.run(until: { pair.synchronizer.isServing }, "messages can be sent")
    #expect(pair.stored == ["W: before"], "nobody has hinted at it")
    guard case .failed(let words, .contacts) = pair.synchronizer.state else {
      Issue.record("\(pair.synchronizer.state)")
      return
    }
    #expect(words.contains("contact list") && words.contains("still received"))
    #expect(!pair.synchronizer.knowsAllContacts)
    #expect(try pair.store.channels().map(\.name.string) == ["Public"], "the channels do not wait for it")
    pair.radio.injectChannelText("W: after", slot: 0, time: 2)
    pair.run(until: { pair.stored.count == 2 }, "one that comes later")
    pair.run(until: { lists > 4 }, "again")
    #expect(pair.losses == 0)
    pair.link.refuses = { _ in false }
    pair.run(until: { pair.synchronizer.state == .synced }, "by itself")
    #expect(try pair.store.contactCount(onRadio: true) == 3 && pair.synchronizer.knowsAllContacts)
  }

  @Test(arguments: [1, 2]) func `a slot that is refused once or twice keeps its stored channel`(
    times: Int
  ) throws {
    let pair = try Pair()
    pair.radio.received(Command.setChannel(Channel(slot: 5, name: "fives", secret: .hashtag("#fives"))).encode())
    pair.sync()
    let known = try pair.store.channel(slot: 5)
    #expect(known?.name == "fives")
    var refusals = 0
    pair.link.refuses = { command in
      guard command == .getChannel(slot: 5), refusals < times else { return false }
      refusals += 1
      return true
    }
    pair.link.cut()
    pair.run(until: { refusals == times && pair.synchronizer.isServing }, "refused")
    #expect(try pair.store.channel(slot: 5) == known)
    #expect(pair.synchronizer.doubts(5) == (times == 2))
    pair.run(until: { pair.synchronizer.state == .synced && !pair.synchronizer.doubts(5) }, "asked again")
    #expect(try pair.store.channel(slot: 5) == known)
  }

  @Test func `a radio that returns no messages is asked again, and is synced once it returns them`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.link.refuses = { $0 == .syncNextMessage }
    pair.radio.injectChannelText("W: hello", slot: 0, time: 1)
    pair.start()
    pair.run(until: { pair.synchronizer.isServing }, "messages can be sent")
    guard case .failed(let words, .messages) = pair.synchronizer.state else {
      Issue.record("\(pair.synchronizer.state)")
      return
    }
    #expect(!words.contains("all the same"))
    let withheld = try #require(pair.synchronizer.withheld)
    #expect(withheld.words.contains("does not return its messages: nothing more is received"))
    #expect(pair.synchronizer.counters.fullContactLists == 1)
    pair.link.refuses = { _ in false }
    pair.run(until: { pair.synchronizer.state == .synced && pair.stored.count == 1 }, "by itself")
    #expect(pair.synchronizer.counters.fullContactLists == 1, "a successful part is not repeated")
    #expect(pair.synchronizer.withheld == nil)
  }
}

@Suite struct WithheldTests {
  /// The ways in which a radio does not hand over its messages.
  enum Way: CaseIterable { case refused, silent, same, inTurn }

  @Test(arguments: Way.allCases) func `a radio that returns no messages is remembered as such over its links`(
    _ way: Way
  )
    throws
  {
    let pair = try Pair(on: InventedMachine())
    pair.link.returnsAtOnce = true
    let isAsked = { (command: Command) in command == .syncNextMessage }
    switch way {
    case .refused: pair.link.refuses = isAsked
    case .silent: pair.link.swallows = isAsked
    case .same:
      pair.link.onCommand = { [unowned pair] in
        if isAsked($0) { pair.radio.injectChannelText("W: hello", slot: 0, time: 1) }
      }
    case .inTurn:
      var turn = 0
      pair.link.onCommand = { [unowned pair] in
        guard isAsked($0) else { return }
        turn += 1
        pair.radio.injectChannelText("W: hello \(turn % 3)", slot: 0, time: 1)
      }
    }
    pair.start()
    pair.run(until: { pair.synchronizer.withheld != nil }, "it is found")
    let found = pair.loop.now
    pair.link.cut()
    pair.run(until: { pair.losses > 0 && pair.synchronizer.isServing }, "another link")
    var isLater = false
    let timer = pair.loop.schedule(after: .seconds(300)) { isLater = true }
    pair.run(until: { isLater }, "it goes on")
    timer.cancel()
    #expect(pair.synchronizer.withheld?.since == found)
    (pair.link.refuses, pair.link.swallows, pair.link.onCommand) = ({ _ in false }, { _ in false }, { _ in })
    pair.run(until: { pair.synchronizer.withheld == nil && pair.synchronizer.state == .synced }, "it is over")
  }
}

@Suite struct EndlessHintTests {
  /// `isRefused`: the radio answers each question with an error; otherwise it has no data.
  @Test(arguments: [false, true])
  func
    `a radio that hints at a message that it does not have is not asked without a pause, and the next real one is taken`(
      _ isRefused: Bool
    ) throws
  {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    var asked = 0
    pair.link.refuses = { isRefused && $0 == .syncNextMessage }
    pair.link.onCommand = { [unowned pair] in
      guard $0 == .syncNextMessage else { return }
      asked += 1
      pair.radio.output?(Push.messageWaiting.encode())
    }
    pair.radio.output?(Push.messageWaiting.encode())
    let end = pair.loop.now + .seconds(100)
    let timer = pair.loop.schedule(at: end) {}
    pair.run(until: { pair.loop.now >= end }, "it goes on")
    timer.cancel()
    #expect((100...700).contains(asked), "\(asked) questions in 100 s")
    (pair.link.refuses, pair.link.onCommand) = ({ _ in false }, { _ in })
    pair.radio.injectChannelText("W: a real one", slot: 0, time: 1)
    let before = pair.loop.now
    pair.run(until: { pair.stored.count == 1 }, "the message is here")
    #expect(pair.loop.now < before + .seconds(20), "\(pair.loop.now - before)")
  }
}

@Suite struct AdvertBurstTests {
  private static func key(_ number: UInt8) -> PublicKey { PublicKey(bytes: Array(repeating: number, count: 32))! }

  @Test func `a burst of adverts delays no message in either direction`() throws {
    let pair = try Pair()
    pair.sync()
    var commands: [Command] = []
    var question: RadioQuestion?
    let isFetch = { (command: Command) in if case .getContactByKey = command { true } else { false } }
    pair.link.onCommand = { [unowned pair] command in
      if isFetch(command), !commands.contains(where: isFetch) {
        pair.loop.later { question = pair.connection.submit(.getBattery, .interactive) }
      }
      commands.append(command)
    }
    pair.loop.later {
      for number in 1...100 { pair.radio.output?(Push.advert(Self.key(UInt8(number))).encode()) }
      for number in 1...5 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    }
    pair.run(until: { question?.answer != nil && pair.stored.count == 5 }, "the messages are here")
    let before = commands.prefix { $0 != .getBattery }.count(where: isFetch)
    #expect(before <= 2, "\(before) contacts were fetched before the message was sent")
    let taking = commands.indices.filter { commands[$0] == .syncNextMessage }
    let fetched = commands.prefix(taking.count < 5 ? 0 : taking[4]).count(where: isFetch)
    #expect(fetched <= 8, "\(fetched) contacts were asked for before five messages were taken")
    pair.run(until: { pair.synchronizer.contacts.fetches.pending.isEmpty }, "all of them in the end")
    let all = commands.compactMap { if case .getContactByKey(let key) = $0 { key } else { nil } }
    #expect(all == (1...100).map { Self.key(UInt8($0)) }, "in order, each once")
  }

  @Test func `changed contacts are fetched before heard ones, and a list replaces the single fetches`() throws {
    var fetches = ContactFetches()
    for number in 1...UInt8(ContactFetches.bound) { fetches.named(Self.key(number), by: .advert) }
    #expect(!fetches.needsList)
    fetches.named(Self.key(200), by: .change)
    #expect(fetches.next == Self.key(200) && fetches.needsList && fetches.pending.count == ContactFetches.bound)
    #expect(fetches.pending[Self.key(UInt8(ContactFetches.bound))] == nil, "a list covers an advert")
    fetches.named(Self.key(7), by: .path)
    fetches.took(Self.key(200))
    #expect(fetches.next == Self.key(7))
    let sign = fetches.took(Self.key(7))
    #expect(sign == .advert && fetches.next == Self.key(1))

    let pair = try Pair(contacts: 4)
    pair.sync()
    var keys: [PublicKey] = []
    try pair.store.eachContact {
      keys.append($0.contact.key)
      return true
    }
    var asked = 0
    var isListed = false
    pair.link.onCommand = { [unowned pair] command in
      if case .getContactByKey = command { asked += 1 }
      guard case .getContacts = command, !isListed else { return }
      isListed = true
      // The contact list is under way when the pushes name them.
      for key in keys { pair.radio.output?(Push.advert(key).encode()) }
    }
    pair.loop.later { pair.synchronizer.restart(fully: true) }
    pair.run(until: { isListed }, "a list")
    pair.run(
      until: { pair.synchronizer.state == .synced && pair.synchronizer.contacts.fetches.pending.isEmpty }, "synced")
    #expect(asked <= 1, "\(asked) were asked for")
  }
}
