// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Store
import TestSupport
import Testing
import Transport

@testable import Messaging
@testable import Sync

@Suite struct DoubtTests {
  private static func channel(_ name: Text, _ byte: UInt8) -> Channel {
    Channel(slot: 1, name: name, secret: .init(bytes: Array(repeating: byte, count: 16))!)
  }

  /// Does this work; the radio's confirmation of the first such command is lost, and it does not get the question for the slot.
  private func withoutConfirmation<Value>(
    _ bench: Bench, _ isAsked: @escaping (Command) -> Bool, _ work: @escaping () async throws(Refusal) -> Value
  ) throws {
    var (waits, isLost, isOver) = (false, false, false)
    bench.swallow { command in
      waits = waits || isAsked(command)
      return waits && !isOver && command == .getChannel(slot: 1)
    }
    bench.lose { frame in
      guard waits, !isLost, frame == Reply.ok.encode() else { return false }
      isLost = true
      return true
    }
    let refusal = try bench.refusal(of: work)
    isOver = true
    if case .silence = refusal { return }
    Issue.record("\(String(describing: refusal))")
  }

  @Test func `nothing is sent to a channel until the radio has confirmed that its slot has that channel`() throws {
    let bench = try Bench(on: InventedMachine())
    let trees = Self.channel("#trees", 7)
    for radio in [bench.own, bench.other] { radio.received(Command.setChannel(trees).encode()) }
    func connectAgain(swallowing: Bool) throws {
      bench.swallow { swallowing && $0 == .getChannel(slot: 1) }
      let before = bench.synchronizer.counters.connections
      bench.swap(to: bench.own)
      try bench.run("again") { bench.synchronizer.counters.connections > before && bench.synchronizer.isServing }
    }
    try connectAgain(swallowing: false)
    #expect(!bench.synchronizer.doubts(1))
    try connectAgain(swallowing: true)
    #expect(bench.synchronizer.doubts(1))
    _ = try bench.send(SendRequest(to: "#trees", text: "to the trees", key: "k")).get()
    _ = try bench.send(SendRequest(to: "Public", text: "to all", key: "p")).get()
    try bench.run("the other channel's goes out") { try bench.state("p").state == .sent }
    let waiting = try bench.state("k")
    #expect(waiting.state == .pending && waiting.attempts.accepted == 0 && bench.messenger.waitsForChannel(waiting))
    bench.swallow { _ in false }
    try bench.run("it goes when the slot has answered") { try bench.state("k").state == .sent }
    #expect(try !bench.messenger.waitsForChannel(bench.state("k")))

    try connectAgain(swallowing: true)
    _ = try bench.send(SendRequest(to: "#trees", text: "once more", key: "s")).get()
    bench.own.received(Command.setChannel(Self.channel("#secret", 8)).encode())
    bench.swallow { _ in false }
    try bench.run("its end: the radio has no such channel") { try bench.state("s").hasEnded }
    #expect(try bench.state("s").reason == "unknown_to_radio" && bench.state("s").attempts.accepted == 0)
  }

  @Test func `a slot whose change the radio did not confirm is read again before anything is sent to it`() throws {
    let bench = try Bench(on: InventedMachine())
    let table = RadioTable(bench.synchronizer, store: bench.store)
    #expect(try bench.refusal { () async throws(Refusal) in try await table.put(Self.channel("#trees", 7)) } == nil)
    let isAsked = { (command: Command) in if case .setChannel = command { true } else { false } }
    try withoutConfirmation(bench, isAsked) { () async throws(Refusal) in
      try await table.put(Self.channel("#secret", 8))
    }
    _ = try bench.send(SendRequest(to: "#trees", text: "to the trees", key: "k")).get()
    try bench.run("its end: the radio has no such channel") { try bench.state("k").hasEnded }
    #expect(try bench.state("k").reason == "unknown_to_radio")
    #expect(try bench.store.channel(slot: 1)?.name == "#secret" && !bench.synchronizer.doubts(1))
  }

  @Test(arguments: [true, false])
  func `a channel that the radio did not confirm is there or not after one question, and can be sent to`(
    _ isTaken: Bool
  ) throws {
    let bench = try Bench(on: InventedMachine())
    let table = RadioTable(bench.synchronizer, store: bench.store)
    var isLost = false
    if isTaken {
      bench.lose { frame in
        guard !isLost, frame == Reply.ok.encode() else { return false }
        isLost = true
        return true
      }
    } else {
      bench.swallow { if case .setChannel = $0 { true } else { false } }
    }
    let refusal = try bench.refusal { () async throws(Refusal) in
      _ = try await table.add(name: "#trees", secret: .hashtag("#trees"))
    }
    let send = SendRequest(to: "#trees", text: "to the trees", key: "k")
    guard isTaken else {
      #expect(refusal == .radio("the radio has not done it: try again"))
      #expect(throws: Refusal.self) { try bench.send(send).get() }
      return
    }
    #expect(refusal == nil && isLost)
    _ = try bench.send(send).get()
    try bench.run("it goes out") { try bench.state("k").state == .sent }
  }

  /// `restarts`: the program begins again before the slot is read.
  @Test(arguments: [(true, false), (false, false), (true, true), (false, true)])
  func `the region of a channel that the radio did not confirm counts if the radio has taken it, else the former one`(
    _ isTaken: Bool, _ restarts: Bool
  ) throws {
    let bench = try Bench(on: InventedMachine())
    let table = RadioTable(bench.synchronizer, store: bench.store)
    let trees = Self.channel("#trees", 7)
    #expect(
      try bench.refusal { () async throws(Refusal) in try await table.setRegion(.named("ottawa"), of: trees) } == nil)
    let isAsked = { (command: Command) in if case .setChannel = command { true } else { false } }
    let put = { () async throws(Refusal) in try await table.put(trees, in: .named("gatineau")) }
    if isTaken {
      try withoutConfirmation(bench, isAsked, put)
    } else {
      bench.swallow { isAsked($0) || $0 == .getChannel(slot: 1) }
      let refusal = try bench.refusal(of: put)
      guard case .silence? = refusal else {
        Issue.record("\(String(describing: refusal))")
        return
      }
      bench.swallow { _ in false }
    }
    if restarts {
      bench.synchronizer.slots = ToldSlots()
      bench.swap(to: bench.own)
    }
    try bench.run("the slot to be read") { bench.synchronizer.isReported(1) }
    try bench.run("its region") {
      try bench.store.region(ofChannel: trees.secret.digest) == (isTaken ? "gatineau" : "ottawa")
    }
    #expect(try bench.store.untakenChannels().isEmpty)
  }

  @Test func `another radio does not show whether the one before has taken a channel, whose region stays`() throws {
    let bench = try Bench(on: InventedMachine())
    let table = RadioTable(bench.synchronizer, store: bench.store)
    let trees = Self.channel("#trees", 7)
    let isAsked = { (command: Command) in if case .setChannel = command { true } else { false } }
    try withoutConfirmation(bench, isAsked) { () async throws(Refusal) in
      try await table.put(trees, in: .named("gatineau"))
    }
    let before = bench.synchronizer.counters.connections
    bench.swap(to: bench.other)
    try bench.run("the other radio, and its slot") {
      bench.synchronizer.counters.connections > before && bench.synchronizer.isServing
        && bench.synchronizer.isReported(1)
    }
    try bench.store.commitNow()
    #expect(try bench.store.region(ofChannel: trees.secret.digest) == "gatineau")
  }

  @Test func `the region of a channel that the radio removed without confirming it is deleted`() throws {
    let bench = try Bench(on: InventedMachine())
    let table = RadioTable(bench.synchronizer, store: bench.store)
    let trees = Self.channel("#trees", 7)
    #expect(
      try bench.refusal { () async throws(Refusal) in try await table.put(trees, in: .named("ottawa")) } == nil)
    #expect(try bench.store.region(ofChannel: trees.secret.digest) == "ottawa")
    let isAsked = { (command: Command) in if case .setChannel = command { true } else { false } }
    try withoutConfirmation(bench, isAsked) { () async throws(Refusal) in try await table.remove(trees) }
    try bench.run("its region to be gone") { try bench.store.region(ofChannel: trees.secret.digest) == nil }
  }

  @Test(arguments: [
    (RadioError.tableFull, "the radio refuses: it has no room for that"),
    (RadioError.notFound, "the radio has no such channel slot"),
  ])
  func `a channel that the radio refuses is told in words that fit a channel`(
    _ error: RadioError, _ words: String
  ) throws {
    let bench = try Bench(
      on: InventedMachine(),
      refuses: { command in
        guard case .setChannel = command else { return nil }
        return error
      })
    let table = RadioTable(bench.synchronizer, store: bench.store)
    let refusal = try bench.refusal { () async throws(Refusal) in try await table.put(Self.channel("#trees", 7)) }
    #expect(refusal == .radio(words))
  }

  @Test func `a contact whose removal the radio did not confirm is read again`() throws {
    let bench = try Bench(on: InventedMachine())
    let (table, key) = (RadioTable(bench.synchronizer, store: bench.store), bench.other.key)
    #expect(try bench.store.contact(key)?.onRadio == true)
    let isAsked = { (command: Command) in if case .removeContact = command { true } else { false } }
    try withoutConfirmation(bench, isAsked) { () async throws(Refusal) in try await table.remove(key) }
    try bench.run("the store follows") { try bench.store.contact(key)?.onRadio == false }
  }

  @Test(arguments: [true, false])
  func `a change is told as a doubt if the link was lost before its answer, and not if it was not sent`(
    _ isSent: Bool
  ) throws {
    let bench = try Bench(on: InventedMachine())
    let (table, key) = (RadioTable(bench.synchronizer, store: bench.store), bench.other.key)
    bench.swallow { if case .removeContact = $0 { true } else { $0 == .getBattery } }
    // The radio does not answer the question before it.
    if !isSent { _ = bench.synchronizer.connection.submit(.getBattery, .interactive) }
    bench.loop.schedule(after: .seconds(1)) {
      bench.synchronizer.connection.link.onEvent(.down(.unplugged("memory")))
    }
    let refusal = try bench.refusal { () async throws(Refusal) in try await table.remove(key) }
    let doubt = Refusal.silence("the radio's link was lost; it may have done it anyway")
    #expect(refusal == (isSent ? doubt : .linkDown))
  }

  @Test(arguments: [true, false])
  func `a message that waits in the radio does not go to the next channel of its slot`(_ isHandedOver: Bool) throws {
    let bench = try Bench(on: InventedMachine())
    let table = RadioTable(bench.synchronizer, store: bench.store)
    let trees = Self.channel("#trees", 7)
    bench.other.received(Command.setChannel(trees).encode())
    #expect(try bench.refusal { () async throws(Refusal) in try await table.put(trees) } == nil)
    bench.lose { $0.first == PushCode.messageWaiting.rawValue }
    bench.swallow { !isHandedOver && $0 == .syncNextMessage }
    bench.other.received(
      Command.sendChannelText(type: .plain, slot: 1, time: 1_795_000_500, text: "to the trees").encode())
    try bench.run("the radio has it") { bench.own.queuedMessages == 1 }
    #expect(try bench.refusal { () async throws(Refusal) in try await table.put(Self.channel("#secret", 8)) } == nil)
    bench.swallow { _ in false }
    var channels: [String?] = []
    try bench.run("it is stored") {
      channels = []
      try bench.store.eachMessage(limit: 10) { message in
        channels.append(message.channel)
        return true
      }
      return !channels.isEmpty
    }
    #expect(channels == [isHandedOver ? trees.secret.digest : nil])
  }

  @Test func `the recipient of a message that was attempted before the start is read again`() throws {
    let bench = try Bench(on: InventedMachine())
    let key = bench.other.key
    var contact = try #require(try bench.store.contact(key)?.contact)
    contact.outPath = Path(bytes: [0x22], bytesPerHop: 1)
    bench.own.received(Command.addUpdateContact(contact).encode())
    bench.synchronizer.restart(fully: true)
    try bench.run("its path") {
      try bench.store.contact(key)?.contact.outPath != nil && bench.synchronizer.knowsAllContacts
    }
    _ = try bench.send(SendRequest(to: "r1", text: "x", key: "k")).get()
    try bench.run("an attempt") { try bench.state("k").attempts.next > 0 }
    var isAsked = false
    bench.swallow { command in
      if command == .getContactByKey(key) { isAsked = true }
      return false
    }
    try bench.messenger.begin()
    try bench.run("the radio may have no path any more") { isAsked }
  }

  @Test func `an unknown contact at the radio causes a full list of contacts`() throws {
    let bench = try Bench()
    bench.own.received(Command.removeContact(bench.other.key).encode())
    let before = bench.synchronizer.counters.fullContactLists
    _ = try bench.send(SendRequest(to: "r1", text: "x", key: "k")).get()
    try bench.run("all of them") {
      try bench.state("k").hasEnded && bench.synchronizer.counters.fullContactLists == before + 1
        && bench.synchronizer.knowsAllContacts
    }
    #expect(try bench.state("k").reason == "unknown_to_radio")
    #expect(try bench.store.contact(bench.other.key)?.onRadio == false)
  }

  @Test
  func
    `a channel message waits while the radio has no room for it, though the firmware says that it has no such channel`()
    throws
  {
    let bench = try Bench(on: InventedMachine())
    bench.ether.airtimeFactor = 1
    for number in 0..<24 { _ = try bench.send(SendRequest(to: "Public", text: "burst", key: "k\(number)")).get() }
    try bench.run("all are sent") { try (0..<24).allSatisfy { try bench.state("k\($0)").state == .sent } }
  }
}
