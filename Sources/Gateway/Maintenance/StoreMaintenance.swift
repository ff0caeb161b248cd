// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// What the store needs now and then: what is too old goes, words are indexed, memory is given back.
final class StoreMaintenance {
  /// It is looked for what is too old so often.
  private static let interval: Duration = .seconds(3600)
  /// So long after the last commit it is calm.
  private static let quietPeriod: Duration = .seconds(2)
  /// So many commits are worth giving memory back after them.
  private static let burst = 100
  /// Between two steps of indexing: everything else goes first.
  private static let pause: Duration = .milliseconds(20)

  private let store: Store
  private let journalMaxSize: Int64
  private let loop: EventLoop
  private let log: Log
  private var isTrimming = false
  /// Of this sweep.
  private var givenUp: JournalTrim?
  private var quietTimer: LoopTimer?
  private var commits = 0
  private var isMemoryDue = false

  init(_ store: Store, journalMaxSize: Int64, on loop: EventLoop, log: Log) {
    self.store = store
    self.journalMaxSize = journalMaxSize
    self.loop = loop
    self.log = log
  }

  func start() { maintain() }

  func somethingWasStored() {
    trimIfFull()
    noteWork()
  }

  /// It is given back soon, once for all that comes until then.
  func memoryWasUsed() {
    guard !isMemoryDue else { return }
    isMemoryDue = true
    loop.schedule(after: Self.quietPeriod) { [weak self] in
      self?.isMemoryDue = false
      self?.giveMemoryBack()
    }
  }

  private func giveMemoryBack() {
    store.releaseMemory()
    SpareMemory.giveBack()
  }

  private func trimIfFull() {
    guard !isTrimming, store.journalSize.bytes > journalMaxSize else { return }
    loop.later { [weak self] in self?.trim() }
  }

  private func trim() {
    guard !isTrimming else { return }
    isTrimming = true
    let clock = WallClock()
    var trim: JournalTrim?
    trim = store.trimJournal(now: Moment(milliseconds: clock.milliseconds, trusted: clock.isSynchronised)) {
      [weak self] failure in
      guard let self else { return }
      self.isTrimming = false
      if let failure { return self.log.warning("the journal is not trimmed: \(failure)") }
      guard let trim else { return }
      self.noteTrim(trim)
      // More of it in the next turn, until nothing is left to trim.
      self.loop.later { self.trim() }
    }
    guard trim == nil else { return }
    isTrimming = false
    tellWhatWasGivenUp()
  }

  private func noteTrim(_ trim: JournalTrim) {
    guard let reason = trim.reason else { return }
    if givenUp?.reason != reason { tellWhatWasGivenUp() }
    givenUp = JournalTrim(first: givenUp?.first ?? trim.first, last: trim.last, reason: reason, missedBy: trim.missedBy)
  }

  /// Once for all that goes in one sweep.
  private func tellWhatWasGivenUp() {
    guard let trim = givenUp else { return }
    givenUp = nil
    let why =
      trim.reason == "age" ? "older than journal_max_age_days" : "the journal is full (journal_max_size)"
    log.warning(
      "events \(trim.first) to \(trim.last) of the journal are given up: \(why). "
        + "\(trim.missedBy.joined(separator: ", ")) had not had them, and will be told of the gap")
  }

  /// Some at a time, until nothing is left to remove.
  private func trimMessages() {
    var removed = 0
    store.write({ (store) throws(SQLiteError) in
      removed = try store.trimMessages() + store.trimOutgoing()
    }) { [weak self] failure in
      if let failure { self?.log.warning("old messages are not removed: \(failure)") }
      if failure == nil, removed > 0 { self?.loop.later { self?.trimMessages() } }
    }
  }

  /// The index of words follows the messages, a step at a time, so that nothing else waits.
  private func indexMessages() {
    var isDone = true
    store.write({ (store) throws(SQLiteError) in isDone = try store.indexMessages() }) { [weak self] failure in
      if let failure { self?.log.info("messages are not indexed: \(failure)") }
      guard failure == nil, !isDone else { return }
      self?.loop.schedule(after: Self.pause) { [weak self] in self?.indexMessages() }
    }
  }

  private func maintain() {
    indexMessages()
    trim()
    trimMessages()
    loop.schedule(after: Self.interval) { [weak self] in self?.maintain() }
  }

  /// After many commits, when they have ceased, memory is given back.
  private func noteWork() {
    commits &+= 1
    guard commits >= Self.burst, quietTimer == nil else { return }
    waitForCalm(since: commits)
  }

  private func waitForCalm(since seen: Int) {
    quietTimer = loop.schedule(after: Self.quietPeriod) { [weak self] in
      guard let self else { return }
      guard self.commits == seen else { return self.waitForCalm(since: self.commits) }
      (self.quietTimer, self.commits) = (nil, 0)
      self.indexMessages()
      self.giveMemoryBack()
    }
  }
}
