// SPDX-License-Identifier: MIT

import Timing

/// The open transaction, its deferred work, and the results of earlier ones.
///
/// Counts writes and decides when they are committed. It does not touch the database: `Store` begins, commits and rolls
/// back.
public final class Transactions {
  private let profile: StoreProfile
  /// The end of the open transaction, and the number of its writes.
  private(set) var current = Commit()
  private var writes = 0
  /// Deferred work, by name, for the next transaction and for the current one.
  private var (deferred, taken): ([String: Store.Work], [String: Store.Work]) = ([:], [:])
  /// Whether a write needs a commit at the end of this turn.
  private var isUrgent = false
  /// Whether a later commit is scheduled, and when the last such commit was.
  private var isPromised = false
  private var gathered: MonotonicTime?
  /// Whether the database was told to begin the open transaction.
  var hasBegun = false
  /// Why the open transaction will be rolled back; `nil`: it has not failed.
  private(set) var doom: StoreError?
  /// Names of the posted writes in the open transaction.
  private var posted: [String] = []
  private var toldLoss: StoreError?
  private var news = Store.News()
  /// Why the last transaction failed; `nil`: it succeeded.
  public private(set) var failure: StoreError?

  init(profile: StoreProfile) { self.profile = profile }

  /// Whether there are writes that are not on disk yet.
  public var hasUncommitted: Bool { writes > 0 }
  var hasDeferred: Bool { !deferred.isEmpty }
  /// Whether deferred work of this name is not on disk yet.
  func defers(_ name: String) -> Bool { deferred[name] != nil || taken[name] != nil }

  /// Counts a write. Its caller does its work, unless the transaction has failed already (`doom`).
  func add(_ when: When) {
    writes += 1
    hasten(when)
  }

  /// Within a `write`: it must be on disk this soon, even if `write` was called with less urgency.
  public func hasten(_ when: When) { if profile.isUrgent(when) { isUrgent = true } }

  /// The write that was added last has no waiting caller: if it fails, `News` has its name.
  func post(_ what: () -> String) { if posted.count < Self.maxNamed { posted.append(what()) } }

  /// Defers `work` to the end of the open or the next transaction, because it is not worth its own commit; a power cut
  /// before that loses it. Of several with the same `name` only the last is done. `Store.settle` does all of them.
  public func writeAlong(_ name: String, _ work: @escaping Store.Work) { deferred[name] = work }

  /// The deferred work, to be done now. If the transaction fails, it is deferred again.
  func takeDeferred() -> [String: Store.Work] {
    defer { deferred = [:] }
    taken.merge(deferred) { _, newer in newer }
    return deferred
  }

  /// The open transaction fails: no further write is done in it.
  func fail(_ error: StoreError) { doom = error }

  /// Whether to commit, at the end of a turn and again after each commit. `round`: commits in this turn. Writes that
  /// can wait get a pause in `News`.
  func isDue(round: Int, now: MonotonicTime) -> Bool {
    guard writes > 0, round < Self.maxRounds else {
      isUrgent = false
      return false
    }
    if isUrgent || doom != nil || writes >= Self.maxDeferred { return true }
    guard !isPromised else { return false }
    isPromised = true
    news.pause = profile.pause(since: gathered.map { now - $0 })
    return false
  }

  /// The pause is over. False: another commit has taken the writes along.
  func endPause(now: MonotonicTime) -> Bool {
    if isPromised { gathered = now }
    return isPromised
  }

  /// The transaction was committed, or rolled back after `fail`. Resumes its writers.
  func end() {
    let (ended, failed) = (current, doom)
    (current, writes, isUrgent, isPromised, doom, failure) = (Commit(), 0, false, false, nil, failed)
    hasBegun = false
    if failed == nil { news.hasGrown = true } else { deferred.merge(taken) { newer, _ in newer } }
    taken = [:]
    tellLoss(failed)
    ended.end(failed)
  }

  private func tellLoss(_ failure: StoreError?) {
    defer { posted = [] }
    guard let failure else { return toldLoss = nil }
    guard !posted.isEmpty, toldLoss != failure else { return }
    toldLoss = failure
    var names: [String] = []
    for name in posted where !names.contains(name) { names.append(name) }
    tell("not kept: \(names.joined(separator: ", ")). \(failure)")
  }

  /// Adds a loss to the news.
  func tell(_ loss: String) { news.loss = news.loss.map { "\($0); \(loss)" } ?? loss }

  /// The results of commits since the last call, for the owner of the store at the end of the turn.
  public func takeNews() -> Store.News {
    defer { news = Store.News() }
    return news
  }

  /// Another database takes the place of this one, to which the deferred work and the last failure belong.
  func forgetDeferred() { (deferred, taken, failure) = ([:], [:], nil) }

  /// The greatest number of deferred writes.
  private static let maxDeferred = 500
  /// Names in the log for one transaction.
  private static let maxNamed = 8
  /// The greatest number of commits in a turn: more would mean that two parts of the program trigger each other.
  private static let maxRounds = 64
}

extension Store {
  /// Results of commits.
  public struct News: Equatable, Sendable {
    /// New data is on disk: upstreams should check.
    public var hasGrown = false
    /// Data that was not stored or not read, and why. A write that keeps failing is reported once, until a write
    /// succeeds again.
    public var loss: String?
    /// Deferred writes may wait this long; then call `commitGathered`.
    public var pause: Duration?
  }
}
