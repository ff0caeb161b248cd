// SPDX-License-Identifier: MIT

import SQLite

extension Store {
  /// Does `work` at once, in this turn's transaction. The outcome is known at the end of the turn.
  ///
  /// A failure rolls back the whole turn: every write in it gets the error.
  @discardableResult
  public func write(when: When = .now, _ work: Work) -> Commit {
    transactions.add(when)
    let commit = transactions.current
    guard transactions.doom == nil else { return commit }
    if let obstacle {
      transactions.fail(obstacle)
      return commit
    }
    do {
      if !transactions.hasBegun {
        try database.run("BEGIN IMMEDIATE")
        transactions.hasBegun = true
      }
      try within { this throws(SQLiteError) in
        try this.doDeferred()
        try work(this)
      }
    } catch {
      transactions.fail(StoreError(error))
    }
    if transactions.doom == nil, let obstacle { transactions.fail(obstacle) }
    return commit
  }

  private func within(_ work: Work) throws(SQLiteError) {
    // A write may begin within another.
    let isOutermost = !database.isWithinWrite
    database.isWithinWrite = true
    defer { if isOutermost { database.isWithinWrite = false } }
    try work(self)
  }

  /// Why the open transaction cannot be committed; `nil`: it can.
  private var obstacle: StoreError? {
    // The open file is the damaged one, under its new name.
    if isSetAside { return .unavailable("the damaged database is set aside, and no other has its place yet") }
    // SQLite rolls the whole transaction back when a statement fails because of the disk, also one that only reads.
    guard transactions.hasBegun, !database.isInTransaction else { return nil }
    return .unavailable("a failed read rolled the transaction back")
  }

  /// As `write`, but returns when the transaction is on disk.
  public func save(when: When = .now, _ work: Work) async throws(StoreError) {
    try await write(when: when, work).durable()
  }

  /// As `write`, without a waiting caller: a failure is reported in `News`. `what`: the write's name in the log.
  public func post(when: When = .now, _ what: @autoclosure () -> String, _ work: Work) {
    write(when: when, work)
    transactions.post(what)
  }

  /// Before later writes, and at the end: a transaction may have been open for a minute.
  private func doDeferred() throws(SQLiteError) { for work in transactions.takeDeferred().values { try work(self) } }

  /// Does all deferred work and commits it.
  public func settle() {
    if transactions.hasDeferred { write { _ in } }
    commit(everything: true)
  }

  /// Ends a turn and commits its writes. Resumed writers may write more, which the next round of the turn commits.
  ///
  /// Deferred writes (`When`) stay in the open transaction until another write is committed or their time is over.
  public func commit(everything: Bool = false) {
    if everything { transactions.hasten(.now) }
    var round = 0
    while transactions.isDue(round: round, now: clocks.now) {
      commitOnce()
      round += 1
    }
  }

  /// Commits deferred writes whose time is over.
  public func commitGathered() { if transactions.endPause(now: clocks.now) { commit(everything: true) } }

  private func commitOnce() {
    if transactions.doom == nil, let obstacle { transactions.fail(obstacle) }
    if transactions.doom == nil, transactions.hasBegun {
      do {
        try within { this throws(SQLiteError) in try this.doDeferred() }
        try checkOwnFile()
        try database.run("COMMIT")
      } catch {
        transactions.fail(StoreError(error))
      }
    }
    if let failure = transactions.doom {
      // Fails if SQLite has already rolled back by itself (disk full, I/O error), which is fine.
      if database.isInTransaction { try? database.execute("ROLLBACK") }
      journalState.undo()
      (identities, documentCount) = (nil, nil)
      noteDamage(failure)
    } else {
      journalState.keep()
      noteOwnFile()
    }
    transactions.end()
  }

  /// Undoes the writes of this turn, because the rest of a change has failed.
  public func rollBack(_ reason: StoreError) {
    guard transactions.hasUncommitted else { return }
    transactions.fail(reason)
    commit(everything: true)
  }

  /// Commits at once, for the few places that need the outcome immediately.
  public func commitNow() throws(StoreError) {
    commit(everything: true)
    if let failure = transactions.failure { throw failure }
  }
}
