// SPDX-License-Identifier: MIT

import Alerts
import EventLoop
import Glibc
import JSON
import Relay
import TestSupport
import Testing
import Timing

@testable import Gateway
@testable import Store
@testable import Sync

/// An open alert shows the sum of several losses, without a write for each.
@Suite struct AlertWordsTests {
  private let machine = InventedMachine()
  private let loop: EventLoop
  private let scratch = Scratch(inMemory: true)

  init() { loop = EventLoop(on: machine) }

  private func pass(_ seconds: Int64) {
    let end = loop.now + .seconds(seconds)
    while loop.now < end {
      let timer = loop.schedule(at: end) {}
      loop.turn(wait: true)
      timer.cancel()
    }
  }

  private func open(
    contactTable: @escaping ContactTableWatch.Table = { nil }
  ) throws -> (Store, GatewayAlerts) {
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
    let log = Log(level: .info, sink: { _, _ in })
    let relay = try Relay([], store: store, on: loop, log: log)
    let alerts = GatewayAlerts(
      AlertConfiguration(), store, relay, contactTable: contactTable, changes: StateChange(), on: loop, log: log)
    loop.afterTurn { [weak store] in store?.commit() }
    alerts.begin()
    pass(1)
    return (store, alerts)
  }

  private func cut(_ events: Int64) -> JournalTrim {
    JournalTrim(
      first: 1, last: events, reason: "quota", missedBy: [.init(upstream: "c", events: events)])
  }

  private func words(_ store: Store) throws -> [String] {
    try store.alerts(openOnly: true, limit: 10).filter { $0.rule == "journal_loss" }
      .map { "\(Int($0.value ?? -1)): \($0.text)" }
  }

  private func alertEvents(_ store: Store) throws -> [String] {
    var told: [String] = []
    try store.readJournal(after: 0) { event, _ in
      // `try?`: the gateway has written the body itself.
      let body = try? JSONValue(parsing: event.body)
      if event.kind == "alert" { told.append("\(body?["state"]?.string ?? ""): \(body?["text"]?.string ?? "")") }
      return true
    }
    return told
  }

  @Test func `a loss that continues is reported with its sum, also after a restart and at its end`() throws {
    let was: (Int) -> String = { "\($0) events were deleted that c had not received" }
    do {
      let (store, alerts) = try open()
      alerts.journalWasCut(cut(51))
      pass(1)
      alerts.journalWasCut(cut(49))
      #expect(try words(store) == ["100: \(was(100))"], "at once")
      alerts.stop()
      store.settle()
    }
    let (store, alerts) = try open()
    #expect(try words(store) == ["100: \(was(100))"])
    alerts.journalWasCut(cut(1801))
    pass(1)
    #expect(try alertEvents(store) == ["begin: \(was(51))"], "once")
    alerts.found(.lost(events: 9), at: "c")
    #expect(
      try words(store) == ["1910: 1910 events at most are missing at c, and the journal has not kept them"])
    pass(90_000)
    #expect(
      try alertEvents(store).last == "end: 1910 events at most are missing at c, and the journal has not kept them")
    #expect(try alertEvents(store).count == 2)
    #expect(store.alertWords.isEmpty, "nobody needs them any more")
    // The next loss is counted from zero.
    alerts.journalWasCut(cut(3))
    pass(1)
    #expect(try words(store) == ["3: \(was(3))"])
  }

  @Test func `alerts that are dropped while the disk refuses them leave no words behind`() throws {
    let (store, alerts) = try open()
    func comesAndGoes(_ number: Int) {
      let subject = AlertSubject(.journalLoss, "\(number)")
      alerts.read(subject, .bad(text: "trouble \(number)"))
      alerts.writer.drop(subject)
    }
    try store.database.execute("PRAGMA query_only = ON")
    for number in 0..<1100 { comesAndGoes(number) }
    pass(1)
    #expect(store.alertWords.count >= 1100)
    // No attempt is under way any more: the oldest make room.
    comesAndGoes(1100)
    pass(1)
    try store.database.execute("PRAGMA query_only = OFF")
    alerts.writer.write()
    pass(1)
    let told = try alertEvents(store).count
    #expect(told > 2000 && told < 2202, "\(told)")
    #expect(store.alertWords.count == alerts.board.open.count)
  }

  @Test func `an open alert about messages that the radio lost covers all losses, not only the last one`() throws {
    let (store, alerts) = try open()
    func words() throws -> [String] {
      try store.alerts(openOnly: true, limit: 10).filter { $0.rule == "radio_queue_full" }.map(\.text)
    }
    let unknown = RadioQueue.Loss(waited: 7, atLeast: nil, atMost: nil, start: .anew)
    alerts.messagesWereLost(unknown)
    pass(1)
    #expect(try words() == [unknown.description])
    let restart = RadioQueue.Loss(waited: 0, start: .unattended)
    alerts.messagesWereLost(unknown)
    pass(1)
    #expect(try words() == [unknown.description], "the same")
    alerts.messagesWereLost(restart)
    let all = "in the radio, or on their way from it, again and again"
    pass(1)
    #expect(try words() == ["messages may have been lost \(all)"], "nobody knows whether there was any")
    alerts.messagesWereLost(RadioQueue.Loss(waited: 0, atLeast: nil, atMost: 1, start: nil))
    pass(1)
    #expect(try words() == ["messages may have been lost \(all)"])
    for (lost, sum) in [(3, 3), (4, 7)] {
      alerts.messagesWereLost(RadioQueue.Loss(waited: 0, atLeast: lost, atMost: nil, start: nil))
      pass(1)
      #expect(try words() == ["messages were lost \(all): at least \(sum)"])
    }
    alerts.stop()
  }

  @Test func `a radio in the wrong region is reported after a minute, and so is the end`() throws {
    let (store, alerts) = try open()
    func rules() throws -> [String] {
      try store.alerts(openOnly: true, limit: 10).map(\.rule).filter { $0 == "region_stuck" }
    }
    alerts.radio(isUp: true, isScopeStuck: true, message: "")
    pass(30)
    alerts.radio(isUp: true, isScopeStuck: false, message: "")
    pass(120)
    #expect(try rules() == [], "it went back at the second time")
    alerts.radio(isUp: true, isScopeStuck: true, message: "")
    pass(61)
    #expect(try rules() == ["region_stuck"])
    alerts.radio(isUp: false, isScopeStuck: false, message: "power-cycled")
    pass(400)
    #expect(try rules() == ["region_stuck"], "nobody knows")
    alerts.radio(isUp: true, isScopeStuck: false, message: "")
    pass(301)
    #expect(try rules() == [])
    #expect(
      try alertEvents(store).last
        == "end: the radio does not go back to its default region: power-cycle it. Until then what it might flood is not sent"
    )
    alerts.stop()
  }

  @Test func `a radio that returns no messages is reported after two minutes, over broken links, until it does`() throws
  {
    let (store, alerts) = try open()
    func rules() throws -> [String] {
      try store.alerts(openOnly: true, limit: 10).map(\.rule).filter { $0 == "messages_stuck" }
    }
    func withheld() -> Withheld { Withheld(why: "the radio does not return its messages", since: loop.now) }
    alerts.messages(withheld(), isKnown: true)
    pass(30)
    alerts.messages(nil, isKnown: true)
    pass(200)
    #expect(try rules() == [], "it does, at the second time")
    let since = withheld()
    for _ in 1...3 {
      alerts.messages(since, isKnown: true)
      pass(25)
      alerts.messages(since, isKnown: false)
      pass(15)
      #expect(try rules() == [])
    }
    alerts.messages(since, isKnown: true)
    pass(1)
    #expect(try rules() == ["messages_stuck"], "a broken link does not restart its time")
    alerts.messages(nil, isKnown: false)
    pass(400)
    #expect(try rules() == ["messages_stuck"], "nobody knows")
    alerts.messages(nil, isKnown: true)
    pass(301)
    #expect(try rules() == [])
    #expect(
      try alertEvents(store).last
        == "end: the radio does not return its messages: nothing more is received from it. If it stays so, restart the radio"
    )
    alerts.stop()
  }

  @Test func `deleted events that arrive at the upstream nevertheless are subtracted from the loss`() throws {
    let was: (Int) -> String = { "\($0) events were deleted that c had not received" }
    let (store, alerts) = try open()
    alerts.journalWasCut(cut(51))
    pass(1)
    alerts.found(.arrived(events: 20), at: "c")
    #expect(try words(store) == ["31: \(was(31))"])
    // The events may arrive before the loss is reported.
    alerts.found(.arrived(events: 35), at: "c")
    #expect(try words(store) == ["0: events were deleted that were on their way to c, and it has them"])
    alerts.journalWasCut(cut(10))
    #expect(try words(store) == ["6: \(was(6))"])
    pass(90_000)
    alerts.found(.arrived(events: 5), at: "c")
    alerts.journalWasCut(cut(5))
    pass(1)
    #expect(try words(store) == [], "nothing is lost")
  }

  @Test func `events that arrived long after their loss was told are not subtracted from another loss`() throws {
    let (store, alerts) = try open()
    alerts.found(.arrived(events: 20), at: "c")
    pass(7200)
    alerts.journalWasCut(cut(5))
    pass(1)
    #expect(try words(store) == ["5: 5 events were deleted that c had not received"])
    alerts.stop()
  }

  @Test func `the replacement of a damaged database is reported, whatever write is in progress`()
    throws
  {
    let (store, alerts) = try open()
    alerts.journalWasCut(cut(51))
    // This event is on its way to the damaged database.
    alerts.storeReplaced("gw.db.corrupt-1", had: 70, unsent: [("hub", 3), ("web", 12)])
    pass(2)
    let text =
      "the database was damaged, and a new one begun: it was saved as gw.db.corrupt-1. There had been 70 events or more, "
      + "of which upstreams had not got: hub 3, web 12"
    let open = try store.alerts(openOnly: true, limit: 10)
    #expect(open.filter { $0.rule == "store_lost" }.map(\.text) == [text])
    let said = try alertEvents(store)
    #expect(said.contains("begin: \(text)"), "\(said)")
    // The first loss stays open for a day, and a second one is told beside it.
    unlink(scratch.location("gw.db"))
    alerts.readStore()
    pass(2)
    let both = try store.alerts(openOnly: true, limit: 10).filter { $0.rule == "store_lost" }.map(\.text)
    #expect(both.count == 2 && both.contains(text) && both.contains { $0.contains("removed or replaced") }, "\(both)")
    // And so is one of another cause.
    alerts.storeIsLost("the database's log was damaged", .log)
    pass(2)
    #expect(try store.alerts(openOnly: true, limit: 10).filter { $0.rule == "store_lost" }.count == 3)
  }

  @Test func `further incidents of a subject are told beside the earlier ones, over a damaged database`() throws {
    let (store, alerts) = try open()
    func rows(_ rule: String) throws -> [StoredAlert] {
      try store.alerts(openOnly: true, limit: 10).filter { $0.rule == rule }
    }
    alerts.found(.conflict(reason: "event 3 differs", events: 7), at: "c")
    pass(1)
    alerts.found(.otherEpoch("679d", last: 12), at: "c")
    pass(1)
    let both = try rows("journal_conflict")
    #expect(both.count == 1 && both.first?.value == 7)
    #expect(both.first?.text.contains("7 events go there again") == true, "\(both)")
    #expect(both.first?.text.contains("the epoch 679d, up to 12") == true, "\(both)")
    alerts.found(.otherEpoch("679d", last: 12), at: "c")
    #expect(try rows("journal_conflict") == both, "the same is no news")
    alerts.storeWasDamaged("gw.db.corrupt-1", had: 70, unsent: [("hub", 3)])
    pass(1)
    alerts.storeReplaced("gw.db.corrupt-2", had: 90, unsent: [("hub", 5)])
    pass(2)
    let lost = try rows("store_lost")
    #expect(lost.count == 1, "\(lost)")
    for words in ["corrupt-1", "70 events", "hub 3", "corrupt-2", "90 events", "hub 5"] {
      #expect(lost.first?.text.contains(words) == true, "\(lost)")
    }
    #expect(alerts.board.isOpen(AlertSubject(.journalConflict, "c")), "the new database gets it, too")
    for number in 3...40 {
      alerts.storeWasDamaged("gw.db.corrupt-\(number)", had: 70, unsent: [("hub", Int64(number))])
    }
    let words = try rows("store_lost").first?.text ?? ""
    #expect(words.contains("corrupt-1") && words.contains("corrupt-40") && words.utf8.count < 1200, "\(words)")
    alerts.stop()
  }

  @Test func `changes of alerts that find no room leave no alert open that is over`() throws {
    let (store, alerts) = try open()
    let (over, restless) = (AlertSubject(.configurationWrong), AlertSubject(.remoteCommands, "n"))
    let writer = alerts.writer
    writer.read(over, .bad(text: "refused"))
    pass(1)
    #expect(try store.alerts(openOnly: true, limit: 10).contains { $0.rule == "configuration_wrong" })
    // Nothing is written, until there are more changes than room for them.
    writer.stop()
    writer.read(over, .well)
    for _ in 0..<1100 {
      writer.read(restless, .bad(text: "n may run commands"))
      writer.read(restless, .well)
    }
    writer.read(restless, .bad(text: "n may run commands again"))
    writer.begin()
    writer.write()
    pass(1)
    let left = try store.alerts(openOnly: true, limit: 10)
    #expect(!left.contains { $0.rule == "configuration_wrong" })
    #expect(left.filter { $0.rule == "remote_commands" }.map(\.text) == ["n may run commands again"])
    alerts.stop()
  }

  @Test func `a log that is removed while the gateway runs is an alert that says what to do`() throws {
    let (store, alerts) = try open()
    unlink(scratch.location("gw.db-wal"))
    alerts.readStore()
    pass(2)
    let texts = try store.alerts(openOnly: true, limit: 10).filter { $0.rule == "store_lost" }.map(\.text)
    #expect(texts.count == 1 && texts.first?.contains("log was removed or replaced") == true, "\(texts)")
    alerts.stop()
  }

  @Test func `a node without room in the contact table is reported after a minute, until there is room`() throws {
    var count = 350
    let (store, alerts) = try open(contactTable: { (count, 350) })
    let isOpen = { try store.alerts(openOnly: true, limit: 10).contains { $0.rule == "contacts_full" } }
    alerts.nodeWasNotAdded()
    pass(30)
    #expect(try !isOpen())
    alerts.nodeWasNotAdded()
    pass(40)
    #expect(try isOpen(), "a minute after the first")
    count = 349
    alerts.readContactTable()
    alerts.arm()
    pass(700)
    #expect(try !isOpen())
  }

  @Test func `a change of only the number is shown, and causes no write`() throws {
    let (store, alerts) = try open()
    let subject = AlertSubject(.diskFull)
    alerts.hear(subject, .bad(text: "only 47 MiB are free", value: 47))
    pass(1)
    let before = store.lastSeq
    for free in (0..<47).reversed() {
      alerts.hear(subject, .bad(text: "only \(free) MiB are free", value: Double(free)))
      #expect(!store.transactions.hasUncommitted)
    }
    #expect(try store.alerts(openOnly: true, limit: 10).contains { $0.text == "only 0 MiB are free" && $0.value == 0 })
    #expect(store.lastSeq == before)
  }
}
