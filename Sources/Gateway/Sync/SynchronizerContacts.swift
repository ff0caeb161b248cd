// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store
import Timing

extension Synchronizer {
  /// Requests contact lists until one is complete and consistent.
  func syncContacts() async throws {
    guard let radio = connection.identity?.info.key else { return }
    try await doubtContactChanges()
    var tries = 0
    while true {
      let doubts = contacts.doubts
      let stored = try store.contactWatermark()
      let known = contacts.areDoubted ? nil : stored
      let started = stored?.radio == radio ? try await whenRadioStarted() : nil
      let wasRestarted = stored.map { $0.radio == radio && hasRestarted(since: $0.fullAt) } ?? false
      let list = ContactList(
        ContactSync(
          known: known, radio: radio, radioClock: radioClock.lastRead, started: started, now: clock.milliseconds,
          tries: tries))
      contacts.began(list)
      enter(.syncing(.contacts, current: 0, total: 0))
      if stored.map({ $0.radio != radio }) ?? false { forgetOtherRadio() }
      list.question = connection.submit(list.sync.command, .sync)
      let outcome = await list.question?.outcome() ?? .failed(.linkLost)
      try Task.checkCancellation()
      contacts.endList()
      // A doubt that came meanwhile causes another list; one that a list could not settle stays for a later one.
      if try await accept(list.sync, outcome, from: radio, doubts, wasRestarted), contacts.doubts == doubts {
        contacts.listed(at: loop.now)
        // An incomplete list does not show what the radio lacks.
        if !contacts.areDoubted { try await putBackContactChanges() }
        return
      }
      tries = list.sync.nextTry
    }
  }

  /// The latest possible start of the radio, in milliseconds since 1970. It can be late by a second and the time of the
  /// answer: an unnecessary list is cheap, an overlooked start is not. So a radio that does not answer counts as
  /// started now. `nil`: the firmware does not report it.
  func whenRadioStarted() async throws(CancellationError) -> Int64? {
    guard let version = connection.identity?.device?.protocolVersion, version >= Self.firstWithStats else { return nil }
    var outcome = try await ask(.getStats(0))
    // Asked twice: an answer can be lost, and a refusal can belong to another command.
    if case .replied(.stats) = outcome {} else { outcome = try await ask(.getStats(0)) }
    switch outcome {
    case .replied(.stats(.core(let core))):
      radioClock.runs(for: .seconds(Int64(core.uptime)), now: loop.now)
      guard let started = radioClock.started else { return nil }
      connection.radioStarted(at: started)
      return clock.milliseconds - Int64((loop.now - started).inSeconds * 1000)
    case .failed(.timedOut), .failed(.linkLost), .failed(.notSent): return clock.milliseconds
    default: return nil
    }
  }

  /// Whether the radio says that it was started after the last list; before this run's first one, after the last whole list, in milliseconds since 1970.
  private func hasRestarted(since fullAt: Int64) -> Bool {
    guard let latest = radioClock.started else { return false }
    let uptime = loop.now - latest + Self.inexactStart
    if let listedAt = contacts.listedAt { return loop.now - listedAt > uptime }
    return clock.milliseconds - Int64(uptime.inSeconds * 1000) > fullAt
  }

  /// The radio tells its uptime in whole seconds, and its answer takes its time.
  private static let inexactStart: Duration = .seconds(2)

  /// GET_STATS came with protocol version 8 (docs/protocol/companion.md § 11).
  public static let firstWithStats: UInt8 = 8

  /// The radio has not said whether it carried this command out: reads again what it may have changed.
  public func doubtEffect(of command: Command) {
    switch command {
    case .setChannel(let channel): doubt(channel.slot)
    case .addUpdateContact(let contact): refresh(contact.key)
    case .resetPath(let key), .removeContact(let key): refresh(key)
    default: break
    }
  }

  /// The radio lacks a contact that the store says it has: other stored contacts may be wrong, too.
  public func radioDidNotKnow(_ key: PublicKey) {
    guard store.ifReadable({ try store.contact(key) })?.onRadio ?? true else { return }
    contacts.doubt()
    plan.needs(.contacts, now: true)
    woken.resume()
  }

  /// The radio lacks a contact that a program named which shares it. Programs ask as often as they like, so this causes a list at most once in ten
  /// minutes, and only if the store says that the radio has the contact.
  public func radioDidNotKnowForProgram(_ key: PublicKey) {
    guard store.ifReadable({ try store.contact(key) })?.onRadio == true, contacts.mayDoubtForProgram(at: loop.now)
    else { return }
    radioDidNotKnow(key)
  }

  /// Another radio is attached: stored contacts are no longer on the radio.
  private func forgetOtherRadio() {
    log.notice(
      "another radio is attached: its contacts and channels replace the previous radio's; messages are kept separately (meshpost radio list)"
    )
    let moment = now
    write { store throws(SQLiteError) in
      try store.markAllRemoved(at: moment)
      try store.forgetChannels(from: 0)
    }
  }

  func listBegan(_ total: UInt32, of question: RadioQuestion?) { contacts.list(of: question)?.total = total }

  func listed(_ contact: Contact, of question: RadioQuestion?) {
    if let list = contacts.list(of: question) {
      list.sync.received(contact)
      if case .syncing(let phase, let current, _) = state, phase == .contacts {
        // The number of changed contacts is known only at the end.
        enter(.syncing(.contacts, current: current + 1, total: list.sync.kind == .full ? Int(list.total) : 0))
      }
    }
    // A contact in the list need not be fetched: this record is newer than the push that named it.
    keep(contact, as: contacts.took(contact.key))
  }

  /// The store has all contacts of the radio: this connection's list is complete, and no fetch is waiting.
  public var knowsAllContacts: Bool {
    connection.state == .up && plan.isDone(.contacts) && contacts.fetches.pending.isEmpty && !contacts.fetches.needsList
  }

  // MARK: The end of a list

  /// Stores the end of the list. Returns false if a full list is needed. `doubts`: those before the list. `wasRestarted`: the radio, since the list before.
  private func accept(
    _ sync: ContactSync, _ outcome: RadioSession.Outcome, from radio: PublicKey, _ doubts: Int, _ wasRestarted: Bool
  ) async throws -> Bool {
    guard case .contacts(let total, let received, let lastModified) = outcome else {
      throw SyncFailure("the contact list ended early (\(Self.words(outcome)))")
    }
    // Commits this turn's records before the totals are compared.
    try store.commitNow()
    let known = try store.contactCount(onRadio: true)
    if sync.kind == .full { counters.fullContactLists += 1 } else { counters.incrementalContactLists += 1 }
    switch sync.ended(total: total, received: received, lastModified: lastModified, known: known) {
    case .again: return false
    case .giveUp(let watermark):
      log.warning("the contact list was incomplete \(ContactSync.maxTries) times; continuing with what was received")
      try await keep(watermark, of: radio, isFull: false, removing: nil, wasRestarted)
    case .complete(let watermark, let removeMissing):
      try await keep(
        watermark, of: radio, isFull: sync.kind == .full, removing: removeMissing ? sync.seen : nil, wasRestarted)
      if sync.kind == .full { contacts.settled(doubts) }
    }
    return true
  }

  private func keep(
    _ watermark: UInt32, of radio: PublicKey, isFull: Bool, removing seen: Set<PublicKey>?, _ wasRestarted: Bool
  ) async throws {
    let moment = now
    var lost: [String] = []
    try await store.save { store throws(SQLiteError) in
      if let seen {
        // Open changes are put back, and told, by themselves; a path that was reset brings no contact back.
        lost = try store.removeContacts(notIn: seen, at: moment) {
          wasRestarted && !contacts.changes.decidesPlace(of: $0)
        }
      }
      try store.setContactWatermark(
        radio: radio, lastModified: watermark, fullAt: isFull ? moment.milliseconds : nil)
    }
    if let words = PutBack.words("the radio was restarted, and no longer has contacts (\(lost.count))", lost) {
      log.notice("\(words); a message or a request to such a node restores it")
    }
    try Task.checkCancellation()
  }

  // MARK: Single contacts

  /// The gateway has changed the contact on the radio: stores the record that the radio has now.
  public func keepChanged(_ contact: Contact) { keep(contact, as: .change) }

  /// `sign`: why the record came.
  func keep(_ contact: Contact, as sign: ContactFetches.Sign, onRadio: Bool = true) {
    guard !contact.key.isZero else { return }
    if onRadio { observer?.contactCame(contact) }
    let moment = now
    let isHeard = sign == .advert
    let addsByItself = connection.identity?.info.manualAddContacts == 0
    // Losing this write is harmless: the radio has the contact, and reports it again.
    write(when: isHeard ? .heard : .soon) { store throws(SQLiteError) in
      let former = try store.readForEvent(contact.key)
      let change = try store.upsert(contact, onRadio: onRadio, heard: isHeard, at: moment.milliseconds)
      if !onRadio, addsByItself { try store.noteNoPlace(for: contact.key) }
      if isHeard, change == .added, contacts.meets(at: loop.now) { store.transactions.hasten(.soon) }
      if sign == .path { try store.noteHeard(contact.key.prefix, at: moment.milliseconds) }
      if isHeard { try store.noteClock(of: contact.key, advert: contact.lastAdvert, at: moment) }
      if let former, former.radio == store.radio, former.contact.outPath != contact.outPath {
        _ = try store.append(.route, at: moment, body: EventBody.route(contact, former: former.contact.outPath))
      }
      guard isHeard || change != .unchanged, let stored = try store.readForEvent(contact.key) else { return }
      _ = try store.append(isHeard ? .advert : .contact, at: moment, body: EventBody.contact(stored))
      if change != .unchanged { counters.contactsChanged += 1 }
    }
  }

  /// The gateway removed the contact from the radio.
  public func forget(_ key: PublicKey) { remove(key, overwritten: false) }

  /// The radio overwrote the contact to make room.
  func overwritten(_ key: PublicKey) {
    contacts.changedMeanwhile()
    settleChange(of: key)
    remove(key, overwritten: true)
  }

  private func remove(_ key: PublicKey, overwritten: Bool) {
    let moment = now
    // A full table overwrites a contact for each new node; if that write is lost, the next full list shows who is gone.
    write(when: overwritten ? .heard : .now) { store throws(SQLiteError) in
      guard try store.markRemoved(key) else { return }
      // A message to it, or from it, restores it.
      if overwritten { try store.setEvicted(key, true) }
      _ = try store.append(.contactRemoved, at: moment, body: EventBody.removed(key, overwritten: overwritten))
    }
  }

  static func words(_ outcome: RadioSession.Outcome) -> String {
    switch outcome {
    case .failed(.timedOut), .failed(.notSent): "no answer"
    case .failed(.refused(let error)): "refused: \(error.map(\.description) ?? "no reason given")"
    case .failed(.listBroken(let received, let total)): "\(received) of \(total) came"
    case .failed(.linkLost): "the link is down"
    case .failed(.disabled): "not supported by the firmware"
    default: "an unexpected answer"
    }
  }
}
