// SPDX-License-Identifier: MIT

import Companion
import JSON
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import Sync

@Suite struct RadioStartsTests {
  private func at(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  /// Whether a radio that started at `later`, read at `now`, was restarted without a reader. `earlier`: its start as
  /// the last run knew it; `uptime`: of that time, if the machine has restarted since.
  private func isTold(_ later: Double, now: Double, after earlier: Double?, uptime: Double = 100) -> Bool {
    var starts = RadioStarts()
    starts.connected(kept: RadioStart(time: earlier.map(at), uptime: .seconds(uptime)))
    return starts.started(RadioStart(time: at(later), uptime: .seconds(now - later)), now: at(now))
  }

  @Test func `a later start than an earlier run knew is a restart, apart from inexact clocks and the counter's wrap`() {
    #expect(isTold(20, now: 30, after: 10))
    #expect(!isTold(12, now: 30, after: 10), "whole seconds")
    let days = 86_400.0
    #expect(!isTold(30, now: 2 * days, after: 10), "a clock without a quartz")
    #expect(isTold(2 * days, now: 2 * days + 5, after: 10))
    let wrap = 4_294_967.296
    #expect(!isTold(10 + wrap, now: wrap + 100, after: 10), "its milliseconds began at zero again")
    #expect(isTold(10 + wrap / 2, now: wrap + 100, after: 10))
  }

  @Test func `over a restart of the machine only a start without it is one that nobody noticed`() {
    #expect(!isTold(-8, now: 60, after: nil), "the power came back to both")
    #expect(!isTold(20, now: 60, after: nil))
    #expect(isTold(100, now: 200, after: nil), "the machine was already running")
    #expect(isTold(-3600, now: 60, after: nil, uptime: 7200), "it ran for longer before")
    #expect(!isTold(-3600, now: 60, after: nil, uptime: 1800), "nobody knows")
  }

  /// `ended`: the end of the link; `silent`: the first command without an answer.
  private func isToldInRun(_ later: Double, ended: Double, silent: Double? = nil, byLine: Bool = true) -> Bool {
    var starts = RadioStarts()
    starts.connected(kept: nil)
    _ = starts.started(RadioStart(time: at(1), uptime: .seconds(9)), now: at(10))
    starts.disconnected(LinkEnd(at: at(ended), silentSince: silent.map(at), noticedWithin: byLine ? .seconds(1) : nil))
    return starts.started(RadioStart(time: at(later), uptime: .seconds(5)), now: at(max(later, ended) + 5))
  }

  @Test func `in one run a restart counts if the link had ended before, or the gateway had stood still`() {
    #expect(!isToldInRun(101, ended: 100) && !isToldInRun(99.5, ended: 100))
    #expect(isToldInRun(110, ended: 100))
    #expect(isToldInRun(98, ended: 100) && isToldInRun(60, ended: 100), "it did not run when the line ended")
    #expect(!isToldInRun(60, ended: 100, silent: 61, byLine: false), "it announced what came before")
    #expect(isToldInRun(60, ended: 100, silent: 40, byLine: false), "it did not answer before it restarted")
    #expect(!isToldInRun(1, ended: 100), "no restart")
  }
}

/// The radio acknowledges messages, and restarts before a gateway reads them.
@Suite struct UnattendedRestartTests {
  private let lost = RadioQueue.Loss(waited: 0, start: .unattended)

  /// A gateway and its radio, so long after they were synced.
  private func synced(_ seconds: Double) throws -> Pair {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    pair.pass(seconds)
    return pair
  }

  /// The radio acknowledges messages, and restarts.
  private func restart(_ pair: Pair, messages: Int = 1) {
    for number in 1...messages { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    pair.radio.reboot()
  }

  @Test(arguments: [true, false]) func `the next run tells that the radio was restarted meanwhile, once`(_ isAnew: Bool)
    throws
  {
    let scratch = Scratch(), machine = InventedMachine()
    let (before, after): (MonotonicTime, MonotonicTime)
    do {
      before = machine.now
      let pair = try Pair(on: machine, in: scratch, age: .zero)
      pair.pass(100)
      pair.sync()
      after = machine.now
      pair.store.settle()
    }
    let start = isAnew ? after : before
    for expected in [isAnew ? [lost] : [], []] {
      let pair = try Pair(on: machine, in: scratch, age: machine.now - start)
      pair.pass(10)
      pair.sync()
      #expect(pair.messageLosses == expected)
      pair.store.settle()
    }
  }

  @Test func `a restart while the link is down is told, and one that ends the link is not`() throws {
    let pair = try synced(100)
    pair.radio.reboot()
    pair.link.returnsAtOnce = true
    pair.link.cut()
    pair.run(until: { pair.losses == 1 && pair.synchronizer.state == .synced }, "again")
    #expect(pair.messageLosses.isEmpty)

    pair.link.returnsAtOnce = false
    pair.link.isPresent = false
    pair.link.cut()
    pair.pass(100)
    restart(pair, messages: 2)
    pair.link.isPresent = true
    pair.run(until: { pair.synchronizer.counters.connections == 3 && pair.synchronizer.state == .synced }, "back")
    #expect(pair.messageLosses == [lost] && pair.stored.isEmpty)
    pair.store.commit(everything: true)
    var gap: JSONValue?
    try pair.store.readJournal(after: 0) { event, _ in
      // `try?`: the gateway has written the body itself.
      if event.kind == "radio_gap" { gap = try? JSONValue(parsing: event.body) }
      return true
    }
    #expect(gap?["restarted"]?.bool == true && gap?["lost"] == nil && gap?["at_most"] == nil)
  }

  @Test func `a radio that does not answer, and then restarts, may have taken messages`() throws {
    let pair = try synced(5)
    pair.link.isSilent = true
    pair.pass(70)
    restart(pair)
    pair.link.returnsAtOnce = true
    pair.run(until: { pair.losses > 0 }, "nothing answers")
    pair.link.isSilent = false
    pair.run(until: { pair.synchronizer.state == .synced }, "again")
    #expect(pair.messageLosses == [lost])
  }

  /// A serial chip keeps the line open. While it passes nothing, nothing is asked, and so nothing is missed.
  @Test func `a restart behind a line that stays open is found by a poll, and the radio is read again`() throws {
    let pair = try synced(65)
    pair.link.isSilent = true
    restart(pair)
    pair.link.isSilent = false
    pair.run(until: { !pair.messageLosses.isEmpty }, "it is found")
    let synced = pair.synchronizer.counters.connections
    pair.pass(1000)
    #expect(pair.messageLosses == [lost] && pair.losses == 0 && synced == pair.synchronizer.counters.connections)
    #expect(pair.synchronizer.state == .synced)
  }

  @Test func `an announced message that a restart behind an open line has taken is told once`() throws {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    pair.pass(65)
    pair.inject(1)
    pair.radio.reboot()
    pair.run(until: { !pair.messageLosses.isEmpty }, "it is missing")
    pair.pass(1000)
    #expect(pair.messageLosses == [.init(waited: 0, atLeast: 1)] && pair.losses == 0)
  }

  @Test func `a loss that a restart behind an open line has caused is not told again by the next run`() throws {
    let scratch = Scratch(), machine = InventedMachine()
    var start = machine.now
    do {
      let pair = try Pair(on: machine, in: scratch, age: .zero)
      pair.sync()
      pair.pass(65)
      pair.inject(1)
      pair.radio.reboot()
      start = machine.now
      pair.run(until: { !pair.messageLosses.isEmpty }, "it is missing")
      pair.pass(5)
      #expect(pair.messageLosses == [.init(waited: 0, atLeast: 1)])
      pair.store.settle()
    }
    let pair = try Pair(on: machine, in: scratch, age: machine.now - start)
    pair.pass(10)
    pair.sync()
    #expect(pair.messageLosses.isEmpty)
  }

  @Test func `a radio that was reset to its factory state behind an open line is met as another node`() throws {
    let pair = try synced(65)
    let before = pair.radio.key
    pair.radio.received(Command.factoryReset.encode())
    try #require(pair.radio.key != before)
    pair.run(until: { pair.store.radioKey == pair.radio.key && pair.synchronizer.state == .synced }, "its new identity")
    #expect(pair.losses == 0 && pair.synchronizer.isAttached)
  }

  @Test func `a restart that a gateway noticed much later is told: it stood still`() throws {
    let pair = try synced(5)
    // The gateway gets nothing, not even the end of its line.
    pair.link.isSilent = true
    restart(pair)
    pair.pass(30)
    pair.link.isSilent = false
    pair.link.returnsAtOnce = true
    pair.link.cut()
    pair.run(until: { pair.losses == 1 && pair.synchronizer.state == .synced }, "again")
    #expect(pair.messageLosses == [lost])
  }
}
