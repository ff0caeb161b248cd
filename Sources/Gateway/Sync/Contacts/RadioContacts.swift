// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// A contact list being received. Records of an earlier, abandoned list do not count.
final class ContactList {
  var sync: ContactSync
  var total: UInt32 = 0
  /// What asks for it.
  var question: RadioQuestion?

  init(_ sync: ContactSync) { self.sync = sync }
}

/// What the radio is asked of its contacts: the list that is under way, and those that a push has named.
struct RadioContacts {
  /// A node that was heard for the first time is committed at once, but only one in so long.
  private static let meetInterval: Duration = .seconds(30)

  /// The contact list that is under way.
  private(set) var list: ContactList?
  private(set) var fetches = ContactFetches()
  /// Asks for those that were named.
  private var fetching: LoopTask?
  /// What the store says of the radio's table may be wrong: the next list is a full one.
  private(set) var areDoubted = false
  /// When a node that was heard for the first time was committed at once.
  private var met: MonotonicTime?

  // MARK: The list

  mutating func began(_ list: ContactList) { self.list = list }
  mutating func endList() { list = nil }

  /// The list that is waited for, if this is what asked for it.
  func list(of question: RadioQuestion?) -> ContactList? {
    question != nil && list?.question === question ? list : nil
  }

  /// A node was added or removed.
  func changedMeanwhile() { list?.sync.changedMeanwhile = true }

  mutating func doubt() { areDoubted = true }

  /// True: a full list is to be asked for.
  mutating func takeDoubt() -> Bool {
    defer { areDoubted = false }
    return areDoubted
  }

  // MARK: Those that were named

  /// `begin`: begins the task that asks for them, until `fetched` says that it has ended.
  mutating func named(_ key: PublicKey, by sign: ContactFetches.Sign, _ begin: () -> LoopTask) {
    fetches.named(key, by: sign)
    if fetching == nil { fetching = begin() }
  }

  @discardableResult
  mutating func took(_ key: PublicKey) -> ContactFetches.Sign { fetches.took(key) }

  /// None is left to ask for. True: names were left out, and no list is under way that tells of them.
  mutating func fetched() -> Bool {
    fetching = nil
    return fetches.takeNeedsList() && list == nil
  }

  /// Nothing is asked for any more.
  mutating func forgetNames() { fetches = ContactFetches() }

  func stop() { fetching?.cancel() }

  // MARK: Nodes that are new

  /// A node was heard for the first time. The radio need not keep it, and it may not advertise itself again for half a day: that is worth a commit
  /// of its own. But anybody can invent nodes: one in so long is.
  mutating func meets(at now: MonotonicTime) -> Bool {
    if let met, now - met < Self.meetInterval { return false }
    met = now
    return true
  }
}
