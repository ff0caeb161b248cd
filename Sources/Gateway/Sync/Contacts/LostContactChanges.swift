// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

/// Puts back what a power cut of the radio has undone (see `ContactChanges`).
extension Synchronizer {
  /// The store has changes of an earlier run.
  func recallContactChanges(of radio: PublicKey) {
    guard contacts.changes.radio != radio else { return }
    // Without the store nothing is known of them.
    let kept = store.ifReadable { try store.contactChanges(on: radio) } ?? []
    contacts.changes.attached(to: radio, kept: kept)
  }

  /// The radio has added the contact on an import.
  public func contactCame(by card: Contact) { confirmed(.addUpdateContact(card)) }

  /// The radio has answered the command, or has not.
  func answered(_ command: Command, _ outcome: RadioSession.Outcome) {
    if outcome == .replied(.ok) { return confirmed(command) }
    // Whoever removes a contact does not want it back, even if the radio has lost it already or its answer is lost.
    guard case .removeContact(let key) = command, !contacts.changes.isRemoved(key) else { return }
    settleChange(of: key)
    // Otherwise the next list counts it as lost by the radio, and a message restores it.
    if case .failed(.refused(.notFound)) = outcome, store.ifReadable({ try store.contact(key) })?.onRadio == true {
      confirmed(command)
    }
  }

  /// The radio has carried out the command.
  private func confirmed(_ command: Command) {
    guard let radio = connection.identity?.info.key, contacts.changes.radio == radio,
      let (key, wish) = ContactChanges.wish(of: command)
    else { return }
    let now = loop.now
    contacts.changes.confirmed(command, at: now)
    guard wish != .floods, contacts.changes.isLast(key, at: now),
      contacts.changes.isStored(key) || isMoreThanPath(wish, of: key)
    else { return }
    contacts.changes.stores(key, true)
    store.keepContactChange(command, of: key, at: now, on: radio)
    store.post("a change of a contact") { _ in }
    forgetLater(key, at: now, on: radio)
  }

  /// Once the radio has the change on its flash, the store needs it no more.
  private func forgetLater(_ key: PublicKey, at time: MonotonicTime, on radio: PublicKey) {
    loop.schedule(at: time + ContactChanges.lasting) { [weak self] in
      guard let self, self.contacts.changes.radio == radio, self.contacts.changes.isLast(key, at: time),
        self.contacts.changes.isStored(key)
      else { return }
      contacts.changes.stores(key, false)
      store.keepContactChange(nil, of: key, at: time, on: radio)
    }
  }

  /// Paths change often, and messages find them again: they are kept in memory only.
  private func isMoreThanPath(_ wish: ContactChanges.Wish, of key: PublicKey) -> Bool {
    guard case .has(let contact) = wish, let stored = store.ifReadable({ try store.contact(key) }) ?? nil,
      stored.onRadio
    else { return true }
    let known = stored.contact
    return known.flags != contact.flags || known.name != contact.name || known.type != contact.type
  }

  /// The contact's last change counts no more.
  func settleChange(of key: PublicKey) {
    guard let radio = contacts.changes.radio, contacts.changes.isOpen(key) else { return }
    contacts.changes.settled(key)
    store.keepContactChange(nil, of: key, at: loop.now, on: radio)
  }

  /// Before a contact list: if the radio may have lost changes, the list has to be a whole one.
  func doubtContactChanges() async throws(CancellationError) {
    for key in contacts.changes.outdated(at: loop.now) { settleChange(of: key) }
    guard !contacts.changes.doubtful.isEmpty else { return }
    _ = try await whenRadioStarted()
    if let start = radioClock.started {
      for key in contacts.changes.written(before: start) { settleChange(of: key) }
    }
    if contacts.changes.needWholeList(since: radioClock.started) { contacts.doubt() }
  }

  /// After a complete contact list: compares it with the doubtful changes, puts back what the radio lacks, and says so.
  func putBackContactChanges() async throws {
    var (report, mayWrite): (PutBack, Bool?) = (PutBack(), nil)
    defer { tell(report) }
    for key in contacts.changes.inOrder {
      // Whoever changes this contact just now has the last word.
      guard let entry = contacts.changes.doubtful[key], !connection.changes(key) else { continue }
      let stored = try store.contact(key)
      let present = stored.flatMap { $0.onRadio ? $0.contact : nil }
      if entry.isNewer(than: radioClock.started) {
        compare(key, entry, present)
        continue
      }
      let name = Self.name(of: key, entry, stored?.contact)
      if entry.lacksRight(present) { report.withoutRight.append(name) }
      guard let command = withTime(entry.command(of: key, present)) else {
        settleChange(of: key)
        continue
      }
      let may = mayWrite ?? contacts.changes.mayPutBack(at: loop.now)
      mayWrite = may
      guard may else {
        leaveOut(key, entry, present)
        report.left.append("\(name) (it lost changes too often within an hour)")
        continue
      }
      // First in the queue: what an operator asks for meanwhile comes after it.
      let outcome = await connection.submit(command, .interactive)?.outcome() ?? .failed(.linkLost)
      note(outcome)
      try Task.checkCancellation()
      switch outcome {
      case .replied(.ok): keep(command, name, &report)
      case .failed(.refused(let error)):
        leaveOut(key, entry, present)
        report.left.append("\(name) (the radio refuses: \(error?.description ?? "no reason given"))")
      default: throw SyncFailure("a lost change of a contact could not be put back (\(Self.words(outcome)))")
      }
    }
  }

  /// The radio ran on: a change that it does not have any more, somebody else has undone, and that counts.
  private func compare(_ key: PublicKey, _ entry: ContactChanges.Entry, _ present: Contact?) {
    guard let radio = contacts.changes.radio, entry.command(of: key, present) == nil, !entry.lacksRight(present),
      let at = contacts.changes.remains(key)
    else { return settleChange(of: key) }
    forgetLater(key, at: at, on: radio)
  }

  private func withTime(_ command: Command?) -> Command? {
    guard case .addUpdateContact(var contact)? = command else { return command }
    contact.lastModified = radioTime ?? contact.lastModified
    return .addUpdateContact(contact)
  }

  private func keep(_ command: Command, _ name: String, _ report: inout PutBack) {
    switch command {
    case .addUpdateContact(let contact):
      keepChanged(contact)
      report.back.append(name)
    case .removeContact(let key):
      forget(key)
      report.removed.append(name)
    case .resetPath(let key):
      refresh(key)
      report.back.append(name)
    default: break
    }
  }

  /// A message or a request to the node restores it, as if it had been evicted.
  private func leaveOut(_ key: PublicKey, _ entry: ContactChanges.Entry, _ present: Contact?) {
    settleChange(of: key)
    guard present == nil, case .has(var contact) = entry.wish else { return }
    contact.mayCommand = false
    if store.ifReadable({ try store.contact(key) }) == nil { keep(contact, as: .change, onRadio: false) }
    write { store throws(SQLiteError) in try store.setEvicted(key, true) }
  }

  private static func name(of key: PublicKey, _ entry: ContactChanges.Entry, _ stored: Contact?) -> String {
    if case .has(let contact) = entry.wish, !contact.name.bytes.isEmpty { return contact.name.string }
    return stored?.name.string ?? key.prefix.hex
  }

  private func tell(_ report: PutBack) {
    guard let words = report.words else { return }
    let level: Log.Level = report.left.isEmpty && report.withoutRight.isEmpty ? .notice : .warning
    log.log(level, "the radio was restarted before it had written its contacts to its flash: \(words)")
  }
}

extension RadioConnection {
  /// Whether a command that changes the contact has no answer yet.
  fileprivate func changes(_ key: PublicKey) -> Bool {
    questions.values.contains { ContactChanges.wish(of: $0.command)?.key == key }
  }
}

/// What was put back.
struct PutBack {
  /// Names that are told; of others only the number is.
  private static let most = 8

  var back: [String] = []
  var removed: [String] = []
  var left: [String] = []
  var withoutRight: [String] = []

  var words: String? {
    let parts = [
      Self.words("put back", back), Self.words("removed again", removed), Self.words("not put back", left),
      Self.words("without the right to run commands (meshpost contact commands NAME on)", withoutRight),
    ].compactMap { $0 }
    return parts.isEmpty ? nil : parts.joined(separator: "; ")
  }

  static func words(_ what: String, _ names: [String]) -> String? {
    guard !names.isEmpty else { return nil }
    let told = names.prefix(most).joined(separator: ", ")
    return names.count > most ? "\(what): \(told) and \(names.count - most) more" : "\(what): \(told)"
  }
}
