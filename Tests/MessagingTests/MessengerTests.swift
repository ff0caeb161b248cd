// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import MeshCrypto
import SQLite
import Store
import Sync
import TestSupport
import Testing
import VirtualRadio

@testable import Messaging

@Suite struct MessengerTests {
  @Test func `a message is accepted when it is on disk, together with earlier waiting writes`() throws {
    let bench = try Bench()
    bench.store.write(when: .heard) { store throws(SQLiteError) in
      try store.append(.packet, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
    }
    bench.loop.turn(wait: false)
    #expect(bench.store.transactions.hasUncommitted)
    bench.ether.loss = 1
    let kept = try bench.result("an answer to send") { () async throws(Refusal) in
      _ = try await bench.messenger.send(SendRequest(to: "r1", text: "x", key: "k"))
      // `try?`: without a store the message is missing.
      return try? Store(Store.Settings(location: try bench.scratch.afterCut("gw.db")))
    }.get()
    #expect(try kept?.outgoing(key: "k") != nil)
    #expect(try kept?.amounts(after: 0).packets.events == 1)
  }

  @Test func `a radio that replaces another in the middle of a delivery sends and confirms none of its messages`()
    throws
  {
    let bench = try Bench()
    let third = VirtualRadio(
      VirtualRadioSettings(name: "r9", seed: 9, channelSlots: 4, clock: 1_795_000_000), on: bench.loop)
    bench.ether.add(third)
    for radio in [bench.other, third] { radio.received(Command.sendSelfAdvert(flood: true).encode()) }
    bench.ether.loss = 1
    _ = try bench.send(SendRequest(to: "r1", text: "in the middle", key: "k")).get()
    try bench.run("it is on the air") { try bench.state("k").state == .sent }
    // The radio is swapped after the message is accepted and before the turn's end has it on disk.
    var result: Result<[OutgoingMessage], Refusal>?
    bench.loop.later {
      _ = bench.loop.begin {
        do throws(Refusal) {
          result = .success(try await bench.messenger.send(SendRequest(to: "Public", text: "to all", key: "c")))
        } catch {
          result = .failure(error)
        }
      }
      // After the task's write, before the commit.
      bench.loop.later { bench.swap(to: third) }
    }
    try bench.run("the other radio") { bench.synchronizer.state == .synced && bench.store.radio == 2 }
    #expect(try result?.get().count == 1)
    bench.ether.loss = 0
    _ = try bench.send(SendRequest(to: "r1", text: "by the other", key: "o")).get()
    try bench.run("its own is delivered") { try bench.state("o").state == .delivered }
    let middle = try bench.state("k")
    #expect(middle.state == .sent && middle.radio == 1 && middle.attempts.accepted == 1)
    #expect(try bench.state("c").state == .pending && bench.state("c").radio == 1)
    for code in middle.attempts.codes { bench.messenger.received(.sendConfirmed(ack: code, tripTime: 5)) }
    bench.store.commit()
    #expect(try bench.state("k").state == .sent, "an acknowledgement that the other radio tells is not its own")
    bench.swap(to: bench.own)
    try bench.run("the first message continues") {
      try bench.state("k").state == .delivered && bench.state("c").state == .sent
    }
    #expect(bench.store.radio == 1 && bench.store.radios.count == 2)
  }

  @Test func `a held message expires, is cancelled, or is taken over if the other radio can send it`() throws {
    let bench = try Bench()
    let third = VirtualRadio(
      VirtualRadioSettings(name: "r9", seed: 9, channelSlots: 4, clock: 1_795_000_000), on: bench.loop)
    bench.ether.add(third)
    third.received(Command.sendSelfAdvert(flood: true).encode())
    try bench.run("it is known") { try bench.store.contact(prefix: third.key.prefix) != nil }
    bench.ether.loss = 1
    _ = try bench.send(SendRequest(to: "Public", text: "y", key: "c", lifetime: .seconds(300))).get()
    try bench.run("it is sent") { try bench.state("c").state == .sent }
    _ = try bench.send(SendRequest(to: "r9", text: "x", key: "tried", lifetime: .seconds(3))).get()
    try bench.run("it is on the air") { try bench.state("tried").attempts.accepted > 0 }
    for key in ["a", "b"] { _ = try bench.send(SendRequest(to: "r1", text: "x", key: key)).get() }
    _ = try bench.send(SendRequest(to: "r1", text: "x", key: "short", lifetime: .seconds(3))).get()
    bench.swap(to: third)
    try bench.run("the other radio") { bench.synchronizer.state == .synced && bench.store.radio == 2 }
    bench.ether.loss = 0
    func adopt(_ key: String) throws -> Refusal? {
      try bench.refusal { () throws(Refusal) in try await bench.messenger.adopt(key: key) }
    }
    #expect(try adopt("a") == .notOnRadio("r1"), "the radio has never heard that node")
    #expect(try bench.refusal { () throws(Refusal) in try bench.messenger.cancel(key: "b") } == nil)
    bench.store.commit()
    #expect(try bench.state("b").reason == "cancelled")
    try bench.run("the end of its time") { try bench.state("short").reason == "expired" }
    try bench.run("the other's end") { try bench.state("tried").hasEnded }
    #expect(try bench.state("tried").reason == "no_acknowledgement", "it may have arrived")
    bench.other.received(Command.sendSelfAdvert(flood: true).encode())
    try bench.run("the recipient is known") { try adopt("a") == nil }
    #expect(try bench.state("a").radio == 2)
    try bench.run("it is delivered") { try bench.state("a").state == .delivered }
    #expect(try adopt("a") != nil)
    #expect(try bench.messenger.heldKeys().isEmpty)
  }

  @Test(arguments: [false, true])
  func `a channel message that may be on the air does not fail while another radio is attached`(
    isCancelled: Bool
  ) throws {
    let bench = try Bench(on: InventedMachine())
    bench.swallow { if case .sendChannelText = $0 { true } else { false } }
    _ = try bench.send(SendRequest(to: "Public", text: "y", key: "c", lifetime: .seconds(60))).get()
    try bench.run("the radio does not answer") {
      let message = try bench.state("c")
      return message.state == .pending && message.attempts.accepted == 1
    }
    bench.swap(to: bench.other)
    if isCancelled {
      try bench.run("the other radio") { bench.synchronizer.state == .synced && bench.store.radio == 2 }
      #expect(try bench.refusal { () throws(Refusal) in try bench.messenger.cancel(key: "c") } == nil)
    }
    try bench.run("its end") { try bench.state("c").hasEnded }
    #expect(try bench.state("c").state == .sent && bench.state("c").reason == nil)
  }

  @Test func `a held message that is too long with the other radio's name is not taken over`() throws {
    let bench = try Bench()
    let name = String(repeating: "n", count: 31)
    let third = VirtualRadio(
      VirtualRadioSettings(name: name, seed: 9, channelSlots: 4, clock: 1_795_000_000), on: bench.loop)
    bench.ether.add(third)
    bench.swallow { if case .sendChannelText = $0 { true } else { false } }
    // 160 bytes less `r0: `, and less the longer name.
    let room = 160 - name.utf8.count - 2
    for (key, bytes) in [("long", 156), ("fits", room)] {
      _ = try bench.send(SendRequest(to: "Public", text: Text(String(repeating: "x", count: bytes)), key: key)).get()
    }
    bench.swap(to: third)
    try bench.run("the other radio") { bench.synchronizer.state == .synced && bench.store.radio == 2 }
    let outcome = try bench.result("an answer") { () throws(Refusal) in try await bench.messenger.adoptHeld() }.get()
    #expect(outcome.refused.map(\.key) == ["long"] && outcome.done.map(\.key) == ["fits"])
    #expect(outcome.refused.first?.refusal == .tooLong(over: 156 - room, limit: room))
    #expect(try bench.state("long").radio == 1, "it is held")
  }

  @Test func `a message is delivered, its states are journaled, and a repeated id is the same message`() throws {
    let bench = try Bench()
    let first = try bench.send(SendRequest(to: "r1", text: "hello", key: "k1")).get()
    #expect(first.count == 1 && first[0].state == .pending)
    try bench.run("delivered") { try bench.state("k1").state == .delivered }
    let again = try bench.send(SendRequest(to: "r1", text: "hello", key: "k1")).get()
    #expect(again.first?.text == "hello" && again.first?.state == .delivered)
    for (to, text) in [("r1", "another text"), ("Public", "hello")] {
      let refused = try bench.send(SendRequest(to: to, text: Text(text), key: "k1"))
      #expect(throws: Refusal.otherMessage("k1")) { try refused.get() }
    }
    for id in ["", " ", "\u{3000}", "\u{200B}", "a\nb"] {
      guard case .failure(.invalid(let words)) = try bench.send(SendRequest(to: "r1", text: "hello", key: id)) else {
        Issue.record("\(id.debugDescription) is taken as an id")
        continue
      }
      #expect(words.contains("an id must have"))
    }
    let nobody = try bench.send(SendRequest(to: "nobody", text: "hello", key: "k1"))
    #expect(throws: Refusal.notFound(.addressee("nobody"))) { try nobody.get() }
    #expect(bench.other.queuedMessages == 1)
    var states: [String] = []
    try bench.store.readJournal(after: 0) { event, _ in
      if event.kind == "outgoing" { states.append(String(decoding: event.body, as: UTF8.self)) }
      return true
    }
    #expect(states.count == 4)
    // The last state contains everything for a server that gets only this.
    #expect(states.map { $0.contains("\"text\":\"hello\"") } == [true, false, false, true])
    #expect(states[3].contains("delivered") && states[3].contains("ended_at"))
    let events = try #require(try bench.store.events(ofOutgoing: try bench.state("k1").id))
    #expect(events.ended == events.newest)
    #expect(try bench.state("k1").attempts.codes.count == 1)
  }

  @Test func `a recipient is found by name, beginning, key or channel, and an unknown one is refused`() throws {
    let bench = try Bench()
    let key = bench.other.key
    for to in ["r1", "R1", key.hex, String(key.hex.prefix(8)), "Public", "publ"] {
      #expect(throws: Never.self, "\(to)") { try bench.send(SendRequest(to: to, text: "x")).get() }
    }
    func refusal(_ request: SendRequest) throws -> String {
      if case .failure(let refusal) = try bench.send(request) { return refusal.code }
      return "taken"
    }
    #expect(try refusal(SendRequest(to: "nobody", text: "x")) == "not_found")
    #expect(try refusal(SendRequest(to: "#none", text: "x")) == "not_found")
    #expect(try refusal(SendRequest(to: "", text: "x")) == "invalid")
    #expect(try refusal(SendRequest(to: "r1", text: "")) == "invalid")
    for unseen in [" \n\u{A0}", "\u{200B}", "\u{2060}\u{FEFF}", "\u{2800} \u{AD}"] {
      #expect(try refusal(SendRequest(to: "r1", text: Text(unseen))) == "invalid", "\(unseen.debugDescription)")
    }
    #expect(try refusal(SendRequest(to: "r1", text: "a\u{0}b")) == "invalid")
    let long = Text(String(repeating: "ü", count: 79))
    #expect(try bench.send(SendRequest(to: "r1", text: long)) == .failure(.tooLong(over: 2, limit: 156)))
    #expect(try bench.send(SendRequest(to: "r1", text: long, splits: true)).get().count == 2)
  }

  @Test func `a beginning that two nodes share is ambiguous, and the candidates are listed`() throws {
    let bench = try Bench()
    let twin = Contact(key: PublicKey(bytes: [UInt8](repeating: 9, count: 32))!, name: "r1 twin")
    bench.own.received(Command.addUpdateContact(twin).encode())
    bench.loop.later { bench.synchronizer.refresh(twin.key) }
    try bench.run("the twin is known") { try bench.store.contact(twin.key) != nil }
    #expect(throws: Never.self, "an exact name is nobody else's") {
      try bench.send(SendRequest(to: "r1", text: "x")).get()
    }
    guard case .failure(.ambiguous(_, let candidates)) = try bench.send(SendRequest(to: "r", text: "x")) else {
      Issue.record("r is taken for one of them")
      return
    }
    #expect(candidates.count == 2 && candidates.contains { $0.contains("r1 twin") })
  }

  @Test func `a node with a channel's name does not take messages of the channel`() throws {
    let bench = try Bench()
    for (number, name) in (["Public", "public"] as [Text]).enumerated() {
      let key = PublicKey(bytes: [UInt8](repeating: UInt8(9 + number), count: 32))!
      bench.own.received(Command.addUpdateContact(Contact(key: key, name: name)).encode())
      bench.loop.later { bench.synchronizer.refresh(key) }
      try bench.run("the node is known") { try bench.store.contact(key) != nil }
    }
    let addressing = Addressing(bench.store)
    for typed in ["Public", "public", "PUBLIC"] {
      guard case .channel(let channel) = try addressing.find(typed) else {
        Issue.record("\(typed) is a node")
        continue
      }
      #expect(channel.name == "Public")
      #expect(try addressing.channel(typed).slot == channel.slot)
      let message = try bench.send(SendRequest(to: typed, text: "x")).get().first
      #expect(message?.channel != nil, "\(typed)")
    }
    #expect(try addressing.channel("publ").name == "Public", "a beginning of a channel's name")
    // A search for a node finds it by its name as before, and another node by its key.
    #expect(try addressing.contact("Public").contact.key.bytes.first == 9)
    #expect(try addressing.contact("public").contact.key.bytes.first == 10)
    #expect(throws: Refusal.invalid("r1 is a node; expected a channel")) { try addressing.channel("r1") }
  }

  @Test func `of two nodes whose names look the same, the one with the typed bytes is chosen`() throws {
    let bench = try Bench()
    let names: [Text] = ["Ren\u{E9}", "Rene\u{301}"]
    for (number, name) in names.enumerated() {
      let key = PublicKey(bytes: [UInt8](repeating: UInt8(9 + number), count: 32))!
      bench.own.received(Command.addUpdateContact(Contact(key: key, name: name)).encode())
      bench.loop.later { bench.synchronizer.refresh(key) }
      try bench.run("the node is known") { try bench.store.contact(key) != nil }
    }
    for (number, name) in names.enumerated() {
      let found = try Addressing(bench.store).contact(name.string).contact.key
      #expect(found.bytes.first == UInt8(9 + number))
    }
  }

  @Test func `the queue of messages is bounded, and a full queue is reported`() throws {
    var settings = Messenger.Settings()
    settings.maxWaiting = 3
    settings.delivery.budget.messages = 1
    let bench = try Bench(settings)
    var codes: [String] = []
    for number in 1...6 {
      if case .failure(let refusal) = try bench.send(SendRequest(to: "Public", text: Text("\(number)"))) {
        codes.append(refusal.code)
      }
    }
    #expect(codes == ["full", "full"])
    #expect(bench.messenger.status.waitsForBudget && bench.messenger.status.waiting == 3)
    #expect(bench.messenger.status.messages.used == 1)
  }

  @Test func `relayed messages leave half of the queue for local senders`() throws {
    var settings = Messenger.Settings()
    settings.maxWaiting = 4
    settings.delivery.budget.messages = 1
    let bench = try Bench(settings)
    _ = try bench.send(SendRequest(to: "Public", text: Text("first")))
    try bench.run("it to be sent") { bench.messenger.status.sentOnChannels == 1 }
    var codes: [String] = []
    let priorities: [DeliveryPriority] = [
      .relayed, .relayed, .relayed, .interactive, .relayed, .interactive, .interactive,
    ]
    for (number, priority) in priorities.enumerated() {
      let request = SendRequest(to: "Public", text: Text("\(number)"), priority: priority)
      if case .failure(let refusal) = try bench.send(request) { codes.append("\(number) \(refusal.code)") }
    }
    #expect(codes == ["2 full", "4 full", "6 full"])
  }

  @Test func `a burst of messages within one turn does not exceed the bound of the queue`() throws {
    var settings = Messenger.Settings()
    settings.maxWaiting = 5
    let bench = try Bench(settings)
    var (taken, refused) = (0, 0)
    bench.loop.later { [messenger = bench.messenger] in
      for number in 0..<40 {
        _ = bench.loop.begin {
          do throws(Refusal) {
            taken += try await messenger.send(SendRequest(to: "Public", text: Text("burst \(number)"))).count
          } catch {
            if case .full = error { refused += 1 } else { Issue.record("\(error)") }
          }
        }
      }
    }
    try bench.run("all to be answered") { taken + refused == 40 }
    #expect(taken == 5 && refused == 35, "\(taken) taken, \(refused) refused")
  }

  @Test func `a burst of unattended messages and of another radio's messages does not exceed the bound`() throws {
    var settings = Messenger.Settings()
    settings.maxWaiting = 5
    settings.delivery.budget.messages = 1
    let bench = try Bench(settings)
    var refused = 0
    bench.loop.later { [messenger = bench.messenger] in
      for number in 0..<40 {
        let request = SendRequest(to: "Public", text: Text("post \(number)"), key: "p\(number)")
        do throws(Refusal) { try messenger.post(request) } catch { refused += error.code == "full" ? 1 : 0 }
        // Repeated in the same turn, it is the same message.
        if number == 0 { do throws(Refusal) { try messenger.post(request) } catch { Issue.record("\(error)") } }
      }
    }
    try bench.run("all to be taken or refused") { refused == 35 }
    // One message may be sent; the others wait for the hour to pass.
    try bench.run("one to be sent") { bench.messenger.status.sentOnChannels == 1 }
    #expect(bench.messenger.status.waiting == 4)
    let third = VirtualRadio(
      VirtualRadioSettings(name: "r9", seed: 9, channelSlots: 4, clock: 1_795_000_000), on: bench.loop)
    bench.swap(to: third)
    try bench.run("the other radio") { bench.synchronizer.state == .synced && bench.store.radio == 2 }
    settings.maxWaiting = 3
    bench.messenger.change(settings)
    let outcome = try bench.result("an answer") { () throws(Refusal) in try await bench.messenger.adoptHeld() }.get()
    #expect(outcome.done.count == 3 && outcome.refused.map(\.refusal.code) == ["full"])
    #expect(bench.messenger.status.waiting == 3, "and none is counted twice")
  }

  @Test func `used air time is kept over a replaced store and a restart`() throws {
    let bench = try Bench()
    let id = try #require(try bench.send(SendRequest(to: "Public", text: "on the air")).get().first?.id)
    try bench.run("it to be sent") { bench.messenger.status.sentOnChannels == 1 }
    let used = bench.messenger.status.airtime.used
    #expect(used > 0 && bench.messenger.echoes.payload(of: id) != nil)
    try bench.store.forgetAirtime()
    try bench.messenger.begin()
    #expect(bench.messenger.status.airtime.used == used)
    #expect(bench.messenger.echoes.payload(of: id) == nil, "this number is another message's now")
    try bench.store.commitNow()
    let elapsed = bench.store.elapsed(at: bench.synchronizer.now)
    var kept: Int64 = 0
    try bench.store.eachAirtime { at, milliseconds, _ in
      if at <= elapsed { kept += milliseconds }
    }
    #expect(kept == used, "in the new store, too, by the clock by which it is forgotten")
  }

  @Test func `on a full disk no message is accepted or sent, and sending continues when there is room`() throws {
    let bench = try Bench(maxSize: 200 << 10)
    bench.ether.loss = 1
    _ = try bench.send(SendRequest(to: "r1", text: "on its way", key: "first")).get()
    // Fills the disk.
    let filler = [UInt8](repeating: 0x20, count: 4000)
    var isFull = false
    while !isFull {
      let commit = bench.store.write { store throws(SQLiteError) in
        try store.append(.gap, at: Moment(milliseconds: 0, trusted: false), body: filler)
      }
      bench.store.commit()
      isFull = !commit.isDurable
    }
    while case .success? = try? bench.send(SendRequest(to: "r1", text: "one more")) {}
    guard case .failure(.store(.full)) = try bench.send(SendRequest(to: "r1", text: "refused")) else {
      Issue.record("a message was taken in that is not on disk")
      return
    }
    bench.ether.loss = 0
    bench.store.write { store throws(SQLiteError) in
      try store.setCursor(of: "nobody", to: 1 << 40)
    }
    bench.store.commit()
    bench.makeRoom()
    try bench.run("the message that waited") { try bench.state("first").state == .delivered }
  }

  @Test func `a held message can be tried at once, and a waiting one cancelled`() throws {
    var settings = Messenger.Settings()
    settings.delivery.maxAttempts = 1
    let bench = try Bench(settings)
    bench.ether.loss = 1
    _ = try bench.send(SendRequest(to: "r1", text: "one", key: "one")).get()
    _ = try bench.send(SendRequest(to: "r1", text: "two", key: "two")).get()
    var cancelled: Result<OutgoingMessage, Refusal>?
    bench.loop.later { cancelled = Result { () throws(Refusal) in try bench.messenger.cancel(key: "two") } }
    try bench.run("cancelled") { cancelled != nil }
    #expect(try cancelled?.get().state == .failed)
    try bench.run("held") { try bench.state("one").state == .heldForRecipient }
    #expect(try bench.state("two").reason == "cancelled")
    bench.ether.loss = 0
    #expect(try bench.refusal { () throws(Refusal) in try await bench.messenger.retry(key: "one") } == nil)
    try bench.run("delivered") { try bench.state("one").state == .delivered }
    let message = try bench.state("one")
    #expect(message.attempts.next == 2 && message.attempts.accepted == 2, "the number of attempts continues")
  }

  @Test func `a reaction is attached to its message once, whichever arrives first`() throws {
    let bench = try Bench()
    func hear(_ text: Text, at time: UInt32) {
      let command = Command.sendText(
        OutgoingText(attempt: 0, time: time, recipient: bench.own.key.prefix, text: text))
      bench.other.received(command.encode())
    }
    let hash = TextDigest.reactionHash("What a day", senderTime: 5000)
    hear(Text("👍\n\(hash)"), at: 6000)
    try bench.run("the reaction") { try bench.store.messageCount() == 1 }
    hear("What a day", at: 5000)
    try bench.run("its target") { try bench.store.messageCount() == 2 }
    #expect(try bench.store.reactions(to: .received(2)).map(\.emoji) == ["👍"])
    hear(Text("👍\n\(hash)"), at: 7000)
    hear(Text("🔥\n\(hash)"), at: 8000)
    try bench.run("two more") { try bench.store.messageCount() == 4 }
    #expect(try bench.store.reactions(to: .received(2)).map(\.emoji) == ["👍", "🔥"])
    _ = try bench.send(SendRequest(to: "r1", text: "ours", key: "ours")).get()
    try bench.run("delivered") { try bench.state("ours").state == .delivered }
    let ours = try bench.state("ours")
    hear(Text("🎉\n\(TextDigest.reactionHash("ours", senderTime: ours.senderTime ?? 0))"), at: 9000)
    try bench.run("the last") { try bench.store.messageCount() == 5 }
    #expect(try bench.store.reactions(to: .sent(ours.id)).map(\.emoji) == ["🎉"])
  }

  @Test func `the event of a reaction says who ordered it, also when its message arrives`() throws {
    let bench = try Bench()
    let hash = TextDigest.reactionHash("What a day", senderTime: 5000)
    _ = try bench.send(SendRequest(to: "r1", text: Text("👍\n\(hash)"), key: "k", origin: "hook/bot")).get()
    let text = OutgoingText(attempt: 0, time: 5000, recipient: bench.own.key.prefix, text: "What a day")
    bench.other.received(Command.sendText(text).encode())
    try bench.run("the message") { try bench.store.reactions(to: .received(1)).count == 1 }
    var events: [String] = []
    try bench.store.readJournal(after: 0) { event, _ in
      if event.kind == "reaction" { events.append(String(decoding: event.body, as: UTF8.self)) }
      return true
    }
    #expect(events.count == 2 && events.allSatisfy { $0.contains(#""origin":"hook/bot""#) }, "\(events)")
  }

  @Test func `a radio with a full table costs no air time, and its message shows the next attempt`() throws {
    var isFull = true
    let bench = try Bench(refuses: {
      switch $0 {
      case .sendText, .sendSelfAdvert: isFull ? .tableFull : nil
      default: nil
      }
    })
    let id = try #require(try bench.send(SendRequest(to: "r1", text: "is there room?", key: "k")).get().first?.id)
    try bench.run("it is refused, and again") { bench.messenger.refusals(of: id)?.count ?? 0 > 1 }
    try bench.run("it waits") { try bench.state("k").state == .pending }
    #expect(bench.messenger.refusals(of: id)?.next ?? 0 >= bench.synchronizer.now.milliseconds)
    #expect(try bench.state("k").attempts.accepted == 0 && bench.state("k").airtime == 0)
    let advert = SelfAdvert(bench.messenger, SelfAdvert.Settings())
    #expect(try bench.refusal { () throws(Refusal) in try await advert.send(isFlood: true) } != nil)
    func booked() throws -> [Int64] {
      var booked: [Int64] = []
      try bench.store.eachAirtime { _, milliseconds, _ in booked.append(milliseconds) }
      return booked
    }
    #expect(try bench.messenger.status.airtime.used == 0 && booked() == [])
    isFull = false
    try bench.run("it arrives") { try bench.state("k").state == .delivered }
    let used = try bench.state("k").airtime
    #expect(try used > 0 && bench.messenger.status.airtime.used == used && booked() == [used])
    #expect(bench.messenger.refusals(of: id) == nil)
  }

  @Test func `air time is computed with the radio's present parameters`() throws {
    let bench = try Bench(on: InventedMachine())
    var parameters = try #require(bench.messenger.session.radio)
    parameters.spreadingFactor = 12
    bench.own.received(Command.setRadioParameters(parameters, clientRepeat: nil).encode())
    _ = bench.loop.begin { [synchronizer = bench.synchronizer] in await synchronizer.refreshIdentity() }
    try bench.run("its new ones") { bench.messenger.session.radio == parameters }
  }
}

extension Store {
  /// Forgets the air time, like a new store in its place.
  fileprivate func forgetAirtime() throws {
    write { store throws(SQLiteError) in try store.recordAirtime(0, channel: nil, at: .max / 2) }
    try commitNow()
  }
}
