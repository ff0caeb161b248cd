// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import Sync

/// A radio writes its contacts seconds after a change, and may lose its power before.
@Suite struct ContactChangesTests {
  private let key: PublicKey
  private let birch: Contact

  init() throws {
    key = try #require(PublicKey(bytes: Array(repeating: 9, count: 32)))
    birch = Contact(key: key, flags: 1, name: "Birch", lastModified: 1_795_000_001)
  }

  /// Gives the radio a command, and returns its answer.
  @discardableResult
  private func tell(_ pair: Pair, _ command: Command) -> RadioSession.Outcome? {
    let question = pair.connection.submit(command, .interactive)
    pair.run(until: { question?.answer != nil }, "an answer")
    return question?.answer?.outcome
  }

  /// A run that adds the contact and ends two seconds later.
  private func addInARun(on machine: InventedMachine, in scratch: Scratch) throws {
    let pair = try Pair(on: machine, in: scratch)
    pair.sync()
    tell(pair, .addUpdateContact(birch))
    pair.pass(2)
    pair.store.settle()
  }

  private func isOnRadio(_ pair: Pair) -> Bool {
    if case .replied(.contact)? = tell(pair, .getContactByKey(key)) { true } else { false }
  }

  /// The link is lost, and comes back.
  private func reconnect(_ pair: Pair) {
    let before = pair.synchronizer.counters.connections
    pair.link.cut()
    pair.run(
      until: { pair.synchronizer.counters.connections == before + 1 && pair.synchronizer.state == .synced }, "again")
  }

  private func synced() throws -> Pair {
    let pair = try Pair(on: InventedMachine())
    pair.sync()
    return pair
  }

  @Test func `a contact that the radio lost with its power is put back once, as it was`() throws {
    let pair = try synced()
    var added = 0
    pair.link.onCommand = { if case .addUpdateContact = $0 { added += 1 } }
    tell(pair, .addUpdateContact(birch))
    pair.pass(1)
    pair.radio.reboot()
    reconnect(pair)
    #expect(added == 2 && isOnRadio(pair))
    let stored = try pair.store.contact(key)
    #expect(stored?.onRadio == true && stored?.contact.isFavourite == true && stored?.contact.name == "Birch")
    pair.pass(10)
    pair.radio.reboot()
    reconnect(pair)
    #expect(added == 2 && isOnRadio(pair), "it is on the flash")
  }

  @Test func `a changed record that the radio lost is put back`() throws {
    let pair = try synced()
    var plain = birch
    plain.isFavourite = false
    tell(pair, .addUpdateContact(plain))
    pair.pass(120)
    tell(pair, .addUpdateContact(birch))
    pair.radio.reboot()
    reconnect(pair)
    guard case .replied(.contact(let contact))? = tell(pair, .getContactByKey(key)) else {
      Issue.record("the radio does not have it")
      return
    }
    #expect(contact.isFavourite)
  }

  @Test func `a contact that was removed stays removed when the radio has it again`() throws {
    let pair = try synced()
    tell(pair, .addUpdateContact(birch))
    pair.pass(120)
    tell(pair, .removeContact(key))
    pair.radio.reboot()
    reconnect(pair)
    #expect(!isOnRadio(pair))
    #expect(try pair.store.contact(key)?.onRadio == false)
    tell(pair, .addUpdateContact(birch))
    tell(pair, .removeContact(key))
    pair.radio.reboot()
    reconnect(pair)
    #expect(!isOnRadio(pair))
  }

  @Test func `what somebody else removes while the radio runs on is not put back`() throws {
    let pair = try synced()
    tell(pair, .addUpdateContact(birch))
    pair.radio.received(Command.removeContact(key).encode())
    reconnect(pair)
    #expect(!isOnRadio(pair))
    pair.pass(10)
    pair.radio.reboot()
    reconnect(pair)
    #expect(!isOnRadio(pair), "nor after a restart")
  }

  @Test func `what somebody else adds while the radio runs on is not removed again`() throws {
    let pair = try synced()
    tell(pair, .addUpdateContact(birch))
    pair.pass(120)
    tell(pair, .removeContact(key))
    pair.radio.received(Command.addUpdateContact(birch).encode())
    reconnect(pair)
    #expect(isOnRadio(pair))
    pair.pass(10)
    pair.radio.reboot()
    reconnect(pair)
    #expect(isOnRadio(pair), "nor after a restart")
  }

  @Test func `a change that the radio has after the link came back is put back when its power is lost then`() throws {
    let pair = try synced()
    tell(pair, .addUpdateContact(birch))
    reconnect(pair)
    pair.radio.reboot()
    reconnect(pair)
    #expect(isOnRadio(pair))
  }

  @Test func `a contact that is removed when the radio has lost it already is not put back`() throws {
    let pair = try synced()
    pair.pass(10)
    tell(pair, .addUpdateContact(birch))
    pair.synchronizer.keepChanged(birch)
    pair.radio.reboot()
    guard case .failed(.refused(let error))? = tell(pair, .removeContact(key)) else {
      Issue.record("the radio still has it")
      return
    }
    #expect(error == .notFound)
    reconnect(pair)
    #expect(!isOnRadio(pair))
    #expect(try !pair.store.isEvicted(key), "nor for a message")
  }

  @Test func `a contact that the radio refuses comes back for a message`() throws {
    let pair = try synced()
    tell(pair, .addUpdateContact(birch))
    pair.radio.reboot()
    pair.link.refuses = { if case .addUpdateContact = $0 { true } else { false } }
    reconnect(pair)
    #expect(!isOnRadio(pair))
    #expect(try pair.store.isEvicted(key))
  }

  @Test(arguments: [true, false])
  func `the next run puts back what the radio lost, and nothing if the radio ran on`(_ isAnew: Bool) throws {
    let scratch = Scratch(), machine = InventedMachine()
    try addInARun(on: machine, in: scratch)
    // Its table is that of a radio which has not written the change.
    let pair = try Pair(on: machine, in: scratch, age: isAnew ? .zero : .seconds(600))
    pair.sync()
    #expect(isOnRadio(pair) == isAnew)
    let radio = try #require(pair.connection.identity?.info.key)
    pair.pass(120)
    pair.store.settle()
    #expect(try pair.store.contactChanges(on: radio).isEmpty, "the run after it has nothing to put back")
  }

  @Test(arguments: [(20.0, true), (90, false)])
  func `the next run puts a change back only on a radio that was started within a minute after it`(
    _ seconds: Double, _ isBack: Bool
  ) throws {
    let scratch = Scratch(), machine = InventedMachine()
    try addInARun(on: machine, in: scratch)
    // Somebody has removed it meanwhile, or the radio has lost it.
    let pair = try Pair(on: machine, in: scratch)
    pair.pass(seconds)
    pair.radio.reboot()
    pair.sync()
    #expect(isOnRadio(pair) == isBack)
  }

  @Test(arguments: [true, false])
  func `a contact that the radio added and lost by itself comes back for a message, one that was removed does not`(
    _ isLost: Bool
  ) throws {
    let pair = try synced()
    pair.pass(10)
    pair.radio.received(Command.addUpdateContact(birch).encode())
    pair.synchronizer.refresh(key)
    pair.run(until: { pair.store.ifReadable({ try pair.store.contact(key) })?.onRadio == true }, "known")
    if isLost { pair.radio.reboot() } else { pair.radio.received(Command.removeContact(key).encode()) }
    reconnect(pair)
    #expect(try pair.store.contact(key)?.onRadio == false)
    #expect(try pair.store.isEvicted(key) == isLost)
  }

  // MARK: Without a radio

  @Test func `only a change of the last minute before the end of the link is doubtful`() {
    var changes = ContactChanges()
    changes.attached(to: key, kept: [])
    let start = MonotonicTime(seconds: 1000)
    changes.confirmed(.addUpdateContact(birch), at: start)
    changes.lost(at: start + .seconds(61))
    #expect(changes.doubtful.isEmpty)
    changes.confirmed(.addUpdateContact(birch), at: start)
    changes.lost(at: start + .seconds(59))
    #expect(changes.inOrder == [key])
    changes.confirmed(.removeContact(key), at: start + .seconds(62))
    #expect(changes.doubtful.isEmpty, "a newer change counts")
  }

  @Test func `a change counts no more when its radio was away for a day`() {
    var changes = ContactChanges()
    changes.attached(to: key, kept: [])
    let start = MonotonicTime(seconds: 1000)
    changes.confirmed(.addUpdateContact(birch), at: start)
    changes.lost(at: start + .seconds(10))
    #expect(changes.outdated(at: start + .seconds(86_390)).isEmpty)
    #expect(changes.outdated(at: start + .seconds(86_410)) == [key])
  }

  @Test(arguments: [(-900.0, true, false), (-60, false, false), (5, false, false), (61, false, true)])
  func `a change from before the machine's start counts if the radio was started together with the machine`(
    _ seconds: Double, _ ranOn: Bool, _ isWritten: Bool
  ) {
    var changes = ContactChanges()
    changes.attached(to: key, kept: [(.addUpdateContact(birch), nil)])
    let start = MonotonicTime(seconds: seconds)
    #expect(changes.doubtful[key]?.isNewer(than: start) == ranOn)
    #expect(changes.written(before: start).isEmpty != isWritten)
  }

  @Test func `a change of this run counts however long the radio was without power`() {
    var changes = ContactChanges()
    changes.attached(to: key, kept: [])
    let start = MonotonicTime(seconds: 1000)
    changes.confirmed(.addUpdateContact(birch), at: start)
    changes.lost(at: start + .seconds(3))
    #expect(changes.written(before: start + .seconds(3600)).isEmpty)
    #expect(changes.doubtful[key]?.isNewer(than: start + .seconds(3600)) == false)
  }

  @Test func `a path that was reset needs no whole list if the radio ran on`() {
    var changes = ContactChanges()
    changes.attached(to: key, kept: [])
    let start = MonotonicTime(seconds: 1000)
    changes.confirmed(.resetPath(key), at: start + .seconds(1))
    changes.lost(at: start + .seconds(3))
    #expect(!changes.needWholeList(since: start) && changes.needWholeList(since: start + .seconds(9)))
    #expect(changes.needWholeList(since: nil))
    let confirmed = changes.remains(key)
    #expect(confirmed == start + .seconds(1) && changes.doubtful.isEmpty)
  }

  @Test func `a path that was reset does not bring back a contact that the radio has lost`() {
    var changes = ContactChanges()
    changes.attached(to: key, kept: [])
    let start = MonotonicTime(seconds: 1000)
    changes.confirmed(.resetPath(key), at: start)
    #expect(changes.isOpen(key) && !changes.decidesPlace(of: key))
    changes.lost(at: start + .seconds(3))
    #expect(changes.isOpen(key) && !changes.decidesPlace(of: key))
    changes.confirmed(.addUpdateContact(birch), at: start + .seconds(4))
    #expect(changes.decidesPlace(of: key))
  }

  @Test func `a right to run commands and an older path are not put back`() {
    var granted = birch
    granted.mayCommand = true
    let entry = ContactChanges.Entry(wish: .has(granted), at: nil)
    #expect(entry.command(of: key, nil) == .addUpdateContact(birch) && entry.lacksRight(nil))
    #expect(entry.command(of: key, birch) == nil && entry.lacksRight(birch) && !entry.lacksRight(granted))
    let revoked = ContactChanges.Entry(wish: .has(birch), at: nil)
    #expect(revoked.command(of: key, granted) == .addUpdateContact(birch))
    var near = birch
    near.outPath = .direct
    #expect(revoked.command(of: key, near) == .addUpdateContact(birch))
    let overtaken = ContactChanges.Entry(wish: .has(birch), at: nil, hasNewerPath: true)
    #expect(overtaken.command(of: key, near) == nil)
  }

  @Test func `a radio that starts over and over gets its contacts twelve times in an hour`() {
    var changes = ContactChanges()
    let start = MonotonicTime(seconds: 1000)
    let times = (0..<100).filter { changes.mayPutBack(at: start + .seconds(60 * $0)) }
    let expected = Array(0..<12) + Array(60..<72)
    #expect(times == expected)
  }

  @Test func `the log tells what was put back and what was not`() {
    var report = PutBack()
    #expect(report.words == nil)
    report.back = (1...10).map { "N\($0)" }
    report.left = ["Elm (the radio refuses: table full)"]
    #expect(
      report.words
        == "put back: N1, N2, N3, N4, N5, N6, N7, N8 and 2 more; not put back: Elm (the radio refuses: table full)")
  }
}
