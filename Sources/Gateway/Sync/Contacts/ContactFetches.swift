// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// Which contacts have to be fetched because a push named them: each once, however often it is named, and a bounded
/// number; beyond that one contact list is asked for instead. Adverts come in bursts, and wait for the others.
struct ContactFetches: Equatable {
  static let bound = 128

  /// What named a contact: each tells more of it than the one before.
  enum Sign: Int, Comparable {
    /// The contact was changed from here.
    case change
    /// The node has answered, and a path came with the answer.
    case path
    case advert

    static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
  }

  private(set) var pending: [PublicKey: Sign] = [:]
  private var changed: [PublicKey] = []
  /// Named by adverts alone.
  private var advertised: [PublicKey] = []
  private(set) var needsList = false

  /// The contact to ask for next: of the most urgent the one that was named first.
  var next: PublicKey? { changed.first ?? advertised.first }

  mutating func named(_ key: PublicKey, by sign: Sign) {
    let known = pending[key]
    if known == nil, pending.count >= Self.bound {
      needsList = true
      // A contact list does not tell each change that was made from here; of an advert it does.
      guard sign != .advert, let last = advertised.popLast() else { return }
      pending[last] = nil
    }
    pending[key] = max(known ?? sign, sign)
    if sign == .advert {
      if known == nil { advertised.append(key) }
    } else if !changed.contains(key) {
      advertised.removeAll { $0 == key }
      changed.append(key)
    }
  }

  /// The contact came, or will not come: what had named it.
  @discardableResult
  mutating func took(_ key: PublicKey) -> Sign {
    guard let sign = pending.removeValue(forKey: key) else { return .change }
    changed.removeAll { $0 == key }
    advertised.removeAll { $0 == key }
    return sign
  }

  /// True once, when names were left out.
  mutating func takeNeedsList() -> Bool {
    defer { needsList = false }
    return needsList && pending.isEmpty
  }
}

extension Synchronizer {
  /// Fetches the record of a contact that was changed from here.
  public func refresh(_ key: PublicKey) { fetch(key, .change) }

  func fetch(_ key: PublicKey, _ sign: ContactFetches.Sign) {
    guard !key.isZero else { return }
    contacts.named(key, by: sign) { loop.begin { await self.fetchNamed() } }
  }

  /// While messages are taken, one contact is asked for between so many of them: each costs a round trip.
  static let messagesPerFetch = 16

  /// One after the other; each is kept where its answer is decoded. Where the link is lost nothing is left to ask for.
  private func fetchNamed() async {
    while !contacts.fetches.pending.isEmpty {
      await untilCalm()
      guard let key = contacts.fetches.next else { break }
      note(await connection.ask(.getContactByKey(key), .sync))
      contacts.took(key)
    }
    guard contacts.fetched() else { return }
    plan.needs(.contacts)
    woken.resume()
  }

  /// Messages come first, and what the radio says of them.
  private func untilCalm() async {
    let before = questions.taken
    while questions.areTaken || isCalled, !contacts.fetches.pending.isEmpty,
      questions.taken - before < Self.messagesPerFetch
    {
      // Cancelled: the daemon ends.
      do { try await questions.idle.wait() } catch { return }
    }
  }

  /// The link is lost, or the daemon ends: nothing is asked for any more.
  func forgetNames() {
    contacts.forgetNames()
    hints.followed()
    questions.idle.resume()
  }
}
