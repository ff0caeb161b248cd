// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Store
import Sync
import Timing

/// Lets nodes in that the radio does not have. The radio cannot read their messages, and drops them without notice.
///
/// A text on the air names its sender with one byte of its key. If no node in the radio's table can have sent a text for us, or none was read, the
/// nodes with that byte that the store knows are put into the table: the sender repeats its text for half a minute. Those that do not write are taken
/// out again, also after a restart.
public final class Knock {
  /// Nodes that are tried for one text, the last heard first.
  static let mostGuests = 4
  /// Nodes that are let in within an hour for a text whose sender is not among them: somebody else's node may have our
  /// hash. Each one that did write allows one more: then it is our own people who knock.
  static let mostInVain = 4
  /// Nodes that are let in within an hour in all.
  static let mostAdded = 32
  /// Candidates that are looked at.
  private static let mostCandidates = 64
  /// How long the radio needs to say that it has read a text, and to hand it over.
  private static let noticing: Duration = .milliseconds(700)
  private static let reading: Duration = .seconds(5)
  /// How long a node is given to repeat its text.
  static let patience: Duration = .seconds(120)
  /// Texts that were looked at: repeaters repeat them.
  private static let mostSeen = 16
  /// Texts that are looked at, and nodes that are let in, at the same time.
  private static let mostLooks = 16

  private let keeper: ContactEviction
  private var table: RadioTable { keeper.table }
  private var synchronizer: Synchronizer { keeper.synchronizer }
  private var store: Store { keeper.store }
  private var loop: EventLoop { keeper.loop }
  private var log: Log { keeper.log }
  private let tasks: LoopTasks
  private var seen: [[UInt8]] = []
  /// When nodes were let in that have not written, and neither has one that was let in with them.
  private var inVain: [MonotonicTime] = []
  /// Those of earlier runs are among them.
  private var knowsEarlier = false
  /// When nodes that were let in have written.
  private var found: [MonotonicTime] = []
  /// When nodes were let in.
  private var additions: [MonotonicTime] = []
  /// Nodes that were let in and have not written, the last one last: others are tried before them.
  private var silent: [PublicKey] = []
  /// Nodes in the table that have not written yet. They are not evicted meanwhile.
  public private(set) var guests: Set<PublicKey> = []
  private var isTakenUp = false
  /// Nodes that are being added.
  private var entering: Set<PublicKey> = []
  /// When the last message of each node with this first byte was stored.
  private var written: [UInt8: MonotonicTime] = [:]
  private var noticedAt: MonotonicTime?
  private var idleAt: MonotonicTime?
  private let idle = Waiter()
  /// The table has no place for a node that writes.
  public var whenFull: () -> Void = {}
  /// Texts that nobody could read.
  public private(set) var unread = UnreadTexts()
  /// Texts that are waited for, by the first byte of their senders' keys: since when.
  private var awaited: [UInt8: MonotonicTime] = [:]
  private var ending: LoopTimer?
  private var telling: LoopTimer?
  /// Anybody can send texts that name others as their senders.
  private var refusals = Ration.hourly
  /// Texts that could not be read are told.
  public var whenUnread: (UnreadTexts) -> Void = { _ in }

  public init(_ keeper: ContactEviction) {
    self.keeper = keeper
    tasks = LoopTasks(on: keeper.loop)
  }

  /// The radio says something.
  public func heard(_ push: Push) {
    switch push {
    case .messageWaiting: noticedAt = loop.now
    case .logRxData(_, _, let packet): heard(packet)
    default: break
    }
  }

  private func heard(_ bytes: [UInt8]) {
    // `try?`: bytes that are no packet are no text.
    guard let own = synchronizer.connection.identity?.info.key.bytes.first, let packet = try? Packet(decoding: bytes),
      packet.type == .text, case .text(let envelope)? = try? packet.content(), envelope.destination == own,
      envelope.source != own, !seen.contains(envelope.mac + envelope.cipher)
    else { return }
    if seen.count >= Self.mostSeen { seen.removeFirst() }
    seen.append(envelope.mac + envelope.cipher)
    let since = loop.now
    // Somebody sends more than the radio can be asked about: that this one was perhaps not read is told all the same.
    guard tasks.count < Self.mostLooks else {
      // As `look`: those of the radio's contacts are read, and of nodes that nobody knows there is nothing to tell.
      let known = store.ifReadable { try store.nodes(withHash: envelope.source, limit: 1) }
      if let known, !known.hasContact, !known.strangers.isEmpty { wait(from: envelope.source, since) }
      return
    }
    tasks.begin { await self.look(for: envelope.source, since) }
  }

  /// The radio has been read, and has no more messages.
  public func radioIsIdle() {
    guard tasks.count > 0 else { return }
    idleAt = loop.now
    idle.resume()
  }

  /// The radio has handed over a direct message, for the first time or again.
  public func messageCame(from sender: KeyPrefix) {
    if let hash = sender.bytes.first { written[hash] = loop.now }
    silent.removeAll { $0.prefix == sender }
    // What waited in the radio at a start comes before the guests of the earlier run are taken up.
    if !isTakenUp, guests.isEmpty { guests = store.ifReadable { try store.guests() } ?? [] }
    guard let guest = guests.first(where: { $0.prefix == sender }) else { return }
    leave([guest])
    found.append(loop.now)
    let name = (store.ifReadable { try store.contact(guest) })??.contact.name.string ?? guest.prefix.hex
    log.notice("\(name) has written, and stays in the radio's contacts")
  }

  /// The link is up: nodes that were let in before the program ended get their time anew.
  public func linkUp() { _ = takeUp() }

  /// False: the guests of an earlier run are not known, because the store cannot be read. Others would replace them on disk.
  private func takeUp() -> Bool {
    guard !isTakenUp else { return true }
    guard synchronizer.knowsAllContacts, let earlier = store.ifReadable({ try store.guests() }) else { return false }
    isTakenUp = true
    guests = earlier
    if !earlier.isEmpty { tasks.begin { await self.wait(for: earlier) } }
    return true
  }

  /// The link is lost: the guests are on disk, and get their time anew with the next link.
  public func linkLost() {
    tasks.cancel()
    ending?.cancel()
    (isTakenUp, written, noticedAt, idleAt, awaited, ending) = (false, [:], nil, nil, [:], nil)
  }

  /// Another radio is attached: it has a table, guests and an hour of its own.
  public func radioReplaced() {
    linkLost()
    (inVain, knowsEarlier, found, additions, silent, guests) = ([], false, [], [], [], [])
  }

  private func look(for hash: UInt8, _ since: MonotonicTime) async {
    do {
      guard try await keeper.knowsAllContacts(), takeUp() else { return }
      let known = try store.nodes(withHash: hash, limit: Self.mostCandidates)
      guard !known.strangers.isEmpty else { return }
      if known.hasContact, try await isRead(hash, since) { return }
      // Those first that were not tried in vain, and of the others the one that was tried longest ago.
      let order = known.strangers.sorted { place(of: $0) < place(of: $1) }
      let added = await letIn(Array(order.prefix(Self.mostGuests)))
      try await waitForText(from: hash, since, added)
    } catch is CancellationError {
      // The link is lost or the gateway ends: the guests are on disk.
    } catch {
      log.info("a text of an unknown node: \(error)")
    }
  }

  /// Whether the radio could read the text. It says at once that it has something, and hands it over soon after.
  private func isRead(_ hash: UInt8, _ since: MonotonicTime) async throws(CancellationError) -> Bool {
    try await loop.sleep(for: Self.noticing)
    guard noticedAt.map({ $0 >= since }) ?? false else { return false }
    // The hint can be about another message.
    let end = loop.now + Self.reading
    while loop.now < end, idleAt.map({ $0 <= noticedAt ?? since }) ?? true {
      guard !(written[hash].map { $0 >= since } ?? false) else { return true }
      try await idle.wait(until: end, on: loop)
    }
    return written[hash].map { $0 >= since } ?? false
  }

  private func place(of stored: StoredContact) -> Int { silent.firstIndex(of: stored.contact.key).map { $0 + 1 } ?? 0 }

  /// Its sender repeats a text, and each attempt is another packet: all of them are one text.
  private func waitForText(
    from hash: UInt8, _ since: MonotonicTime, _ added: Set<PublicKey>
  ) async throws(CancellationError) {
    wait(from: hash, since)
    guard !added.isEmpty else { return }
    try await loop.sleep(for: Self.patience)
    await takeOut(added)
  }

  private func wait(from hash: UInt8, _ since: MonotonicTime) {
    guard awaited[hash] == nil else { return }
    awaited[hash] = since
    if ending == nil { armEnding() }
  }

  private func armEnding() {
    ending = awaited.values.min().map { since in
      loop.schedule(at: since + Self.patience) { [weak self] in self?.tellUnread() }
    }
  }

  private func tellUnread() {
    let over = awaited.filter { loop.now - $0.value >= Self.patience }
    for hash in over.keys { awaited[hash] = nil }
    wereUnread(over.filter { hash, since in !(written[hash].map { $0 >= since } ?? false) }.keys.sorted())
    armEnding()
  }

  /// Without any: those that were held back are told, if it is time.
  private func wereUnread(_ hashes: [UInt8]) {
    let news = unread.add(hashes, now: loop.now)
    if let at = unread.nextNews {
      telling?.cancel()
      telling = loop.schedule(at: at) { [weak self] in self?.wereUnread([]) }
    }
    guard let news else { return }
    log.warning("\(news) (docs/care.md, \"The contact table\")")
    store.post("texts that could not be read") {
      [moment = synchronizer.now, radio = synchronizer.connection.identity?.info.name.string] store throws(SQLiteError)
      in
      _ = try store.append(
        .radioGap, at: moment, body: EventBody.unread(news.count, senders: news.senders, radio: radio))
    }
    whenUnread(unread)
  }

  private func wait(for added: Set<PublicKey>) async {
    // `try?`: cancelled, they stay guests on disk.
    guard (try? await loop.sleep(for: Self.patience)) != nil else { return }
    await takeOut(added)
  }

  /// Adds the nodes to the radio's table, and returns those that were added.
  private func letIn(_ strangers: [StoredContact]) async -> Set<PublicKey> {
    var added: Set<PublicKey> = []
    // A guest that is a stranger was taken out by another program.
    for stored in strangers where !entering.contains(stored.contact.key) && mayAdd(stored) {
      guard mayTry(beside: guests.subtracting([stored.contact.key]).count) else {
        if refusals.take(at: loop.now) {
          log.info(
            "\(stored.contact.name.string) may have written, and is not added: too many were added in vain within the hour (logged at most once an hour)"
          )
        }
        break
      }
      entering.insert(stored.contact.key)
      defer { entering.remove(stored.contact.key) }
      // On disk first: a guest is taken out whenever this program ends.
      keep(guests.union([stored.contact.key]))
      do throws(Refusal) {
        try await keeper.seat(stored, for: .knock)
        additions.append(loop.now)
        added.insert(stored.contact.key)
        log.notice(
          "a text for this radio came from a node that it does not have, perhaps \(stored.contact.name.string): added to its contacts, to read it when it is repeated"
        )
      } catch {
        // Without an answer the radio may have it: it stays a guest, and is taken out later.
        switch error {
        case .silence, .linkDown: break
        default: leave([stored.contact.key])
        }
        if table.isFull { whenFull() }
        log.info(
          "\(stored.contact.name.string) may have written, and cannot be added to the radio's contacts: \(error)")
        break
      }
    }
    return added
  }

  /// A restart does not allow more: each addition is written to the radio's flash. Returns whether those of earlier runs
  /// are known; while the store cannot be read, they are not.
  private func recallEarlier() -> Bool {
    guard !knowsEarlier else { return true }
    guard let earlier = store.ifReadable({ try store.guestsInVain() }) else { return false }
    knowsEarlier = true
    let (now, elapsed) = (loop.now, store.elapsed(at: synchronizer.now))
    for at in earlier {
      let age = elapsed > at ? min(elapsed - max(0, at), 3_600_000) : 0
      inVain.append(MonotonicTime(nanoseconds: now.nanoseconds - age * 1_000_000))
    }
    return true
  }

  private func wasInVain() {
    let knowsAll = recallEarlier()
    inVain.append(loop.now)
    // Those on disk are not replaced by fewer; the next one is written with this one.
    guard knowsAll else { return }
    let (now, elapsed) = (loop.now, store.elapsed(at: synchronizer.now))
    let times = inVain.map { elapsed - (now - $0).wholeNanoseconds / 1_000_000 }
    store.post("nodes that were let in in vain") { store throws(SQLiteError) in try store.keepGuestsInVain(times) }
  }

  private func mayTry(beside guests: Int) -> Bool {
    guard recallEarlier() else { return false }
    for times in [\Knock.inVain, \.found, \.additions] as [ReferenceWritableKeyPath<Knock, [MonotonicTime]>] {
      self[keyPath: times].removeAll { loop.now - $0 >= .seconds(3600) }
    }
    return inVain.count + guests < Self.mostInVain + found.count && additions.count < Self.mostAdded
  }

  /// A radio that adds nodes only by hand gets back only those that were evicted.
  private func mayAdd(_ stored: StoredContact) -> Bool {
    if synchronizer.connection.identity?.info.manualAddContacts == 0 { return true }
    return store.ifReadable { try store.isEvicted(stored.contact.key) } ?? false
  }

  /// Removes those that have not written.
  private func takeOut(_ added: Set<PublicKey>) async {
    let isFound = added.contains { !guests.contains($0) }
    for key in added where guests.contains(key) {
      do throws(Refusal) { try await table.remove(key) } catch {
        log.info("\(key.prefix.hex) was let in to write, and cannot be removed from the radio's contacts: \(error)")
        // It stays a guest on disk, for the next link.
        if error == .linkDown || synchronizer.connection.state != .up { return }
      }
      if !isFound { wasInVain() }
      silent.removeAll { $0 == key }
      if silent.count >= Self.mostCandidates { silent.removeFirst() }
      silent.append(key)
      leave([key])
    }
  }

  private func leave(_ keys: Set<PublicKey>) { keep(guests.subtracting(keys)) }

  private func keep(_ guests: Set<PublicKey>) {
    self.guests = guests
    store.post("nodes that were let in") { store throws(SQLiteError) in try store.keepGuests(guests) }
  }
}
