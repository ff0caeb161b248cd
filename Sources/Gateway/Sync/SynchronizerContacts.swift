// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store
import Timing

extension Synchronizer {
  /// Fetches the contact list until one is complete and consistent.
  func syncContacts() async throws {
    guard let radio = connection.identity?.info.key else { return }
    var tries = 0
    while true {
      let known = contacts.takeDoubt() ? nil : try store.contactWatermark()
      let started = known?.radio == radio ? try await whenRadioStarted() : nil
      let list = ContactList(
        ContactSync(
          known: known, radio: radio, radioClock: radioClock.lastRead, started: started, now: clock.milliseconds,
          tries: tries))
      contacts.began(list)
      enter(.syncing(.contacts, current: 0, total: 0))
      if known.map({ $0.radio != radio }) ?? false { forgetOtherRadio() }
      list.question = connection.submit(list.sync.command, .sync)
      let outcome = await list.question?.outcome() ?? .failed(.linkLost)
      try Task.checkCancellation()
      contacts.endList()
      if try await accept(list.sync, outcome, from: radio), !contacts.areDoubted { return }
      tries = list.sync.nextTry
    }
  }

  /// Milliseconds since 1970, or up to a second and the answer's way later: one list too many is cheap, a start that is overlooked is not.
  /// So a radio that does not answer counts as started just now. `nil`: its firmware does not say.
  func whenRadioStarted() async throws(CancellationError) -> Int64? {
    guard let version = connection.identity?.device?.protocolVersion, version >= Self.firstWithStats else { return nil }
    var outcome = try await ask(.getStats(0))
    // Once more: an answer is lost at times, and a refusal may be of something else.
    if case .replied(.stats) = outcome {} else { outcome = try await ask(.getStats(0)) }
    switch outcome {
    case .replied(.stats(.core(let core))):
      radioClock.runs(for: .seconds(Int64(core.uptime)), now: loop.now)
      return clock.milliseconds - Int64(core.uptime) * 1000
    case .failed(.timedOut), .failed(.linkLost): return clock.milliseconds
    default: return nil
    }
  }

  /// GET_STATS came with protocol version 8 (docs/protocol/companion.md § 11).
  private static let firstWithStats: UInt8 = 8

  /// The radio does not have a contact that the store says it has: what else the store says of its table may be wrong, too.
  public func radioDidNotKnow(_ key: PublicKey) {
    guard store.ifReadable({ try store.contact(key) })?.onRadio ?? true else { return }
    contacts.doubt()
    plan.needs(.contacts, now: true)
    woken.resume()
  }

  /// Another radio is attached: the previous radio's contacts are no longer on the radio.
  private func forgetOtherRadio() {
    log.notice(
      "another radio is attached: its contacts and channels replace the previous radio's; messages are kept separately (meshpost radio list)"
    )
    write({ store throws(SQLiteError) in
      try store.markAllRemoved()
      try store.forgetChannels(from: 0)
    })
  }

  func listBegan(_ total: UInt32, of question: RadioQuestion?) { contacts.list(of: question)?.total = total }

  func listed(_ contact: Contact, of question: RadioQuestion?) {
    if let list = contacts.list(of: question) {
      list.sync.received(contact)
      if case .syncing(let phase, let current, _) = state, phase == .contacts {
        // How many have changed is known at the end only.
        enter(.syncing(.contacts, current: current + 1, total: list.sync.kind == .full ? Int(list.total) : 0))
      }
    }
    // One that was named need not be asked for any more: the radio has told more since.
    keep(contact, as: contacts.took(contact.key))
  }

  /// The store has what the radio has: this connection's list is complete, and nothing that changed is on its way.
  public var knowsAllContacts: Bool {
    connection.state == .up && plan.isDone(.contacts) && contacts.fetches.pending.isEmpty && !contacts.fetches.needsList
  }

  // MARK: The end of a list

  /// False: a full list is needed.
  private func accept(
    _ sync: ContactSync, _ outcome: RadioSession.Outcome, from radio: PublicKey
  ) async throws -> Bool {
    guard case .contacts(let total, let received, let lastModified) = outcome else {
      throw SyncFailure("the contact list ended early (\(Self.words(outcome)))")
    }
    // What this turn brought must count before the totals are compared.
    try store.commitNow()
    let known = try store.contactCount(onRadio: true)
    if sync.kind == .full { counters.fullContactLists += 1 } else { counters.incrementalContactLists += 1 }
    switch sync.ended(total: total, received: received, lastModified: lastModified, known: known) {
    case .again: return false
    case .giveUp(let watermark):
      log.warning("the contact list was incomplete \(ContactSync.maxTries) times; continuing with what was received")
      try await keep(watermark, of: radio, isFull: false, removing: nil)
    case .complete(let watermark, let removeMissing):
      try await keep(watermark, of: radio, isFull: sync.kind == .full, removing: removeMissing ? sync.seen : nil)
    }
    return true
  }

  private func keep(
    _ watermark: UInt32, of radio: PublicKey, isFull: Bool, removing seen: Set<PublicKey>?
  ) async throws {
    let moment = now
    try await store.save { store throws(SQLiteError) in
      if let seen { try store.removeContacts(notIn: seen, at: moment) }
      try store.setContactWatermark(
        radio: radio, lastModified: watermark, fullAt: isFull ? moment.milliseconds : nil)
    }
    try Task.checkCancellation()
  }

  // MARK: Single contacts

  /// `sign`: why it came.
  func keep(_ contact: Contact, as sign: ContactFetches.Sign, onRadio: Bool = true) {
    guard !contact.key.isZero else { return }
    if onRadio { observer?.contactCame(contact) }
    let moment = now
    let isHeard = sign == .advert
    // The radio has it, and tells it again. Whoever asked a node for its path looks on.
    write(
      when: isHeard ? .heard : .soon,
      { store throws(SQLiteError) in
        let change = try store.upsert(contact, onRadio: onRadio, heard: isHeard, at: moment.milliseconds)
        if isHeard, change == .added, contacts.meets(at: loop.now) { store.transactions.hasten(.soon) }
        if sign == .path { try store.noteHeard(contact.key.prefix, at: moment.milliseconds) }
        if isHeard { try store.noteClock(of: contact.key, advert: contact.lastAdvert, at: moment) }
        guard isHeard || change != .unchanged, let stored = try store.readForEvent(contact.key) else { return }
        _ = try store.append(isHeard ? .advert : .contact, at: moment, body: EventBody.contact(stored))
        if change != .unchanged { counters.contactsChanged += 1 }
      })
  }

  /// The radio no longer has it: it was removed from here.
  public func forget(_ key: PublicKey) { remove(key, overwritten: false) }

  /// The radio overwrote it to make room.
  func overwritten(_ key: PublicKey) {
    contacts.changedMeanwhile()
    remove(key, overwritten: true)
  }

  private func remove(_ key: PublicKey, overwritten: Bool) {
    let moment = now
    // A full table overwrites one for each node that is new, and the next contact list shows who is gone.
    write(
      when: overwritten ? .heard : .now,
      { store throws(SQLiteError) in
        guard try store.markRemoved(key) else { return }
        _ = try store.append(.contactRemoved, at: moment, body: EventBody.removed(key, overwritten: overwritten))
      })
  }

  static func words(_ outcome: RadioSession.Outcome) -> String {
    switch outcome {
    case .failed(.timedOut): "no answer"
    case .failed(.refused(let error)): "refused: \(error.map(\.description) ?? "no reason given")"
    case .failed(.listBroken(let received, let total)): "\(received) of \(total) came"
    case .failed(.linkLost): "the link is down"
    case .failed(.disabled): "not supported by the firmware"
    default: "an unexpected answer"
    }
  }
}
