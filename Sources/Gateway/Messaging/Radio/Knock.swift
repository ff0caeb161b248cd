// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Store
import Sync
import Timing

/// Lets nodes in that the radio does not have. The radio cannot read their messages, and drops them without notice.
///
/// A text on the air names its sender with one byte of its key. If no node in the radio's table can have sent a text for us, or none was read, the
/// nodes with that byte that the store knows are put into the table: the sender repeats its text for half a minute. Those that do not write are taken
/// out again.
public final class Knock {
  /// Nodes that are tried for one text, the last heard first.
  static let mostGuests = 4
  /// Nodes that are added within an hour: somebody else's node may have our hash.
  static let mostAdded = 4
  /// How long the radio needs to hand over a text that it could read.
  private static let reading: Duration = .seconds(5)
  /// How long a node is given to repeat its text.
  static let patience: Duration = .seconds(120)
  /// Texts that were looked at: repeaters repeat them.
  private static let mostSeen = 16

  private let table: RadioTable
  private let synchronizer: Synchronizer
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let tasks: LoopTasks
  private var seen: [[UInt8]] = []
  private var added: [MonotonicTime] = []
  /// Nodes in the table that have not written yet. They are not evicted meanwhile.
  public private(set) var guests: Set<PublicKey> = []
  /// When the last message of each node with this first byte was stored, while somebody waits for it.
  private var written: [UInt8: MonotonicTime] = [:]

  public init(_ table: RadioTable, _ synchronizer: Synchronizer, store: Store, on loop: EventLoop, log: Log) {
    self.table = table
    self.synchronizer = synchronizer
    self.store = store
    self.loop = loop
    self.log = log
    tasks = LoopTasks(on: loop)
  }

  /// A packet was received.
  public func heard(_ bytes: [UInt8]) {
    // `try?`: bytes that are no packet are no text.
    guard let own = synchronizer.connection.identity?.info.key.bytes.first, let packet = try? Packet(decoding: bytes),
      packet.type == .text, case .text(let envelope)? = try? packet.content(), envelope.destination == own,
      envelope.source != own, synchronizer.knowsAllContacts, !seen.contains(envelope.mac + envelope.cipher)
    else { return }
    if seen.count >= Self.mostSeen { seen.removeFirst() }
    seen.append(envelope.mac + envelope.cipher)
    let since = loop.now
    guard tasks.count < Self.mostSeen else { return }
    tasks.begin { await self.look(for: envelope.source, since) }
  }

  /// A direct message was stored.
  public func messageCame(from sender: KeyPrefix) {
    if let hash = sender.bytes.first { written[hash] = loop.now }
    guard let guest = guests.first(where: { $0.prefix == sender }) else { return }
    guests.remove(guest)
    log.notice("a node that the radio did not have has written to it, and stays in its contacts: \(guest.prefix.hex)")
  }

  /// The link is lost, or another radio is attached.
  public func linkLost() {
    tasks.cancel()
    guests = []
    written = [:]
  }

  private func look(for hash: UInt8, _ since: MonotonicTime) async {
    do {
      let known = try store.nodes(withHash: hash, limit: Self.mostGuests)
      guard !known.strangers.isEmpty else { return }
      if known.hasContact {
        // The radio may have read it.
        try await loop.sleep(for: Self.reading)
        guard written[hash].map({ $0 < since }) ?? true else { return }
      }
      let names = await letIn(known.strangers)
      guard !names.isEmpty else { return }
      try await loop.sleep(for: Self.patience)
      await takeOut(known.strangers)
    } catch is CancellationError {
      // The gateway ends: the nodes stay in the table, like any other.
    } catch {
      log.info("a text of an unknown node: \(error)")
    }
  }

  /// Adds the nodes to the radio's table, and returns their names.
  private func letIn(_ strangers: [StoredContact]) async -> [String] {
    var names: [String] = []
    for stored in strangers where !guests.contains(stored.contact.key) {
      added.removeAll { loop.now - $0 >= .seconds(3600) }
      guard added.count < Self.mostAdded, mayAdd(stored) else { continue }
      added.append(loop.now)
      guests.insert(stored.contact.key)
      do throws(Refusal) {
        try await table.add(stored.contact)
        names.append(stored.contact.name.string)
      } catch {
        guests.remove(stored.contact.key)
        log.info(
          "\(stored.contact.name.string) may have written, and cannot be added to the radio's contacts: \(error)")
      }
    }
    if !names.isEmpty {
      log.notice(
        "a text for this radio came from a node that it does not have: \(names.joined(separator: ", ")) added to its contacts, to read it when it is repeated"
      )
    }
    return names
  }

  /// A radio that adds nodes only by hand gets back only those that were evicted.
  private func mayAdd(_ stored: StoredContact) -> Bool {
    if synchronizer.connection.identity?.info.manualAddContacts == 0 { return true }
    return store.ifReadable { try store.isEvicted(stored.contact.key) } ?? false
  }

  /// Removes those that have not written.
  private func takeOut(_ strangers: [StoredContact]) async {
    for stored in strangers where guests.contains(stored.contact.key) {
      guests.remove(stored.contact.key)
      do throws(Refusal) {
        try await table.remove(stored.contact.key)
      } catch {
        log.info("\(stored.contact.name.string) did not write, and stays in the radio's contacts: \(error)")
      }
    }
  }
}
