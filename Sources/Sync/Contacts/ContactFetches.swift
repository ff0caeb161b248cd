// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

/// Which contacts have to be fetched because a push named them: each once, however often it is named, and a bounded
/// number; beyond that one contact list is asked for instead.
struct ContactFetches: Equatable {
  static let bound = 128

  /// What named a contact: each tells more of it than the one before.
  enum Sign: Int, Comparable {
    /// It was changed from here.
    case change
    /// It has answered, and a path came with that.
    case path
    case advert

    static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
  }

  private(set) var pending: [PublicKey: Sign] = [:]
  private(set) var needsList = false

  /// True when the contact has to be asked for now.
  mutating func named(_ key: PublicKey, by sign: Sign) -> Bool {
    if let known = pending[key] {
      pending[key] = max(known, sign)
      return false
    }
    guard pending.count < Self.bound else {
      needsList = true
      return false
    }
    pending[key] = sign
    return true
  }

  /// The contact came, or will not come: what had named it.
  mutating func took(_ key: PublicKey) -> Sign { pending.removeValue(forKey: key) ?? .change }

  /// True once, when names were left out.
  mutating func takeNeedsList() -> Bool {
    defer { needsList = false }
    return needsList && pending.isEmpty
  }
}

extension Synchronizer {
  /// What the radio says by itself.
  func received(_ push: Push) {
    switch push {
    case .messageWaiting: messageWaiting()
    case .advert(let key):
      counters.adverts += 1
      contactSync?.changedMeanwhile = true
      fetch(key, .advert)
    case .pathUpdated(let key): fetch(key, .path)
    case .newAdvert(let contact):
      // Heard, and **not** in the radio's table: manual mode, hop limit or a full table.
      counters.adverts += 1
      keep(contact, heard: true, onRadio: false)
    case .contactDeleted(let key): removed(key)
    case .contactsFull: log.info("the radio's contact table is full: a node was not added")
    default: break  // Acknowledgements and answers to requests belong to messaging; heard packets to the observer feed.
    }
  }

  /// Asks for a contact's record: it was changed from here.
  public func refresh(_ key: PublicKey) { fetch(key, .change) }

  /// The radio no longer has it: it was removed from here.
  public func forget(_ key: PublicKey) {
    let moment = now
    write({ store throws(SQLiteError) in
      guard try store.markRemoved(key) else { return }
      _ = try store.append(.contactRemoved, at: moment, body: EventBody.removed(key, overwritten: false))
    })
  }

  private func fetch(_ key: PublicKey, _ sign: ContactFetches.Sign) {
    guard !key.isZero, discovery.named(key, by: sign) else { return }
    ask(.getContactByKey(key)) { [weak self] outcome in
      guard let self else { return }
      let sign = self.discovery.took(key)
      if case .replied(.contact(let contact)) = outcome {
        self.keep(contact, heard: sign == .advert, hasAnswered: sign == .path)
      }
      if self.discovery.takeNeedsList(), self.contactSync == nil { self.syncContacts() }
    }
  }

  /// The radio overwrote it to make room.
  private func removed(_ key: PublicKey) {
    contactSync?.changedMeanwhile = true
    let moment = now
    write({ store throws(SQLiteError) in
      guard try store.markRemoved(key) else { return }
      _ = try store.append(.contactRemoved, at: moment, body: EventBody.removed(key, overwritten: true))
    })
  }
}
