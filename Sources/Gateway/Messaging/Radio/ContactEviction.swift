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
  private let table: RadioTable
  private let synchronizer: Synchronizer
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  /// The task that makes room; `nil`: there is room, or none can be made.
  private var task: LoopTask?
  private var isFullLogged = false

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
      guard let needed = needed()?.union(guests()) else { return false }
      var leaving = try leaving(settings.minimumAge, limit, needed)
      if leaving.isEmpty, table.isFull {
        leaving = try self.leaving(min(settings.minimumAge, Self.leastAge), limit, needed)
      }
      if !leaving.isEmpty { return await evict(leaving) }
      logThatNobodyMayLeave(most)
    } catch {
      log.info("contact eviction failed: \(error)")
    }
    return false
  }

  private func leaving(
    _ age: Duration, _ limit: Int, _ needed: Set<PublicKey>
  ) throws(StoreError) -> [StoredContact] {
    try store.evictable(
      types: settings.types, age: Int64(age.inSeconds * 1000), elapsed: store.elapsed(at: synchronizer.now),
      limit: limit, except: needed)
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
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in
        for contact in leaving { try store.setEvicted(contact.key, true) }
      }
    } catch {
      log.info("contact eviction failed: \(error)")
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
        "the radio's contacts are nearly full: \(contact.name.string) removed from the radio to make room; written to, it is restored"
      )
    }
    return true
  }

  /// Restores the recipient of a message that is about to be sent.
  func restore(recipient: PublicKey) async {
    // An unreadable store fails the next step, too.
    guard let stored = store.ifReadable({ try store.contact(recipient) }) ?? nil, !stored.onRadio else { return }
    _ = await restore(stored)
  }

  /// Adds a node that the radio has lost, or had no place for. `false`: somebody has to add it by hand, or it cannot be added.
  public func restore(_ stored: StoredContact) async -> Bool {
    // An unreadable store refuses the next step, too.
    guard store.ifReadable({ try store.isEvicted(stored.contact.key) }) == true else { return false }
    if table.isFull { _ = await makeRoom() }
    do throws(Refusal) {
      try await table.putBack(stored.contact)
    } catch {
      log.warning("\(stored.contact.name.string) cannot be restored: \(error)")
      return false
    }
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in
        var contact = stored.contact
        contact.mayCommand = false
        _ = try store.upsert(contact, onRadio: true, heard: false, at: stored.firstSeen)
        try store.setEvicted(stored.contact.key, false)
      }
    } catch {
      // The radio has it, and the next sync updates the store.
      log.warning("cannot record that \(stored.contact.name.string) was restored: \(error)")
    }
    look()
    return true
  }
}
