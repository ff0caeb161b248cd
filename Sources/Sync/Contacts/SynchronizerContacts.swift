// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

extension Synchronizer {
  /// Records that go into one transaction at most: memory and the log stay small, whatever the number of contacts.
  /// The turn of the loop decides; this bounds a turn that brings very many.
  func syncContacts(tries: Int = 0) {
    guard let radio = connection.identity?.info.key else { return }
    do {
      let known = forgetsWatermark ? nil : try store.contactWatermark()
      forgetsWatermark = false
      let sync = ContactSync(
        known: known, radio: radio, radioClock: radioClock, now: clock.milliseconds, tries: tries)
      contactSync = sync
      enter(.syncing(.contacts, current: 0, total: 0))
      if known.map({ $0.radio != radio }) ?? false { forgetOtherRadio() }
      ask(for: sync)
    } catch {
      failed("\(error)")
    }
  }

  private func ask(for sync: ContactSync) {
    let attempt = generation
    contactListID = connection.submit(sync.command) { [weak self] outcome in
      guard let self, self.generation == attempt else { return }
      self.contactListID = nil
      self.contactsEnded(outcome)
    }
    if contactListID == nil { failed("too many commands wait for the radio") }
  }

  /// Another radio is attached: what the last one knew is no longer on the radio.
  private func forgetOtherRadio() {
    log.notice(
      "another radio is attached: its contacts and channels replace the last one's, whose messages stay apart (meshpost radio list)"
    )
    write({ store throws(SQLiteError) in
      try store.markAllRemoved()
      try store.forgetChannels(from: 0)
    })
  }

  func received(_ contact: Contact, ofList id: UInt64) {
    guard id == contactListID else {
      onForeignContact(id)
      return keep(contact, heard: false)
    }
    contactSync?.received(contact)
    if case .syncing(.contacts, let current, _) = state {
      // How many have changed is known at the end only.
      let total = contactSync?.kind == .full ? connection.list.flatMap { $0.id == id ? $0.total : nil } : nil
      enter(.syncing(.contacts, current: current + 1, total: total ?? 0))
    }
    keep(contact, heard: false)
  }

  /// The store has what the radio has: this connection's list is complete, and nothing that changed is on its way.
  public var knowsAllContacts: Bool {
    guard connection.state == .up, contactSync == nil, discovery.pending.isEmpty, !discovery.needsList else {
      return false
    }
    return hasListedContacts
  }

  /// `heard`: by its advert. `hasAnswered`: something of it came that is no advert.
  func keep(_ contact: Contact, heard: Bool, onRadio: Bool = true, hasAnswered: Bool = false) {
    guard !contact.key.isZero else { return }
    if onRadio { onContact(contact) }
    let moment = now
    // The radio has it, and tells it again.
    write(
      when: .soon,
      { store throws(SQLiteError) in
        let change = try store.upsert(contact, onRadio: onRadio, heard: heard, at: moment.milliseconds)
        if hasAnswered { try store.noteHeard(contact.key.prefix, at: moment.milliseconds) }
        if heard { try store.noteClock(of: contact.key, advert: contact.lastAdvert, at: moment) }
        guard heard || change != .unchanged, let stored = try store.readForEvent(contact.key) else { return }
        _ = try store.append(heard ? .advert : .contact, at: moment, body: EventBody.contact(stored))
        if change != .unchanged { counters.contactsChanged += 1 }
      })
  }

  private func contactsEnded(_ outcome: RadioSession.Outcome) {
    guard let sync = contactSync else { return }
    contactSync = nil
    hasListedContacts = false
    guard case .contacts(let total, let received, let lastModified) = outcome else {
      return failed("the contact list broke off (\(Self.words(outcome)))")
    }
    do {
      // What this turn brought must count before the totals are compared.
      try store.commitNow()
      let known = try store.contactCount(onRadio: true)
      let verdict = sync.ended(total: total, received: received, lastModified: lastModified, known: known)
      apply(verdict, of: sync)
    } catch {
      failed("\(error)")
    }
  }

  private func apply(_ verdict: ContactSync.Verdict, of sync: ContactSync) {
    if sync.kind == .full { counters.fullContactLists += 1 } else { counters.incrementalContactLists += 1 }
    switch verdict {
    case .again: syncContacts(tries: sync.nextTry)
    case .giveUp(let watermark):
      log.warning("the contact list came incomplete \(ContactSync.maxTries) times; going on with what came")
      finishContacts(watermark: watermark, isFull: false, removing: nil)
    case .complete(let watermark, let removeMissing):
      finishContacts(watermark: watermark, isFull: sync.kind == .full, removing: removeMissing ? sync.seen : nil)
    }
  }

  private func finishContacts(watermark: UInt32, isFull: Bool, removing seen: Set<PublicKey>?) {
    guard let radio = connection.identity?.info.key else { return }
    let moment = now
    write({ store throws(SQLiteError) in
      if let seen { try store.removeContacts(notIn: seen, at: moment) }
      try store.setContactWatermark(
        radio: radio, lastModified: watermark, fullAt: isFull ? moment.milliseconds : nil)
    }) { [weak self] in
      self?.hasListedContacts = true
      self?.syncChannels(from: 0)
    }
  }

  static func words(_ outcome: RadioSession.Outcome) -> String {
    switch outcome {
    case .failed(.timedOut): "no answer"
    case .failed(.refused(let error)): "refused: \(error.map(\.description) ?? "no reason given")"
    case .failed(.listBroken(let received, let total)): "\(received) of \(total) came"
    case .failed(.linkLost): "the link is down"
    case .failed(.disabled): "not built in"
    default: "an answer of another kind"
    }
  }
}
