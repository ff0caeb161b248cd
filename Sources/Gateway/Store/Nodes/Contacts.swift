// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// A stored contact.
public struct StoredContact: Equatable, Sendable {
  public var contact: Contact
  /// False for removed nodes, and for nodes that the radio has heard but does not keep.
  public var onRadio: Bool
  /// Milliseconds since 1970. `lastHeard`: when something was received that only this node can have sent (written at
  /// most once in ten minutes); `nil`: never. Packets between other nodes identify their sender by one byte, which does
  /// not suffice.
  public var firstSeen: Int64
  public var lastHeard: Int64?
  /// The radio that reported it last.
  public var radio: Int64 = Store.everyRadio
  /// The region of messages to it, as `RegionChoice.text`; `nil`: the radio's default.
  public var region: String?
  /// The regions that it has said it carries, with commas, and when, in milliseconds since 1970.
  public var carried: String?
  public var carriedAt: Int64?
  /// Seconds that its clock is ahead of ours, by its last advert that came while ours was synchronised; `nil`: unknown.
  public var clockOffset: Int64?

  public init(
    contact: Contact, onRadio: Bool, firstSeen: Int64, lastHeard: Int64?, radio: Int64 = Store.everyRadio
  ) {
    self.contact = contact
    self.onRadio = onRadio
    self.firstSeen = firstSeen
    self.lastHeard = lastHeard
    self.radio = radio
  }
}

/// The effect of a contact record.
public enum ContactChange: Equatable, Sendable { case added, changed, unchanged }

extension Store {
  private static let columns = """
    key, type, flags, path_length, path, name, last_advert, latitude, longitude, last_modified, on_radio, first_seen, \
    last_heard, radio
    """
  private static let readColumns = columns + ", region, carried, carried_at, clock_offset"

  /// Within a `write`: stores the record if it has changed, or the node was `heard`. The node then counts as seen now,
  /// whatever the radio's clock says.
  public func upsert(_ contact: Contact, onRadio: Bool, heard: Bool, at: Int64) throws(SQLiteError) -> ContactChange {
    if heard { nodeWasHeard(contact.key.prefix, at) }
    let known = try read(contact.key)
    if let known, known.onRadio == onRadio, known.radio == radio, !heard, known.contact == contact { return .unchanged }
    try database.run(
      """
      INSERT INTO contacts(\(Self.columns), seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT(key) DO UPDATE SET type = excluded.type, flags = excluded.flags, path_length = excluded.path_length,
        path = excluded.path, name = excluded.name, last_advert = excluded.last_advert, latitude = excluded.latitude,
        longitude = excluded.longitude, last_modified = excluded.last_modified, on_radio = excluded.on_radio,
        last_heard = coalesce(excluded.last_heard, last_heard), radio = excluded.radio,
        seen = max(seen, excluded.seen)
      """, .blob(contact.key.bytes), .integer(Int64(contact.type.rawValue)), .integer(Int64(contact.flags)),
      .optional(contact.outPath?.length.raw), .optional(contact.outPath?.bytes), .blob(contact.name.bytes),
      .integer(Int64(contact.lastAdvert)), .integer(Int64(contact.latitude ?? 0)),
      .integer(Int64(contact.longitude ?? 0)), .integer(Int64(contact.lastModified ?? 0)),
      .integer(onRadio ? 1 : 0), .integer(at), heard ? .integer(at) : .null, .integer(radio),
      .integer(elapsedNow))
    guard let known else {
      try forgetNodes()
      return .added
    }
    return known.onRadio == onRadio && known.contact.saysTheSame(as: contact) ? .unchanged : .changed
  }

  /// Within a `write`: the radio no longer has the contact. False: that was known already.
  public func markRemoved(_ key: PublicKey) throws(SQLiteError) -> Bool {
    contactsRemoved &+= 1
    return try database.run("UPDATE contacts SET on_radio = 0 WHERE key = ? AND on_radio = 1", .blob(key.bytes)) > 0
  }

  /// Within a `write`: another radio is attached, whose contact list is unrelated to the previous one's.
  public func markAllRemoved(at moment: Moment) throws(SQLiteError) {
    try removeContacts(notIn: [], at: moment)
    try setMeta("contacts_watermark", .integer(0))
  }

  /// Within a `write`: a complete contact list was received; contacts that are not in it are removed. `isLost`: whether the radio has lost this one,
  /// and nobody has removed it; a message to it, or from it, restores it. Returns the names of those.
  @discardableResult
  public func removeContacts(
    notIn seen: Set<PublicKey>, at moment: Moment, isLost: (PublicKey) -> Bool = { _ in false }
  ) throws(SQLiteError) -> [String] {
    var lost: [String] = []
    let known = try database.rows("SELECT key FROM contacts WHERE on_radio = 1") { PublicKey(bytes: $0.blob(0)) }
    for key in known.filter({ !seen.contains($0) }) where try markRemoved(key) {
      let contact = try read(key)?.contact
      // The firmware keeps contacts without a type in its RAM only: no restart leaves any.
      let wasLost = contact?.type != NodeType.none && isLost(key)
      if wasLost {
        try setEvicted(key, true)
        lost.append((contact?.name).flatMap { $0.bytes.isEmpty ? nil : $0.string } ?? key.prefix.hex)
      }
      try append(.contactRemoved, at: moment, body: EventBody.removed(key, overwritten: wasLost))
    }
    return lost
  }

  /// Within a `write`: the record in this transaction.
  public func readForEvent(_ key: PublicKey) throws(SQLiteError) -> StoredContact? { try read(key) }

  public func contact(_ key: PublicKey) throws(StoreError) -> StoredContact? {
    try translating { () throws(SQLiteError) in try read(key) }
  }

  private func read(_ key: PublicKey) throws(SQLiteError) -> StoredContact? {
    try database.first("SELECT \(Self.readColumns) FROM contacts WHERE key = ?", [.blob(key.bytes)]) {
      Self.contact($0)
    }
  }

  /// The contact whose key begins with these 6 bytes; a contact of the radio is preferred.
  public func contact(prefix: KeyPrefix) throws(StoreError) -> StoredContact? {
    let next = prefix.value == 0xFFFF_FFFF_FFFF ? nil : KeyPrefix(value: prefix.value + 1).bytes
    return try first(
      """
      SELECT \(Self.readColumns) FROM contacts WHERE key >= ?1 AND (?2 IS NULL OR key < ?2)
      ORDER BY on_radio DESC LIMIT 1
      """, [.blob(prefix.bytes), .optional(next)]
    ) { Self.contact($0) }
  }

  /// Known keys with this prefix of 6 bytes; at most two, because a second one makes it ambiguous.
  public func contactKeys(beginningWith prefix: KeyPrefix) throws(StoreError) -> [PublicKey] {
    let next = prefix.value == 0xFFFF_FFFF_FFFF ? nil : KeyPrefix(value: prefix.value + 1).bytes
    return try rows(
      "SELECT key FROM contacts WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) LIMIT 2",
      [.blob(prefix.bytes), .optional(next)]
    ) { PublicKey(bytes: $0.blob(0)) }
  }

  func hasContact(named name: [UInt8]) throws(SQLiteError) -> Bool {
    try database.value("SELECT 1 FROM contacts WHERE name = ? LIMIT 1", .blob(name)) != nil
  }

  /// Contacts by key, one at a time; all, or those last reported by this radio. Return false to stop.
  public func eachContact(
    after key: [UInt8] = [], onRadioOnly: Bool = false, ofRadio radio: Int64? = nil, _ row: (StoredContact) -> Bool
  ) throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try database.each(
        "SELECT \(Self.readColumns) FROM contacts WHERE key > ? AND on_radio >= ? AND (?3 IS NULL OR radio = ?3) ORDER BY key",
        [.blob(key), .integer(onRadioOnly ? 1 : 0), .optional(radio)]
      ) { (statement) throws(SQLiteError) in
        guard let stored = Self.contact(statement) else { return true }
        return row(stored)
      }
    }
  }

  /// The contacts heard last, newest first.
  public func contactsHeard(limit: Int, ofRadio radio: Int64? = nil) throws(StoreError) -> [StoredContact] {
    try rows(
      "SELECT \(Self.readColumns) FROM contacts WHERE last_heard IS NOT NULL AND (?2 IS NULL OR radio = ?2) ORDER BY last_heard DESC LIMIT ?1",
      [.integer(Int64(clamping: limit)), .optional(radio)]
    ) { Self.contact($0) }
  }

  public func contactCount(onRadio: Bool) throws(StoreError) -> Int64 {
    try value("SELECT count(*) FROM contacts WHERE on_radio >= ?", .integer(onRadio ? 1 : 0))?.integer ?? 0
  }

  private static func contact(_ row: Statement) -> StoredContact? {
    guard let key = PublicKey(bytes: row.blob(0)) else { return nil }
    let length = row.integerIfAny(3).map { PathLength(raw: UInt8(truncatingIfNeeded: $0)) }
    let contact = Contact(
      key: key, type: NodeType(rawValue: UInt8(truncatingIfNeeded: row.integer(1))),
      flags: UInt8(truncatingIfNeeded: row.integer(2)),
      outPath: length.flatMap { Path(bytes: row.blob(4), bytesPerHop: $0.bytesPerHop) },
      name: Text(bytes: row.blob(5)), lastAdvert: UInt32(truncatingIfNeeded: row.integer(6)),
      latitude: Int32(truncatingIfNeeded: row.integer(7)), longitude: Int32(truncatingIfNeeded: row.integer(8)),
      lastModified: UInt32(truncatingIfNeeded: row.integer(9)))
    var stored = StoredContact(
      contact: contact, onRadio: row.integer(10) != 0, firstSeen: row.integer(11), lastHeard: row.integerIfAny(12),
      radio: row.integer(13))
    (stored.region, stored.carried, stored.carriedAt) = (row.textIfAny(14), row.textIfAny(15), row.integerIfAny(16))
    stored.clockOffset = row.integerIfAny(17)
    return stored
  }

  // MARK: The radio's contact list

  /// The start of the next incremental contact list, and the radio that it belongs to.
  public func contactWatermark() throws(StoreError) -> (radio: PublicKey, lastModified: UInt32, fullAt: Int64)? {
    guard let key = try meta("radio_key").flatMap(\.blob).flatMap({ PublicKey(bytes: $0) }) else { return nil }
    let watermark = UInt32(truncatingIfNeeded: try meta("contacts_watermark")?.integer ?? 0)
    return (key, watermark, try meta("contacts_full_at")?.integer ?? 0)
  }

  /// Within a `write`.
  public func setContactWatermark(radio: PublicKey, lastModified: UInt32, fullAt: Int64?) throws(SQLiteError) {
    try setMeta("radio_key", .blob(radio.bytes))
    try setMeta("contacts_watermark", .integer(Int64(lastModified)))
    if let fullAt { try setMeta("contacts_full_at", .integer(fullAt)) }
  }
}

extension Contact {
  /// Whether the records differ at most in times, which are not reported to upstreams.
  func saysTheSame(as other: Contact) -> Bool {
    var mine = self
    mine.lastAdvert = other.lastAdvert
    mine.lastModified = other.lastModified
    return mine == other
  }
}
