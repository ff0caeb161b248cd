// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing
import UntrustedText

/// Periodic work of the store: deletes old rows, indexes words, and frees memory.
final class StoreMaintenance {
  /// Pause between two deletions of old rows.
  private static let interval: Duration = .seconds(3600)
  /// The store counts as idle after this time without a commit.
  private static let quietPeriod: Duration = .seconds(2)
  /// After this many commits, memory is freed.
  private static let burst = 100
  /// Pause between two steps of indexing, so that other work goes first.
  private static let pause: Duration = .milliseconds(20)

  /// The value of `NodeCounts.forgotten` that the log has reported.
  private var nodesTold: Int64 = 0
  private let store: Store
  private let journalMaxSize: Int64
  private let loop: EventLoop
  private let log: Log
  private let tasks: LoopTasks
  private var isOver = false
  private var isTrimming = false
  private var isTrimmingMessages = false
  private var isIndexing = false
  private var isDeleting = false
  private var isWaitingForCalm = false
  private var isMemoryDue = false
  private var commitTimer: LoopTimer?
  private let damage = Waiter()
  /// Commits since the store was last idle.
  private var commits = 0
  /// Events that were deleted before every upstream had them, and that the log has not reported: one entry for each reason.
  private var givenUp: [JournalTrim] = []
  /// A full journal in a long outage is cut again and again.
  private var givenUpLines = Ration.hourly
  private var givenUpTimer: LoopTimer?
  /// Learns of each hour, and of deleted events.
  weak var alerts: GatewayAlerts?

  init(_ store: Store, journalMaxSize: Int64, on loop: EventLoop, log: Log) {
    self.store = store
    self.journalMaxSize = journalMaxSize
    self.loop = loop
    self.log = log
    tasks = LoopTasks(on: loop)
  }

  /// Runs until it is cancelled.
  func run() async throws(CancellationError) {
    defer {
      isOver = true
      tasks.cancel()
      logWhatWasGivenUp(isEnd: true)
    }
    while true {
      await trimJournal()
      await trimMessages()
      deletionBegan()
      tellOfForgottenNodes()
      await indexMessages()
      alerts?.hourHasPassed()
      markProgress()
      try await loop.sleep(for: Self.interval)
    }
  }

  private func markProgress() {
    do throws(StoreError) { try store.markProgress() } catch {
      log.info("the position of the journal was not stored: \(error)")
    }
  }

  func somethingWasStored() {
    // The last commits of a gateway that ends begin no work: nobody would commit it.
    guard !isOver else { return }
    if !isTrimming, store.journalSize.bytes > journalMaxSize { tasks.begin { await self.trimJournal() } }
    commits &+= 1
    // A busy hour can bring more messages than the database has room for.
    if commits.isMultiple(of: Self.burst) { tasks.begin { await self.trimMessages() } }
    guard commits >= Self.burst, !isWaitingForCalm else { return }
    isWaitingForCalm = true
    tasks.begin { await self.tidyWhenCalm() }
  }

  // MARK: The end of a turn

  /// Commits gathered writes after the pause. Another commit has included those of an earlier timer.
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

  /// Frees memory soon, once for all calls until then.
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

  /// After many commits, waits until there are no more, then indexes words and frees memory.
  private func tidyWhenCalm() async {
    do throws(CancellationError) {
      var seen: Int
      repeat {
        seen = commits
        try await loop.sleep(for: Self.quietPeriod)
      } while commits != seen
    } catch {
      // The gateway ends, and its memory with it.
      return
    }
    (isWaitingForCalm, commits) = (false, 0)
    await indexMessages()
    giveMemoryBack()
  }

  // MARK: Old rows

  /// Trims in steps, until there is nothing to trim.
  private func trimJournal() async {
    guard !isTrimming else { return }
    isTrimming = true
    defer { isTrimming = false }
    var sweep: [JournalTrim] = []
    do throws(StoreError) {
      while let trim = try await trimStep() {
        guard trim.reason != nil else { continue }
        Self.add(trim, to: &sweep)
        Self.add(trim, to: &givenUp)
      }
    } catch {
      log.warning("trimming the journal failed: \(error)")
    }
    for trim in sweep { alerts?.journalWasCut(trim) }
    logWhatWasGivenUp(isEnd: isOver)
  }

  private func trimStep() async throws(StoreError) -> JournalTrim? {
    guard let (trim, commit) = store.trimJournal(now: Moment(loop.wallClock)) else { return nil }
    try await commit.durable()
    return trim
  }

  private static func add(_ trim: JournalTrim, to trims: inout [JournalTrim]) {
    guard let place = trims.firstIndex(where: { $0.reason == trim.reason }) else { return trims.append(trim) }
    trims[place].last = trim.last
    for missed in trim.missedBy {
      if let index = trims[place].missedBy.firstIndex(where: { $0.upstream.isExactly(missed.upstream) }) {
        trims[place].missedBy[index].events += missed.events
      } else {
        trims[place].missedBy.append(missed)
      }
    }
  }

  /// Logs deleted events at once, and further ones together, at most once an hour and at the end.
  private func logWhatWasGivenUp(isEnd: Bool = false) {
    guard !givenUp.isEmpty else { return }
    guard isEnd || givenUpLines.take(at: loop.now) else {
      // Not only with the next cut: this may have been the last.
      guard givenUpTimer == nil else { return }
      givenUpTimer = loop.schedule(after: givenUpLines.interval) { [weak self] in
        self?.givenUpTimer = nil
        self?.logWhatWasGivenUp()
      }
      return
    }
    givenUpTimer?.cancel()
    givenUpTimer = nil
    for trim in givenUp {
      let why =
        trim.reason == "age" ? "older than journal_max_age_days" : "the journal is full (journal_max_size)"
      log.warning(
        "events \(trim.first) to \(trim.last) of the journal were deleted: \(why). "
          + "\(trim.missedBy.map { "\($0.upstream) had not acknowledged \($0.events) of them" }.joined(separator: ", ")); the gap is reported there. Further ones are logged together, within an hour, or at the gateway's end"
      )
    }
    givenUp = []
  }

  /// Removes messages in steps, until there are none to remove.
  private func trimMessages() async {
    guard !isTrimmingMessages else { return }
    isTrimmingMessages = true
    defer { isTrimmingMessages = false }
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

  /// A deletion that a kill has cut off goes on after the start, and one that the disk refuses an hour later.
  func deletionBegan() {
    guard !isDeleting, !isOver else { return }
    isDeleting = true
    tasks.begin {
      await self.deleteMessages()
      self.isDeleting = false
    }
  }

  /// Deletes in pieces, so that no other work waits.
  private func deleteMessages() async {
    do {
      var step = Store.DeletionStep.goesOn
      while step != .idle {
        let moment = Moment(loop.wallClock)
        try await store.save { store throws(SQLiteError) in step = try store.continueDeletions(at: moment) }
        if step == .logIsLeft {
          try store.overwriteLog()
          try await store.save { store throws(SQLiteError) in try store.endDeletions() }
        }
        if step != .idle { try await loop.sleep(for: Self.pause) }
      }
    } catch is CancellationError {
      return
    } catch {
      log.warning("deleting messages is interrupted, and goes on within an hour: \(error)")
    }
  }

  private func tellOfForgottenNodes() {
    guard store.nodeCounts.forgotten > nodesTold else { return }
    log.notice(
      "\(store.nodeCounts.forgotten - nodesTold) nodes that were heard long ago, and never talked to, were forgotten: [store] nodes_max"
    )
    nodesTold = store.nodeCounts.forgotten
  }

  // MARK: Words

  /// Adds new messages to the index of words, in steps, so that no other work waits.
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
