// SPDX-License-Identifier: MIT

import EventLoop
import Store
import UntrustedText

/// What the store needs now and then: what is too old goes, words are indexed, memory is given back.
final class StoreMaintenance {
  /// Pause between two deletions of old rows.
  private static let interval: Duration = .seconds(3600)
  /// The store counts as idle so long after the last commit.
  private static let quietPeriod: Duration = .seconds(2)
  /// After so many commits memory is given back.
  private static let burst = 100
  /// Pause between two steps of indexing, so that everything else goes first.
  private static let pause: Duration = .milliseconds(20)

  /// Of `Store.nodesForgotten`, told.
  private var nodesTold: Int64 = 0
  private let store: Store
  private let journalMaxSize: Int64
  private let loop: EventLoop
  private let log: Log
  private let tasks: LoopTasks
  private var isTrimming = false
  private var isIndexing = false
  private var isWaitingForCalm = false
  private var isMemoryDue = false
  private var commitTimer: LoopTimer?
  private let damage = Waiter()
  /// Since it was last idle.
  private var commits = 0
  /// Events of this sweep that were deleted before every upstream had them.
  private var givenUp: JournalTrim?
  /// Who looks at other things when it does, once an hour; and who is told what was given up.
  weak var alerts: GatewayAlerts?

  init(_ store: Store, journalMaxSize: Int64, on loop: EventLoop, log: Log) {
    self.store = store
    self.journalMaxSize = journalMaxSize
    self.loop = loop
    self.log = log
    tasks = LoopTasks(on: loop)
  }

  /// Looks after it until cancelled.
  func run() async throws(CancellationError) {
    defer { tasks.cancel() }
    while true {
      await trimJournal()
      await trimMessages()
      tellOfForgottenNodes()
      await indexMessages()
      alerts?.hourHasPassed()
      markProgress()
      try await loop.sleep(for: Self.interval)
    }
  }

  private func markProgress() {
    do throws(StoreError) { try store.markProgress() } catch {
      log.info("how far the journal is was not kept: \(error)")
    }
  }

  func somethingWasStored() {
    if !isTrimming, store.journalSize.bytes > journalMaxSize { tasks.begin { await self.trimJournal() } }
    commits &+= 1
    guard commits >= Self.burst, !isWaitingForCalm else { return }
    isWaitingForCalm = true
    tasks.begin { await self.tidyWhenCalm() }
  }

  // MARK: The end of a turn

  /// Commits what waits. One timer for all of it: an earlier one was for writes that another commit has taken along.
  func commit(after pause: Duration) {
    commitTimer?.cancel()
    commitTimer = loop.schedule(after: pause) { [store] in store.commitGathered() }
  }

  func foundDamage() { damage.resume() }

  /// Returns when the database is known to be damaged.
  func untilDamaged() async throws(CancellationError) {
    while !store.isDamaged { try await damage.wait() }
  }

  // MARK: Memory

  /// Gives memory back soon, once for all that comes until then.
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

  /// After many commits, when they have ceased.
  private func tidyWhenCalm() async {
    do throws(CancellationError) {
      var seen: Int
      repeat {
        seen = commits
        try await loop.sleep(for: Self.quietPeriod)
      } while commits != seen
    } catch {
      // The gateway ends, and gives all of its memory back.
      return
    }
    (isWaitingForCalm, commits) = (false, 0)
    await indexMessages()
    giveMemoryBack()
  }

  // MARK: What is too old

  /// A step after the other, until nothing is left to trim.
  private func trimJournal() async {
    guard !isTrimming else { return }
    isTrimming = true
    defer { isTrimming = false }
    do throws(StoreError) {
      while let trim = try await trimStep() { note(trim) }
    } catch {
      log.warning("trimming the journal failed: \(error)")
    }
    logWhatWasGivenUp()
  }

  private func trimStep() async throws(StoreError) -> JournalTrim? {
    guard let (trim, commit) = store.trimJournal(now: Moment(loop.wallClock)) else { return nil }
    try await commit.durable()
    return trim
  }

  private func note(_ trim: JournalTrim) {
    guard let reason = trim.reason else { return }
    if givenUp?.reason != reason { logWhatWasGivenUp() }
    guard var whole = givenUp else {
      givenUp = trim
      return
    }
    whole.last = trim.last
    for missed in trim.missedBy {
      if let index = whole.missedBy.firstIndex(where: { $0.upstream.isExactly(missed.upstream) }) {
        whole.missedBy[index].events += missed.events
      } else {
        whole.missedBy.append(missed)
      }
    }
    givenUp = whole
  }

  /// Once for all that goes in one sweep.
  private func logWhatWasGivenUp() {
    guard let trim = givenUp else { return }
    givenUp = nil
    alerts?.journalWasCut(trim)
    let why =
      trim.reason == "age" ? "older than journal_max_age_days" : "the journal is full (journal_max_size)"
    log.warning(
      "events \(trim.first) to \(trim.last) of the journal were deleted: \(why). "
        + "\(trim.missedBy.map { "\($0.upstream) had not acknowledged \($0.events) of them" }.joined(separator: ", ")); the gap is reported there"
    )
  }

  /// Some at a time, until nothing is left to remove.
  private func trimMessages() async {
    var removed = 0
    do throws(StoreError) {
      repeat {
        try await store.save { store throws(SQLiteError) in
          removed = try store.trimMessages() + store.trimOutgoing()
        }
      } while removed > 0
    } catch {
      log.warning("removing old messages failed: \(error)")
    }
  }

  private func tellOfForgottenNodes() {
    guard store.nodesForgotten > nodesTold else { return }
    log.notice(
      "\(store.nodesForgotten - nodesTold) nodes that were heard long ago, and never talked to, were forgotten: [store] nodes_max"
    )
    nodesTold = store.nodesForgotten
  }

  // MARK: Words

  /// The index of words follows the messages, a step at a time, so that nothing else waits.
  private func indexMessages() async {
    guard !isIndexing else { return }
    isIndexing = true
    defer { isIndexing = false }
    var isDone = false
    do {
      while true {
        try await store.save { store throws(SQLiteError) in isDone = try store.indexMessages() }
        if isDone { return }
        try await loop.sleep(for: Self.pause)
      }
    } catch {
      log.info("indexing messages failed: \(error)")
    }
  }
}
