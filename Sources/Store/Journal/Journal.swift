// SPDX-License-Identifier: MIT

import SQLite
import Timing

/// What kinds of events the journal holds. The names are part of the hub protocol.
public enum EventKind: String, Sendable, CaseIterable {
  case radio, message, contact, contactRemoved = "contact_removed", advert, channel, gap
  case outgoing, reaction, telemetry, status = "node_status", command
  case document, bucketGap = "bucket_gap"
  /// A battery or a supply has become too weak, or is well again.
  case power
  /// A packet that the radio heard, for any recipient; only if an upstream wants packets.
  case packet
}

/// One event of the journal.
public struct JournalEvent: Equatable, Sendable {
  public var seq: Int64
  /// Milliseconds since 1970 by the gateway's clock, and whether that could be trusted then.
  public var at: Int64
  public var trusted: Bool
  public var kind: String
  /// JSON.
  public var body: [UInt8]

  public init(seq: Int64, at: Int64, trusted: Bool, kind: String, body: [UInt8]) {
    self.seq = seq
    self.at = at
    self.trusted = trusted
    self.kind = kind
    self.body = body
  }
}

/// When something happened: the wall clock and whether it was synchronised.
public struct Moment: Equatable, Sendable {
  /// Milliseconds since 1970.
  public var milliseconds: Int64
  public var trusted: Bool

  public init(milliseconds: Int64, trusted: Bool) {
    self.milliseconds = milliseconds
    self.trusted = trusted
  }

  /// What a clock shows now.
  public init(_ clock: WallClock) { self.init(milliseconds: clock.milliseconds, trusted: clock.isSynchronised) }
}

/// The state of the journal in memory.
struct JournalState {
  /// The last seq that is on disk, and the last one given out in the open transaction.
  private(set) var durable: Int64 = 0
  private(set) var last: Int64 = 0
  /// The oldest row (as far as known).
  var oldest: Int64 = 1
  /// Bytes of bodies, and an allowance for the rest of each row.
  var bytes: Int64 = 0
  private var durableBytes: Int64 = 0
  static let rowOverhead: Int64 = 32

  init() {}

  init(_ database: Database) throws(SQLiteError) {
    last = try database.value("SELECT max(seq) FROM journal")?.integer ?? 0
    // A real seq is never that large: a bit has flipped, and the following numbers would be ambiguous.
    guard last < Statement.bound else { throw SQLiteError(code: 11, words: "impossible seq \(last)") }
    oldest = try database.value("SELECT min(seq) FROM journal")?.integer ?? 1
    bytes =
      try database.value("SELECT total(length(body) + \(Self.rowOverhead)) FROM journal").map { value in
        if case .real(let total) = value { Int64(min(max(total, 0), 9e15)) } else { 0 }
      } ?? 0
    durable = last
    durableBytes = bytes
  }

  mutating func take(bytes count: Int) -> Int64 {
    last += 1
    bytes += Int64(count) + Self.rowOverhead
    return last
  }

  mutating func keep() {
    durable = last
    durableBytes = bytes
  }

  mutating func undo() {
    last = durable
    bytes = durableBytes
  }
}

/// FNV-1a, 64 bit: finds flipped bits, which SQLite does not (store.md measured 2 %). Not against forgery.
struct RowChecksum {
  private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325

  mutating func add(_ bytes: some Sequence<UInt8>) {
    for byte in bytes { value = (value ^ UInt64(byte)) &* 0x100_0000_01B3 }
  }

  static func of(seq: Int64, at: Int64, kind: String, body: [UInt8]) -> Int64 {
    var sum = RowChecksum()
    withUnsafeBytes(of: seq.littleEndian) { sum.add($0) }
    withUnsafeBytes(of: at.littleEndian) { sum.add($0) }
    sum.add(kind.utf8)
    sum.add(body)
    return Int64(bitPattern: sum.value)
  }
}

extension Store {
  /// The newest seq that is on disk; 0 in an empty journal.
  public var lastSeq: Int64 { journalState.durable }

  /// Appends an event within a `write`. The seq is final once that is committed.
  @discardableResult
  public func append(_ kind: EventKind, at moment: Moment, body: [UInt8]) throws(SQLiteError) -> Int64 {
    let seq = journalState.take(bytes: body.count)
    let checksum = RowChecksum.of(seq: seq, at: moment.milliseconds, kind: kind.rawValue, body: body)
    try database.run(
      "INSERT INTO journal(seq, at, trusted, kind, body, checksum) VALUES (?, ?, ?, ?, ?, ?)", .integer(seq),
      .integer(moment.milliseconds), .integer(moment.trusted ? 1 : 0), .text(kind.rawValue), .blob(body),
      .integer(checksum))
    return seq
  }

  /// Reads on from `after`, in order. `row` gets each event and whether its checksum holds; it returns false to stop.
  public func readJournal(
    after: Int64, limit: Int = .max, _ row: (JournalEvent, _ isSound: Bool) -> Bool
  ) throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try database.each(
        // Return only events on disk: after a power cut another event could get the same seq.
        "SELECT seq, at, trusted, kind, body, checksum FROM journal WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        [.integer(after), .integer(journalState.durable), .integer(Int64(clamping: limit))]
      ) { (statement) throws(SQLiteError) in
        let event = JournalEvent(
          seq: statement.integer(0), at: statement.integer(1), trusted: statement.integer(2) != 0,
          kind: statement.text(3), body: statement.blob(4))
        let sum = RowChecksum.of(seq: event.seq, at: event.at, kind: event.kind, body: event.body)
        return row(event, sum == statement.bits(5))
      }
    }
  }

  /// The range that was given up around `seq`, and why; `nil` when nothing is known of it.
  public func trim(covering seq: Int64) throws(StoreError) -> (first: Int64, last: Int64, reason: String)? {
    var found: (Int64, Int64, String)?
    try translating { () throws(SQLiteError) in
      try database.each(
        "SELECT first, last, reason FROM trims WHERE first <= ? AND last >= ? ORDER BY first DESC LIMIT 1",
        [.integer(seq), .integer(seq)]
      ) { (row) throws(SQLiteError) in
        found = (row.integer(0), row.integer(1), row.text(2))
        return false
      }
    }
    return found
  }

  /// For the events after a seq: when the oldest was written (milliseconds since 1970; `nil`: the clock was not trusted then),
  /// and how many were deleted unsent.
  public func backlog(after seq: Int64) throws(StoreError) -> (oldest: Int64?, lost: Int64) {
    try translating { () throws(SQLiteError) in
      let oldest = try database.value(
        "SELECT CASE WHEN trusted THEN at END FROM journal WHERE seq > ? ORDER BY seq LIMIT 1", .integer(seq))
      let lost = try database.value(
        "SELECT sum(last - max(first, ?1 + 1) + 1) FROM trims WHERE last > ?1", .integer(seq))
      return (oldest?.integer, lost?.integer ?? 0)
    }
  }

  /// Bytes that the journal takes, and the oldest seq it still has.
  public var journalSize: (bytes: Int64, oldest: Int64) { (journalState.bytes, journalState.oldest) }
}
