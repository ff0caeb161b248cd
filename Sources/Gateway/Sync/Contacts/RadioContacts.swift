// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// A contact list that is being received. Records of an earlier, abandoned list do not count.
final class ContactList {
  var sync: ContactSync
  var total: UInt32 = 0
  /// The command that requested it.
  var question: RadioQuestion?

  init(_ sync: ContactSync) { self.sync = sync }
}

/// Requests about the radio's contacts: the current list, and fetches of single contacts.
struct RadioContacts {
  /// At most one first advert in this interval is committed at once.
  private static let meetInterval: Duration = .seconds(30)
  /// At most one doubt in this interval comes from programs that share the radio.
  private static let programInterval: Duration = .seconds(600)

  /// The list that is being received.
  private(set) var list: ContactList?
  private(set) var fetches = ContactFetches()
  var changes = ContactChanges()
  /// The task that fetches single contacts.
  private var fetching: LoopTask?
  /// How often the stored copy of the radio's table came into doubt, and which of these doubts a complete full list has settled.
  private(set) var doubts = 0
  private var settledDoubts = 0
  /// When the last list ended.
  private(set) var listedAt: MonotonicTime?
  /// The last time that a first advert was committed at once.
  private var met: MonotonicTime?
  /// The last doubt that came from a program.
  private var doubtedForProgram: MonotonicTime?

  // MARK: The list

  mutating func began(_ list: ContactList) { self.list = list }
  mutating func endList() { list = nil }

  mutating func listed(at now: MonotonicTime) { listedAt = now }

  /// Whether the last list is old enough for a full one, also by a wall clock that is a little slow.
  func isDue(at now: MonotonicTime) -> Bool {
    listedAt.map { now - $0 > .milliseconds(ContactSync.fullEvery) + .seconds(600) } ?? false
  }

  /// The current list, if this question requested it.
  func list(of question: RadioQuestion?) -> ContactList? {
    question != nil && list?.question === question ? list : nil
  }

  /// A node was added or removed.
  func changedMeanwhile() { list?.sync.changedMeanwhile = true }

  /// The stored copy of the radio's table may be wrong: the next list is a full one.
  var areDoubted: Bool { settledDoubts < doubts }

  mutating func doubt() { doubts += 1 }

  /// Whether a program may cause a doubt now.
  mutating func mayDoubtForProgram(at now: MonotonicTime) -> Bool {
    if let doubtedForProgram, now - doubtedForProgram < Self.programInterval { return false }
    doubtedForProgram = now
    return true
  }

  /// A complete full list came, which was requested after so many doubts.
  mutating func settled(_ doubts: Int) { settledDoubts = max(settledDoubts, doubts) }

  // MARK: Single contacts

  /// `begin` begins the task that fetches contacts; `fetched` reports that it has ended.
  mutating func named(_ key: PublicKey, by sign: ContactFetches.Sign, _ begin: () -> LoopTask) {
    fetches.named(key, by: sign)
    if fetching == nil { fetching = begin() }
  }

  @discardableResult
  mutating func took(_ key: PublicKey) -> ContactFetches.Sign { fetches.took(key) }

  /// The radio did not answer. A list of changes may lack what the gateway changed: a path that is reset leaves the record's time as it was.
  mutating func missed(_ key: PublicKey) { if fetches.missed(key) == .change { doubt() } }

  /// The task has fetched all. Returns true if names were left out and no list is under way that includes them.
  mutating func fetched() -> Bool {
    fetching = nil
    return fetches.takeNeedsList() && list == nil
  }

  mutating func forgetNames() {
    if fetches.pending.values.contains(.change) { doubt() }
    fetches = ContactFetches()
  }

  func stop() { fetching?.cancel() }

  // MARK: New nodes

  /// Returns whether to commit a node's first advert at once: the radio may not keep the node, and the next advert may
  /// come half a day later. `meetInterval` limits such commits, because anybody can invent nodes.
  mutating func meets(at now: MonotonicTime) -> Bool {
    if let met, now - met < Self.meetInterval { return false }
    met = now
    return true
  }
}
