// SPDX-License-Identifier: MIT

import Companion
import Store
import Timing

/// Recognises the copies of messages among the packets that the radio hears. Pure.
///
/// Copies of a message have the same payload, so they are grouped by it. A channel's payload follows from the message,
/// which is sealed again and compared. A direct message is sealed with a key that the gateway does not have: of the
/// groups whose ends, size, way and signal fit, the first is taken that the radio has read.
struct PacketCopies {
  /// The greatest number of payloads, and how long one is remembered after its last copy.
  static let (most, memory): (Int, Duration) = (64, .seconds(120))
  /// Later copies of a message are recognised by their payload's hash: so many messages, and for how long.
  static let (mostForgotten, longMemory): (Int, Duration) = (256, .seconds(3600))
  /// After this time without a copy, the copies are told; the number of those that are not kept is written later.
  static let (quiet, missPause): (Duration, Duration) = (.seconds(6), .seconds(60))
  /// A greater number of copies that are not kept is not counted.
  static let mostMissed = 255
  /// How long copies of a direct message are expected after it was sent.
  static let echo: Duration = .seconds(30)

  private enum Owner: Equatable {
    /// A message that is not on disk yet.
    case taken
    case message(MessageNumber)
  }

  private struct Group {
    let serial: Int
    let type: PayloadType
    let payload: [UInt8]
    var owner: Owner?
    var isGuess = false
    var copies: [HeardCopy] = []
    /// Copies on disk, or on their way to it.
    var kept = 0
    /// Copies on disk that are not in `copies`: the payload was forgotten meanwhile.
    var earlier = 0
    /// Copies for which there was no room, and those of them on disk, or on their way to it.
    var missed = 0
    var missedTaken = 0
    var last: MonotonicTime
    /// The radio said that it has a message, right after it told this packet: it has read it.
    var isRead = false
    /// When its copies are told; `nil`: they were, or it has no message.
    var due: MonotonicTime?
  }

  /// A message whose payload is not in memory any more.
  private struct Forgotten {
    let hash: Int
    let message: MessageNumber
    let isGuess: Bool
    let kept: Int
    let missed: Int
    let until: MonotonicTime
  }

  /// A direct message of ours, of which copies may come.
  private struct Sent {
    let id: Int64
    let recipient: UInt8
    let bytes: Int
    let until: MonotonicTime
  }

  /// Copies to be kept and told.
  struct Due: Equatable {
    let serial: Int
    let message: MessageNumber
    let copies: [HeardCopy]
    /// Further ones, for which there was no room.
    let more: Int
  }

  private var groups: [Group] = []
  /// The oldest first.
  private var forgotten: [Forgotten] = []
  private var sent: [Sent] = []
  private var serials = 0
  /// The payload of the packet that the radio told last; `nil`: another kind of packet.
  private var newest: Int?

  init() {}

  /// Begins anew, with other numbers: a message that waits for the disk has one of before.
  init(after other: PacketCopies) { serials = other.serials }

  var isEmpty: Bool { groups.isEmpty }
  var due: MonotonicTime? { groups.lazy.compactMap(\.due).min() }

  // MARK: Packets

  /// `own`: the hash of our radio's key.
  mutating func heard(_ packet: Packet, _ copy: HeardCopy, own: UInt8?, now: MonotonicTime) {
    newest = nil
    for group in groups where Self.isPast(group, now) { forget(group, now) }
    groups.removeAll { Self.isPast($0, now) }
    let known = groups.firstIndex { $0.type == packet.type && $0.payload == packet.payload }
    if let place = known ?? remember(packet, now) {
      newest = groups[place].serial
      return add(copy, to: place, now)
    }
    let owner: Owner?
    switch packet.type {
    case .groupText, .groupData: owner = nil
    case .text:
      guard let own, packet.payload.count > Self.sealedAt else { return }
      if packet.payload[0] == own {
        owner = nil
      } else {
        guard packet.payload[1] == own, let id = sentMessage(packet.payload, now) else { return }
        owner = .message(.sent(id))
      }
    default: return
    }
    guard let place = begin(packet.type, packet.payload, owner, now) else { return }
    groups[place].isGuess = owner != nil
    newest = groups[place].serial
    add(copy, to: place, now)
  }

  mutating func heardOther() { newest = nil }

  private static func isPast(_ group: Group, _ now: MonotonicTime) -> Bool {
    group.owner != .taken && group.due == nil && now - group.last > memory
  }

  private mutating func forget(_ group: Group, _ now: MonotonicTime) {
    guard case .message(let message) = group.owner else { return }
    if forgotten.count >= Self.mostForgotten { forgotten.removeFirst() }
    forgotten.append(
      Forgotten(
        hash: Self.hash(group.type, group.payload), message: message, isGuess: group.isGuess,
        kept: group.earlier + group.copies.count, missed: group.missed, until: group.last + Self.longMemory))
  }

  /// A late copy of a message. Returns its place; `nil`: it is of no message, or there is no room.
  private mutating func remember(_ packet: Packet, _ now: MonotonicTime) -> Int? {
    guard !forgotten.isEmpty else { return nil }
    let hash = Self.hash(packet.type, packet.payload)
    guard let known = forgotten.lastIndex(where: { $0.hash == hash && $0.until > now }),
      let place = begin(packet.type, packet.payload, .message(forgotten[known].message), now)
    else { return nil }
    // `begin` may have forgotten another message, and so the first one.
    guard let known = forgotten.lastIndex(where: { $0.hash == hash }) else { return place }
    let message = forgotten.remove(at: known)
    (groups[place].isGuess, groups[place].earlier) = (message.isGuess, message.kept)
    (groups[place].missed, groups[place].missedTaken) = (message.missed, message.missed)
    return place
  }

  /// The hash has a random key in each run: nobody can make a payload with the hash of another.
  private static func hash(_ type: PayloadType, _ payload: [UInt8]) -> Int {
    var hasher = Hasher()
    hasher.combine(type)
    hasher.combine(payload)
    return hasher.finalize()
  }

  /// The radio says that it has a message: it has read the packet that it told just before.
  mutating func wasRead() {
    guard let place = groups.firstIndex(where: { $0.serial == newest }) else { return }
    groups[place].isRead = true
  }

  /// Two hashes and the MAC come before the sealed text.
  private static let sealedAt = 4

  private mutating func add(_ copy: HeardCopy, to place: Int, _ now: MonotonicTime) {
    if case .message(.sent) = groups[place].owner, copy.route.isFlood, copy.length.hops == 0 {
      return  // Our own transmission is not heard: somebody plays it back.
    }
    groups[place].last = now
    guard groups[place].earlier + groups[place].copies.count < HeardCopy.most else { return miss(place, now) }
    groups[place].copies.append(copy)
    groups[place].copies[groups[place].copies.count - 1].isGuess = groups[place].isGuess
    if case .message = groups[place].owner { groups[place].due = now + Self.quiet }
  }

  /// Counts a copy for which there is no room. Somebody may play one back for ever: that costs no more writes than this.
  private mutating func miss(_ place: Int, _ now: MonotonicTime) {
    guard groups[place].missed < Self.mostMissed else { return }
    groups[place].missed += 1
    if case .message = groups[place].owner, groups[place].due == nil { groups[place].due = now + Self.missPause }
  }

  /// Returns the place; `nil`: there is no room.
  private mutating func begin(
    _ type: PayloadType, _ payload: [UInt8], _ owner: Owner?, _ now: MonotonicTime
  ) -> Int? {
    if groups.count >= Self.most {
      // At the bound, the oldest is forgotten whose copies nobody waits for; then one of which copies are only counted.
      guard
        let place = groups.firstIndex(where: { $0.owner != .taken && $0.due == nil })
          ?? groups.firstIndex(where: { $0.owner != .taken && $0.kept == $0.copies.count })
      else { return nil }
      forget(groups.remove(at: place), now)
    }
    serials += 1
    groups.append(Group(serial: serials, type: type, payload: payload, owner: owner, last: now))
    return groups.count - 1
  }

  // MARK: Received messages

  /// A message of this payload is being stored. Returns the group's number; `nil`: it has a message already.
  mutating func claim(_ type: PayloadType, _ payload: [UInt8], now: MonotonicTime) -> Int? {
    let known = groups.firstIndex { $0.type == type && $0.payload == payload }
    guard let place = known ?? begin(type, payload, nil, now), groups[place].owner == nil else { return nil }
    groups[place].owner = .taken
    return groups[place].serial
  }

  /// As above, for a direct message.
  mutating func claim(_ message: ContactMessage, own: UInt8) -> Int? {
    let text = message.text.bytes.count + (message.author?.count ?? 0)
    let fitting = groups.indices.filter { place in
      let group = groups[place]
      return group.type == .text && group.owner == nil && group.payload[0] == own
        && group.payload[1] == message.sender.bytes[0] && Self.fits(group.payload, text)
        && group.copies.contains { Self.isTaken($0, message) }
    }
    // Messages come in their order. A packet for another node with the same hash is never read.
    guard let place = fitting.first(where: { groups[$0].isRead }) ?? fitting.last else { return nil }
    (groups[place].owner, groups[place].isGuess) = (.taken, true)
    for copy in groups[place].copies.indices { groups[place].copies[copy].isGuess = true }
    return groups[place].serial
  }

  /// Whether the radio may have taken the message from this copy.
  private static func isTaken(_ copy: HeardCopy, _ message: ContactMessage) -> Bool {
    guard message.snr == nil || message.snr == copy.snr else { return false }
    guard !message.path.isDirect else { return !copy.route.isFlood && copy.length.hops == 0 }
    return copy.route.isFlood && copy.length.raw == message.path.raw
  }

  /// Whether a text of this size can be sealed in the payload: time and flags come before it, and a high attempt
  /// behind.
  private static func fits(_ payload: [UInt8], _ bytes: Int) -> Bool {
    func blocks(_ count: Int) -> Int { (count + 15) / 16 * 16 }
    return (blocks(5 + bytes)...blocks(7 + bytes)).contains(payload.count - sealedAt)
  }

  func copies(of serial: Int) -> [HeardCopy] { groups.first { $0.serial == serial }?.copies ?? [] }

  /// The message is on disk with this many copies.
  mutating func stored(_ serial: Int, _ count: Int, as message: MessageNumber, now: MonotonicTime) {
    guard let place = groups.firstIndex(where: { $0.serial == serial }) else { return }
    (groups[place].owner, groups[place].kept) = (.message(message), count)
    if !groups[place].copies.isEmpty { groups[place].due = max(groups[place].last, now) + Self.quiet }
  }

  // MARK: Known messages

  /// Further copies of a stored or a sent message have this payload.
  mutating func expect(_ message: MessageNumber, _ type: PayloadType, _ payload: [UInt8], now: MonotonicTime) {
    guard let serial = claim(type, payload, now: now) else { return }
    stored(serial, 0, as: message, now: now)
  }

  /// A direct message of ours is on its way to a recipient with this hash.
  mutating func expect(sent id: Int64, to recipient: UInt8, bytes: Int, now: MonotonicTime) {
    sent.removeAll { $0.until <= now || $0.id == id }
    if sent.count >= Self.most { sent.removeFirst() }
    sent.append(Sent(id: id, recipient: recipient, bytes: bytes, until: now + Self.echo))
  }

  /// Of two messages that fit, neither is meant for sure.
  private func sentMessage(_ payload: [UInt8], _ now: MonotonicTime) -> Int64? {
    let fitting = sent.filter { $0.until > now && $0.recipient == payload[0] && Self.fits(payload, $0.bytes) }
    return fitting.count == 1 ? fitting.first?.id : nil
  }

  // MARK: Keeping

  /// Copies that are due, all of them without `now`. They count as kept until `failed`.
  mutating func takeDue(now: MonotonicTime?) -> [Due] {
    var found: [Due] = []
    for place in groups.indices {
      guard let due = groups[place].due, now.map({ due <= $0 }) ?? true,
        case .message(let message)? = groups[place].owner
      else { continue }
      let group = groups[place]
      found.append(
        Due(
          serial: group.serial, message: message, copies: Array(group.copies.dropFirst(group.kept)),
          more: group.missed - group.missedTaken))
      (groups[place].kept, groups[place].missedTaken, groups[place].due) = (group.copies.count, group.missed, nil)
    }
    return found
  }

  /// The disk has refused these copies: they are due again, later than others, because a disk that is full for hours would wake the gateway for each.
  mutating func failed(_ due: Due, now: MonotonicTime) {
    guard let place = groups.firstIndex(where: { $0.serial == due.serial }) else { return }
    groups[place].kept = max(0, groups[place].kept - due.copies.count)
    groups[place].missedTaken = max(0, groups[place].missedTaken - due.more)
    groups[place].due = now + Self.missPause
  }
}
