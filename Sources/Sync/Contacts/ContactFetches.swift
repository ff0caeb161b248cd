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
  private var order: [PublicKey] = []
  private(set) var needsList = false

  /// The contact to ask for next: the one that was named first.
  var next: PublicKey? { order.first }

  mutating func named(_ key: PublicKey, by sign: Sign) {
    if let known = pending[key] {
      pending[key] = max(known, sign)
    } else if pending.count < Self.bound {
      pending[key] = sign
      order.append(key)
    } else {
      needsList = true
    }
  }

  /// The contact came, or will not come: what had named it.
  @discardableResult
  mutating func took(_ key: PublicKey) -> Sign {
    guard let sign = pending.removeValue(forKey: key) else { return .change }
    order.removeAll { $0 == key }
    return sign
  }

  /// True once, when names were left out.
  mutating func takeNeedsList() -> Bool {
    defer { needsList = false }
    return needsList && pending.isEmpty
  }
}

extension Synchronizer {
  /// Asks for a contact's record: it was changed from here.
  public func refresh(_ key: PublicKey) { fetch(key, .change) }

  func fetch(_ key: PublicKey, _ sign: ContactFetches.Sign) {
    guard !key.isZero else { return }
    fetches.named(key, by: sign)
    guard !isFetching else { return }
    isFetching = true
    loop.begin { await self.fetchNamed() }
  }

  /// One after the other; each is kept where its answer is decoded. Where the link is lost nothing is left to ask for.
  private func fetchNamed() async {
    while let key = fetches.next {
      note(await connection.ask(.getContactByKey(key), .sync))
      fetches.took(key)
    }
    isFetching = false
    guard fetches.takeNeedsList(), contactList == nil else { return }
    needsContactList = true
    woken.resume()
  }
}
