// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Store
import Sync
import Timing

/// Keeps room in the radio's contact table: it evicts the node that was heard longest ago, keeps it in the store, and restores it for a message or
/// question to it. It never evicts favourites and nodes that this gateway needs.
public final class ContactEviction {
  public struct Settings: Equatable, Sendable {
    /// Whether contacts are removed from a full radio.
    public var evicts = true
    /// Places that are kept free.
    public var keepFree = 10
    public var minimumAge: Duration = .seconds(2 * 86_400)
    public var types: Set<UInt8> = [
      NodeType.chat.rawValue, NodeType.repeater.rawValue, NodeType.room.rawValue, NodeType.sensor.rawValue,
    ]

    public init() {}
  }

  /// The pause before a check, so that a burst of new contacts causes a single check.
  private static let pause: Duration = .seconds(5)
  /// Contacts that are removed at once; more follow after a pause.
  private static let step = 10
  /// The minimum age if the table is full and no node is old enough: a node outside of the table cannot write to us.
  private static let leastAge: Duration = .seconds(3600)

  public var settings: Settings { didSet { if settings != oldValue { look() } } }
  /// Nodes that the gateway polls, watches or logs in to. `nil`: they are unknown, and no node is evicted.
  public var needed: () -> Set<PublicKey>? = { [] }
  /// Nodes that were let in because they may be writing just now.
  public var guests: () -> Set<PublicKey> = { [] }
  /// Recipients of messages, and nodes that are asked something.
  var recipients: () -> (waiting: Set<PublicKey>, underWay: Set<PublicKey>) = { ([], []) }
  let table: RadioTable
  let synchronizer: Synchronizer
  let store: Store
  let loop: EventLoop
  let log: Log
  /// The task that makes room; `nil`: there is room, or none can be made.
  private var task: LoopTask?
  private var isFullLogged = false
  private var turns = PlaceTurns()

  public init(
    _ settings: Settings, _ table: RadioTable, _ synchronizer: Synchronizer, store: Store, on loop: EventLoop, log: Log
  ) {
    self.settings = settings
    self.table = table
    self.synchronizer = synchronizer
    self.store = store
    self.loop = loop
    self.log = log
  }

  /// Makes room if the table has become too full.
  public func look() {
    guard settings.evicts, task == nil else { return }
    task = loop.begin { [weak self, loop] in
      // `try?`: cancelled, the gateway ends.
      repeat {
        guard (try? await loop.sleep(for: Self.pause)) != nil else { return }
      } while await self?.makeRoom() ?? false
      self?.task = nil
    }
  }

  /// True: nodes were evicted, and more may have to be.
  private func makeRoom() async -> Bool {
    guard settings.evicts, synchronizer.knowsAllContacts,
      let most = synchronizer.connection.identity?.device?.maxContacts, most > settings.keepFree
    else { return false }
    do throws(StoreError) {
      // The places that are kept free are there for guests, too.
      let count = Int(try store.contactCount(onRadio: true)) - guests().count
      guard count > most - settings.keepFree else {
        isFullLogged = false
        return false
      }
      let limit = min(count - (most - settings.keepFree), Self.step)
      guard let staying = staying?.usual else { return false }
      var leaving = try leaving(settings.minimumAge, limit, staying)
      if leaving.isEmpty, table.isFull {
        leaving = try self.leaving(min(settings.minimumAge, Self.leastAge), limit, staying)
      }
      if !leaving.isEmpty { return await evict(leaving) }
      logThatNobodyMayLeave(most)
    } catch {
      log.info("contact eviction failed: \(error)")
    }
    return false
  }

  /// `nil`: nobody may leave, since it is not known who is needed.
  private var staying: Staying? {
    guard let needed = needed() else { return nil }
    let recipients = recipients()
    return Staying(
      needed: needed.union(guests()), addressed: recipients.waiting, underWay: recipients.underWay,
      seated: turns.seated(now: loop.now))
  }

  private func leaving(
    _ age: Duration, _ limit: Int, _ staying: Set<PublicKey>
  ) throws(StoreError) -> [StoredContact] {
    try store.evictable(
      types: settings.types, age: Int64(age.inSeconds * 1000), elapsed: store.elapsed(at: synchronizer.now),
      limit: limit, except: staying)
  }

  /// Who may leave for a node that needs a place, in the order of leaving, whenever they were heard.
  private func orderOfLeaving(limit: Int = .max, except kept: Set<PublicKey> = []) throws(StoreError) -> [PublicKey] {
    try store.orderOfLeaving(types: settings.types, age: 0, elapsed: .max, limit: limit, except: kept)
  }

  private func logThatNobodyMayLeave(_ most: Int) {
    guard !isFullLogged else { return }
    isFullLogged = true
    log.warning(
      "fewer than \(settings.keepFree) of the radio's \(most) contacts are free, and none can be evicted: all are favourites, of types that are kept, "
        + "polled, watched, logged in to, talked to, or heard in the last \(Int(settings.minimumAge.inSeconds / 86_400)) days ([contacts])"
    )
  }

  /// Writes the evictions to disk first: so a message always restores a node that is gone from the radio, whenever this program ends.
  private func evict(_ leaving: [StoredContact]) async -> Bool {
    let leaving = leaving.map(\.contact)
    let commit = store.write { store throws(SQLiteError) in
      for contact in leaving { try store.setEvicted(contact.key, true) }
    }
    if let failure = await commit.failure() {
      log.info("contact eviction failed: \(failure)")
      return false
    }
    for (place, contact) in leaving.enumerated() {
      do throws(Refusal) {
        try await table.remove(contact.key)
      } catch {
        log.info("\(contact.name.string) could not be evicted: \(error)")
        // The radio may have removed this one; it still has the others.
        let staying = leaving[(place + 1)...]
        store.post("who was not evicted") { store throws(SQLiteError) in
          for contact in staying { try store.setEvicted(contact.key, false) }
        }
        return false
      }
      log.notice(
        "the radio's contacts are full, or nearly: \(contact.name.string) removed from the radio to make room; when it is written to, or writes, it is restored"
      )
    }
    return true
  }

  // MARK: A place for a node

  /// Why no message can be sent to the node; `nil`: the radio has it, or can have it when its turn comes.
  func refusal(of stored: StoredContact) throws(Refusal) -> Refusal? {
    guard !stored.onRadio else { return nil }
    let name = stored.contact.name.string
    return try Refusal.translating { () throws(StoreError) in
      guard try store.isEvicted(stored.contact.key) else { return .notOnRadio(name) }
      guard table.isFull else { return nil }
      return try mayAnybodyLeave() ? nil : .noPlace(name)
    }
  }

  /// Nobody does if all are favourites, needed, or of types that are kept. Guests do not stay for long.
  private func mayAnybodyLeave() throws(StoreError) -> Bool {
    guard settings.evicts else { return false }
    guard let needed = needed() else { return true }
    return try !orderOfLeaving(limit: 1, except: needed).isEmpty
  }

  /// Restores the recipient of a message that is about to be sent, whoever has removed it: the message was accepted.
  /// `false`: it has no place yet, or whether the radio has it must be read first. `isDoubted`: the radio said that it
  /// does not have it.
  func restore(recipient: PublicKey, isDoubted: Bool) async -> Bool {
    // An unreadable store fails the next step, too.
    guard let stored = store.ifReadable({ try store.contact(recipient) }) ?? nil else { return true }
    guard !stored.onRadio else { return !isDoubted || synchronizer.knowsAllContacts }
    guard synchronizer.knowsAllContacts || store.ifReadable({ try store.isEvicted(recipient) }) == true else {
      return false
    }
    do throws(Refusal) { try await putBack(stored) } catch {
      log.info("a message waits, because \(stored.contact.name.string) cannot be restored: \(error)")
      return false
    }
    return true
  }

  /// Adds a node that the radio has lost, or had no place for; others somebody has to add by hand.
  public func restore(_ stored: StoredContact) async throws(Refusal) {
    if let refusal = try refusal(of: stored) { throw refusal }
    guard !stored.onRadio else { return }
    try await putBack(stored)
  }

  private func putBack(_ stored: StoredContact) async throws(Refusal) {
    try await seat(stored, for: .ours)
    let commit = store.write { store throws(SQLiteError) in try store.setEvicted(stored.contact.key, false) }
    if let failure = await commit.failure() {
      // The radio has it, and the next sync updates the store.
      log.warning("cannot record that \(stored.contact.name.string) was restored: \(failure)")
    }
    look()
  }

  /// Puts a node into the table, in the place of another one if it is full.
  func seat(_ stored: StoredContact, for reason: PlaceTurns.Reason) async throws(Refusal) {
    try await makePlace(for: stored, reason)
    do throws(Refusal) {
      try await table.putBack(stored.contact)
    } catch {
      // Another node took the place meanwhile, or the radio has fewer places than it says.
      guard table.isFull else { throw error }
      try await makePlace(for: stored, reason)
      try await table.putBack(stored.contact)
    }
    turns.tookPlace(stored.contact.key, now: loop.now)
    store.post("a contact that was put back") { store throws(SQLiteError) in
      var contact = stored.contact
      contact.mayCommand = false
      _ = try store.upsert(contact, onRadio: true, heard: false, at: stored.firstSeen)
    }
  }

  /// Whether the store has all of the radio's contacts: after a change, the record is fetched within moments.
  func knowsAllContacts() async throws(CancellationError) -> Bool {
    for _ in 0..<10 where !synchronizer.knowsAllContacts { try await loop.sleep(for: .milliseconds(500)) }
    return synchronizer.knowsAllContacts
  }

  /// Makes a place in a full table: by the usual rules, otherwise the one leaves who is least likely to be missed.
  private func makePlace(for stored: StoredContact, _ reason: PlaceTurns.Reason) async throws(Refusal) {
    guard table.isFull else { return }
    // `try?`: cancelled, there is no place.
    guard (try? await knowsAllContacts()) == true else { throw .full("the radio's contacts are being read; try later") }
    _ = await makeRoom()
    guard table.isFull else { return }
    let name = stored.contact.name.string
    guard try Refusal.translating({ () throws(StoreError) in try mayAnybodyLeave() }) else { throw .noPlace(name) }
    let leaving = try Refusal.translating { () throws(StoreError) -> StoredContact? in
      guard let key = try staying?.whoLeaves(of: orderOfLeaving()) else { return nil }
      return try store.contact(key)
    }
    guard let leaving, turns.mayChange(for: reason, now: loop.now) else {
      throw .full(
        leaving == nil
          ? "the radio's contact table is full, and nobody can leave it for \(name) at the moment; try later"
          : "the radio's contact table is full, and its places have changed hands as often as they may within an hour; try later"
      )
    }
    turns.changed(for: reason, now: loop.now)
    guard await evict([leaving]) else {
      throw .radio("\(leaving.contact.name.string) could not be evicted for \(name)")
    }
  }
}
