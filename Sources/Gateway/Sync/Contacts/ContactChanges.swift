// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Changes of contacts that the radio has confirmed. The firmware writes its contacts to the flash five seconds after the last change, so a power cut
/// undoes what came shortly before it. Pure.
struct ContactChanges {
  /// What the radio has to have.
  enum Wish: Equatable {
    case has(Contact), isGone
    /// No path.
    case floods
  }

  struct Entry: Equatable {
    var wish: Wish
    /// When the radio confirmed it; `nil`: before this machine was started.
    var at: MonotonicTime?
    /// The radio has learned a path since.
    var hasNewerPath = false
    /// The store has this change, or one before it.
    var isStored = false
    /// Of an earlier run: nobody has watched the radio meanwhile.
    var isOfEarlierRun = false

    /// Whether the radio, which started then at the latest, has been running since the change. It has the change then, and what is different now,
    /// somebody else has changed. One of another boot counts if the radio ran on while this machine was off. `nil`: nobody knows its start.
    func isNewer(than start: MonotonicTime?) -> Bool {
      start.map { (at ?? ContactChanges.beforeBoot) > $0 } ?? false
    }
  }

  /// A change that is this old is on the radio's flash: each further change puts the write off.
  static let lasting: Duration = .seconds(60)
  /// Behind a line that stays open a restart is noticed only after five minutes.
  private static let kept: Duration = .seconds(400)
  private static let most = 1024
  /// After a longer absence of the radio a change counts no more: others may have changed its contacts.
  private static let longestAbsence: Duration = .seconds(86_400)
  /// A radio that was started before this, ten minutes before this machine, did not get its power together with it.
  private static let beforeBoot = MonotonicTime(seconds: -600)
  /// This machine's start.
  private static let boot = MonotonicTime(seconds: 0)
  /// So often within an hour changes are put back: a radio that starts over and over must not wear out its flash.
  private static let (mostRounds, roundsWithin): (Int, Duration) = (12, .seconds(3600))

  /// The radio that has confirmed them.
  private(set) var radio: PublicKey?
  private var recent: [PublicKey: Entry] = [:]
  /// Changes that the radio may have lost: they are compared with the next complete contact list.
  private(set) var doubtful: [PublicKey: Entry] = [:]
  private var rounds: [MonotonicTime] = []

  /// Another radio is attached, or the first one. `kept`: the changes of an earlier run.
  mutating func attached(to radio: PublicKey, kept: [(command: Command, at: MonotonicTime?)]) {
    (self.radio, recent, doubtful, rounds) = (radio, [:], [:], [])
    for (command, at) in kept {
      guard let (key, wish) = Self.wish(of: command) else { continue }
      doubtful[key] = Entry(wish: wish, at: at, isStored: true, isOfEarlierRun: true)
    }
  }

  /// The contact that a command changes, and what the radio has then.
  static func wish(of command: Command) -> (key: PublicKey, wish: Wish)? {
    switch command {
    case .addUpdateContact(let contact): (contact.key, .has(contact))
    case .removeContact(let key): (key, .isGone)
    case .resetPath(let key): (key, .floods)
    default: nil
    }
  }

  /// Whether there is a change of the contact that may not be on the radio's flash.
  func isOpen(_ key: PublicKey) -> Bool { recent[key] != nil || doubtful[key] != nil }

  /// Whether a change of the contact that may not be on the radio's flash shows whether the radio has to have it.
  func decidesPlace(of key: PublicKey) -> Bool { (recent[key] ?? doubtful[key]).map { $0.wish != .floods } ?? false }

  /// Whether the contact's last change is that it was removed.
  func isRemoved(_ key: PublicKey) -> Bool { (recent[key] ?? doubtful[key])?.wish == .isGone }

  /// Whether the store has a change of the contact.
  func isStored(_ key: PublicKey) -> Bool { (recent[key] ?? doubtful[key])?.isStored ?? false }

  /// The store has the contact's last change, or no longer has one.
  mutating func stores(_ key: PublicKey, _ isStored: Bool) { recent[key]?.isStored = isStored }

  /// The radio has confirmed the command: what came before about this contact counts no more.
  mutating func confirmed(_ command: Command, at now: MonotonicTime) {
    guard let (key, wish) = Self.wish(of: command) else { return }
    recent = recent.filter { $0.value.at.map { now - $0 <= Self.kept } ?? false }
    if wish == .floods {
      if case .has(var contact)? = doubtful[key]?.wish {
        // The rest of the record is still to be compared.
        contact.outPath = nil
        doubtful[key]?.wish = .has(contact)
        return
      }
      if case .has(var contact)? = recent[key]?.wish {
        contact.outPath = nil
        recent[key] = Entry(wish: .has(contact), at: now, isStored: isStored(key))
        return
      }
    }
    let isStored = isStored(key)
    doubtful[key] = nil
    if recent[key] == nil, recent.count >= Self.most { return }
    recent[key] = Entry(wish: wish, at: now, isStored: isStored)
  }

  /// The radio has learned a path: it counts more than one that was set before.
  mutating func pathCame(to key: PublicKey) {
    recent[key]?.hasNewerPath = true
    doubtful[key]?.hasNewerPath = true
  }

  /// The change is on the radio, or cannot be put back.
  mutating func settled(_ key: PublicKey) { (recent[key], doubtful[key]) = (nil, nil) }

  /// Whether this is the contact's last change, and no end of the link came after it.
  func isLast(_ key: PublicKey, at time: MonotonicTime) -> Bool { recent[key]?.at == time }

  /// The link was lost: the radio may have been switched off.
  mutating func lost(at end: MonotonicTime) {
    for (key, entry) in recent {
      if let at = entry.at, end - at <= Self.lasting { doubtful[key] = entry }
    }
    recent = [:]
  }

  /// The radio was restarted behind a line that stayed open. `start`: the latest possible one.
  mutating func restarted(at start: MonotonicTime) {
    for (key, entry) in recent {
      guard let at = entry.at, at <= start else { continue }
      if start - at <= Self.lasting { doubtful[key] = entry }
      recent[key] = nil
    }
  }

  /// Doubtful changes that count no more.
  func outdated(at now: MonotonicTime) -> [PublicKey] {
    doubtful.filter { $0.value.at.map { at in now - at > Self.longestAbsence } ?? false }.map(\.key)
  }

  /// Doubtful changes of an earlier run that the radio, started then at the latest, most likely had on its flash when it was switched off: what is
  /// different now, somebody has changed while no gateway was there.
  func written(before start: MonotonicTime) -> [PublicKey] {
    doubtful.filter { $0.value.isOfEarlierRun && start - ($0.value.at ?? Self.boot) > Self.lasting }.map(\.key)
  }

  /// Whether only a whole list shows what became of the doubtful changes: a list of changes lacks who was removed. `start`: the radio's last one.
  func needWholeList(since start: MonotonicTime?) -> Bool {
    doubtful.values.contains { $0.wish != .floods || !$0.isNewer(than: start) }
  }

  /// The radio has been running since the change, and has it. Returns when it was confirmed: until it is on the flash, the radio may lose it.
  mutating func remains(_ key: PublicKey) -> MonotonicTime? {
    guard var entry = doubtful[key] else { return nil }
    let at = entry.at ?? Self.beforeBoot
    (entry.at, entry.isOfEarlierRun) = (at, false)
    (recent[key], doubtful[key]) = (entry, nil)
    return at
  }

  /// Whether changes may be put back now; counts them if so.
  mutating func mayPutBack(at now: MonotonicTime) -> Bool {
    rounds.removeAll { now - $0 >= Self.roundsWithin }
    guard rounds.count < Self.mostRounds else { return false }
    rounds.append(now)
    return true
  }

  /// Doubtful changes, the oldest first.
  var inOrder: [PublicKey] {
    doubtful.sorted { left, right in
      let start = MonotonicTime(nanoseconds: .min)
      let (one, other) = (left.value.at ?? start, right.value.at ?? start)
      return one == other ? left.key.hex < right.key.hex : one < other
    }.map(\.key)
  }
}

extension ContactChanges.Entry {
  /// The right to run commands is not given back: somebody may have taken it away meanwhile, by another way.
  func lacksRight(_ present: Contact?) -> Bool {
    if case .has(let contact) = wish { contact.mayCommand && present?.mayCommand != true } else { false }
  }

  /// The command that puts the change back; `nil`: the radio has it. `present`: the record in the radio, if it has one.
  func command(of key: PublicKey, _ present: Contact?) -> Command? {
    switch wish {
    case .isGone: return present == nil ? nil : .removeContact(key)
    case .floods: return present?.outPath == nil || hasNewerPath ? nil : .resetPath(key)
    case .has(let contact):
      // The firmware keeps contacts without a type in its RAM only.
      guard contact.type != NodeType.none else { return nil }
      var whole = present ?? contact
      whole.flags = contact.flags
      if lacksRight(present) { whole.mayCommand = false }
      if !hasNewerPath || present?.outPath == nil { whole.outPath = contact.outPath }
      // An advert that came since is newer than the rest.
      if let present, contact.lastAdvert >= present.lastAdvert {
        whole.type = contact.type
        // The firmware keeps 31 bytes.
        if contact.name.bytes.prefix(31) != present.name.bytes.prefix(31) { whole.name = contact.name }
        if let latitude = contact.latitude, let longitude = contact.longitude {
          (whole.latitude, whole.longitude) = (latitude, longitude)
        }
      }
      guard whole != present else { return nil }
      whole.lastAdvert = max(whole.lastAdvert, contact.lastAdvert)
      return .addUpdateContact(whole)
    }
  }
}
