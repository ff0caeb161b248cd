// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// Contacts to fetch because a push named them: each once, and at most `bound`. At the bound, a contact list is
/// requested instead. Contacts that only adverts named wait for the others, because adverts come in bursts.
struct ContactFetches: Equatable {
  static let bound = 128

  /// Why a contact is fetched; a later case includes the earlier ones.
  enum Sign: Int, Comparable {
    /// The gateway changed the contact.
    case change
    /// The node answered, and its answer brought a path.
    case path
    case advert

    static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
  }

  private(set) var pending: [PublicKey: Sign] = [:]
  private var changed: [PublicKey] = []
  /// Contacts that only adverts named.
  private var advertised: [PublicKey] = []
  private(set) var needsList = false

  /// The next contact to fetch: the oldest of the most urgent ones.
  var next: PublicKey? { changed.first ?? advertised.first }

  mutating func named(_ key: PublicKey, by sign: Sign) {
    let known = pending[key]
    if known == nil, pending.count >= Self.bound {
      needsList = true
      // A contact list can stand in for an advert's fetch, but not for that of a contact that the gateway changed.
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

  /// The fetch has ended. Returns its reason.
  @discardableResult
  mutating func took(_ key: PublicKey) -> Sign {
    guard let sign = pending.removeValue(forKey: key) else { return .change }
    changed.removeAll { $0 == key }
    advertised.removeAll { $0 == key }
    return sign
  }

  /// The radio did not answer: a list is requested instead. Returns the reason; `nil`: no fetch waits any more.
  mutating func missed(_ key: PublicKey) -> Sign? {
    guard pending[key] != nil else { return nil }
    needsList = true
    return took(key)
  }

  /// Returns true once if names were left out, as soon as no fetch is waiting.
  mutating func takeNeedsList() -> Bool {
    defer { needsList = false }
    return needsList && pending.isEmpty
  }
}

extension Synchronizer {
  /// Fetches the record of a contact that the gateway changed.
  public func refresh(_ key: PublicKey) { fetch(key, .change) }

  func fetch(_ key: PublicKey, _ sign: ContactFetches.Sign) {
    guard !key.isZero else { return }
    contacts.named(key, by: sign) { loop.begin { await self.fetchNamed() } }
  }

  /// While messages are read, one contact is fetched after this many: each fetch costs a round trip.
  static let messagesPerFetch = 16

  /// Fetches contacts one after the other; the delegate stores each. When the link is lost, the list is emptied.
  private func fetchNamed() async {
    while !contacts.fetches.pending.isEmpty {
      await untilCalm()
      guard let key = contacts.fetches.next else { break }
      let outcome = await connection.ask(.getContactByKey(key), .sync)
      note(outcome)
      switch outcome {
      case .replied, .failed(.refused), .failed(.disabled): contacts.took(key)
      default: contacts.missed(key)
      }
      // Of a contact that the store does not know either, nothing is wrong.
      if case .failed(.refused(.notFound)) = outcome, store.ifReadable({ try store.contact(key) }) != nil {
        radioDidNotKnow(key)
      }
    }
    guard contacts.fetched() else { return }
    plan.needs(.contacts)
    woken.resume()
  }

  /// Waits while messages are read from the radio, or until `messagesPerFetch` were read.
  private func untilCalm() async {
    let before = questions.taken
    while questions.areTaken || isCalled, !contacts.fetches.pending.isEmpty,
      questions.taken - before < Self.messagesPerFetch
    {
      // Cancelled: the daemon ends.
      do { try await questions.idle.wait() } catch { return }
    }
  }

  /// The link is lost, or the daemon ends: drops all planned fetches and the radio's hint.
  func forgetNames() {
    contacts.forgetNames()
    hints.followed()
    questions.idle.resume()
  }
}
