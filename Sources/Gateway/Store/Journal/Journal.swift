// SPDX-License-Identifier: MIT

import SQLite
import Timing

/// The kinds of events in the journal. The names are part of the hub protocol.
public enum EventKind: String, Sendable, CaseIterable {
  case radio, message, contact, contactRemoved = "contact_removed", advert, channel, gap
  case outgoing, reaction, telemetry, status = "node_status", command
  /// What polls of these kinds have found.
  case neighbours = "node_neighbours", clock = "node_clock", owner = "node_owner"
  /// The settings that a node has told.
  case snapshot
  case document, bucketGap = "bucket_gap"
  /// The radio has dropped messages, or may have.
  case radioGap = "radio_gap"
  /// The alert of a weak battery or supply has begun or ended.
  case power
  /// An upstream's allowance has stopped or released a lane.
  case allowance
  /// An alert has begun, ended, or was acknowledged; alerts of battery and supply have the kind `power`.
  case alert
  /// The copies of a message that the radio heard, and the ways that they came.
  case ways
  /// The path to a node has changed.
  case route
  /// Events were deleted, by their numbers; or the place of one that was.
  case deletion
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
  /// The bytes that the journal counts for the event: exactly or approximately those of the body.
  public var size: Int

  /// `size`: if it differs from the size of the body.
  public init(seq: Int64, at: Int64, trusted: Bool, kind: String, body: [UInt8], size: Int? = nil) {
    self.seq = seq
    self.at = at
    self.trusted = trusted
    self.kind = kind
    self.body = body
    self.size = size ?? body.count
  }

  /// Of the row in the journal, without `trusted`: with it, rows of earlier versions would count as damaged, and a flip
  /// there only decides whether `at` is believed.
  var checksum: Int64 { RowChecksum.of(seq: seq, at: at, kind: kind, body: body) }
}

/// A wall-clock time, and whether the clock was synchronised.
public struct Moment: Equatable, Sendable {
  /// Milliseconds since 1970.
  public var milliseconds: Int64
  public var trusted: Bool

  public init(milliseconds: Int64, trusted: Bool) {
    self.milliseconds = milliseconds
    self.trusted = trusted
  }

  /// The present time of a clock.
  public init(_ clock: WallClock) { self.init(milliseconds: clock.milliseconds, trusted: clock.isSynchronised) }
}

/// The state of the journal in memory.
struct JournalState {
  /// The part of the state that a transaction changes.
  struct Ends: Equatable {
    /// The last seq.
    var last: Int64 = 0
    /// The seq of the oldest event, as far as known; earlier events were deleted.
    var oldest: Int64 = 1
    /// Bytes of bodies, plus an allowance for the rest of each row.
    var bytes: Int64 = 0
    /// The newest seq of each lane.
    var newest = ByLane<Int64>(all: 0)
    /// The last deleted seq of each lane.
    var deleted = ByLane<Int64>(all: 0)
    /// All events since the program started, including those found then: the basis for counting waiting events.
    var amounts = ByLane(all: LaneAmount())
    /// The newest message's id.
    var lastMessage: Int64 = 0
    /// Bytes of all events that are rows of `messages`.
    var messageBytes: Int64 = 0
  }

  /// The ends of the journal, including the open transaction.
  var open = Ends()
  private(set) var durable = Ends()
  /// Messages with greater ids are events themselves.
  private(set) var beforeEvents: Int64 = 0
  /// In events after this seq, the end of a sent message contains the whole message.
  private(set) var wholeEndsFrom: Int64 = 0
  var times = JournalTimes()
  var keepsTimes = false
  /// Events were given up, and not every upstream has passed their place yet.
  var hasTrims = false
  /// Ids of messages between which all rows are damaged, as far as somebody has looked since this number of changes to the database.
  var damagedMessages: (ids: ClosedRange<Int64>, changes: Int64)?
  static let rowOverhead: Int64 = 32

  init() {}

  init(_ database: Database) throws(SQLiteError) {
    open.last = try database.value("SELECT max(seq) FROM journal")?.integer ?? 0
    open.oldest = try database.meta("journal_from")?.integer ?? 1
    var ends = open
    try database.every("SELECT kind, max(seq), count(*), sum(length(body)) FROM journal GROUP BY kind") { row in
      let lane = Lane(kind: row.text(0))
      ends.newest[lane] = max(ends.newest[lane], row.integer(1))
      ends.add(LaneAmount(events: row.integer(2), bytes: row.integer(3)), to: lane)
    }
    for lane in Lane.allCases {
      let deleted = try database.meta(lane.deletedName)
      ends.deleted[lane] = deleted?.integer ?? ends.oldest - 1
    }
    beforeEvents = try database.meta("before_events")?.integer ?? 0
    wholeEndsFrom = try database.meta("whole_ends_from")?.integer ?? 0
    ends.lastMessage = try database.value("SELECT max(id) FROM messages")?.integer ?? 0
    open = ends
    durable = ends
    hasTrims = try database.value("SELECT 1 FROM trims LIMIT 1") != nil
  }

  mutating func take(bytes count: Int, _ lane: Lane) -> Int64 {
    open.last += 1
    open.newest[lane] = open.last
    open.add(LaneAmount(events: 1, bytes: Int64(count)), to: lane)
    return open.last
  }

  /// A message was stored as its own event.
  mutating func takeMessage(bytes count: Int) {
    _ = take(bytes: count, EventKind.message.lane)
    open.lastMessage += 1
    open.messageBytes &+= Int64(count)
  }

  /// An event that refers to a message became whole, so that its bytes count differently.
  mutating func recount(_ difference: Int64, _ lane: Lane) {
    open.add(LaneAmount(events: 0, bytes: difference), to: lane)
  }

  /// The events that are rows of `messages`, found when the store was opened.
  mutating func found(_ amount: LaneAmount, last: Int64, bytes: Int64) {
    open.last = max(open.last, last)
    open.newest.messages = max(open.newest.messages, last)
    open.messageBytes = bytes
    open.add(amount, to: EventKind.message.lane)
    durable = open
  }

  mutating func keep() { durable = open }
  mutating func undo() { open = durable }
}

extension JournalState.Ends {
  /// Tolerates any size, because the database may be damaged.
  fileprivate mutating func add(_ amount: LaneAmount, to lane: Lane) {
    let size = amount.events.multipliedReportingOverflow(by: JournalState.rowOverhead)
    amounts[lane].events &+= amount.events
    amounts[lane].bytes &+= amount.bytes
    bytes &+= amount.bytes &+ (size.overflow ? 0 : size.partialValue)
  }
}

/// FNV-1a, 64 bit: detects flipped bits, which SQLite does not (docs/decisions/0017-a-message-is-written-once.md). It
/// is no protection against forgery.
struct RowChecksum {
  private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325

  /// The value as SQLite stores it.
  var bits: Int64 { Int64(bitPattern: value) }

  mutating func add(_ bytes: some Sequence<UInt8>) {
    for byte in bytes { value = (value ^ UInt64(byte)) &* 0x100_0000_01B3 }
  }

  static func of(seq: Int64, at: Int64, kind: String, body: [UInt8]) -> Int64 {
    var sum = RowChecksum()
    withUnsafeBytes(of: seq.littleEndian) { sum.add($0) }
    withUnsafeBytes(of: at.littleEndian) { sum.add($0) }
    sum.add(kind.utf8)
    sum.add(body)
    return sum.bits
  }
}

extension Store {
  /// The newest seq that is on disk; 0 in an empty journal.
  public var lastSeq: Int64 { journalState.durable.last }
  /// After this seq, the event of a sent message's end contains the whole message, so upstreams need not get its other
  /// events.
  public var wholeEndsFrom: Int64 { journalState.wholeEndsFrom }

  /// The newest seq of each lane on disk; 0: the lane is empty.
  public var newestSeq: ByLane<Int64> { journalState.durable.newest }

  /// The last deleted seq of each lane.
  public var deletedThrough: ByLane<Int64> { journalState.durable.deleted }

  /// Events by lane that were on disk when the store was opened, or were added since; a difference of two values is the
  /// number in between.
  public var journaled: ByLane<LaneAmount> { journalState.durable.amounts }

  /// The seq of the next event, within a `write`.
  var nextSeq: Int64 { journalState.open.last + 1 }

  /// Appends an event within a `write`. The seq is final once the transaction is committed.
  @discardableResult
  public func append(_ kind: EventKind, at moment: Moment, body: [UInt8]) throws(SQLiteError) -> Int64 {
    try noteTime()
    let seq = journalState.take(bytes: body.count, kind.lane)
    try insert(
      JournalEvent(seq: seq, at: moment.milliseconds, trusted: moment.trusted, kind: kind.rawValue, body: body))
    return seq
  }

  func insert(_ event: JournalEvent) throws(SQLiteError) {
    try database.run(
      "INSERT INTO journal(seq, at, trusted, kind, body, checksum) VALUES (?, ?, ?, ?, ?, ?)", .integer(event.seq),
      .integer(event.at), .integer(event.trusted ? 1 : 0), .text(event.kind), .blob(event.body),
      .integer(event.checksum))
  }

  /// Reads events after `after`, in order. `row` gets each event and whether its checksum is right, and returns false
  /// to stop. With a `lane`, events of other lanes come without a body and unchecked; without `withWays`, so do those
  /// of copies.
  public func readJournal(
    after: Int64, limit: Int = .max, lane: Lane? = nil, withWays: Bool = true,
    _ row: (JournalEvent, _ isSound: Bool) -> Bool
  ) throws(StoreError) {
    try translating { () throws(SQLiteError) in
      // Only events on disk: after a power cut, another event could get the same seq.
      let last = lastSeq
      var left = limit
      var nodes = NodesOnWays()
      var messages = try messageEvents(after: after, through: last)
      try messages.advance(in: self)
      try database.each(
        "SELECT seq, at, trusted, kind, body, checksum FROM journal WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        [.integer(after), .integer(last), .integer(Int64(clamping: limit))]
      ) { (statement) throws(SQLiteError) in
        guard try readMessages(&messages, before: statement.integer(0), lane, &left, row), left > 0 else {
          left = 0
          return false
        }
        left -= 1
        let goesOn = try read(statement, lane, withWays, &nodes, row)
        if !goesOn { left = 0 }
        return goesOn
      }
      _ = try readMessages(&messages, before: .max, lane, &left, row)
    }
  }

  /// False: `row` has stopped the reading.
  private func read(
    _ statement: Statement, _ lane: Lane?, _ withWays: Bool, _ nodes: inout NodesOnWays,
    _ row: (JournalEvent, _ isSound: Bool) -> Bool
  ) throws(SQLiteError) -> Bool {
    var event = JournalEvent(
      seq: statement.integer(0), at: statement.integer(1), trusted: statement.integer(2) != 0,
      kind: statement.text(3), body: [])
    if let lane, Lane(kind: event.kind) != lane { return row(event, true) }
    let isOfCopies = event.kind == EventKind.ways.rawValue
    event.body = statement.blob(4)
    event.size = event.body.count
    if isOfCopies, !withWays {
      event.body = []
      return row(event, true)
    }
    var isSound = event.checksum == statement.bits(5)
    if isOfCopies, isSound, WaysReference.isIn(event.body) {
      let whole = try body(of: event.body, &nodes)
      (event.body, isSound) = (whole ?? [], whole != nil)
    }
    return row(event, isSound)
  }

  /// Reads events that are rows of `messages`, before `end`. False: `row` has stopped the reading.
  private func readMessages(
    _ rows: inout MessageEventRows, before end: Int64, _ lane: Lane?, _ left: inout Int,
    _ row: (JournalEvent, _ isSound: Bool) -> Bool
  ) throws(SQLiteError) -> Bool {
    while left > 0, let (event, isSound) = rows.next, event.seq < end {
      left -= 1
      let isOther = lane != nil && lane != EventKind.message.lane
      guard row(journalEvent(event, withBody: !isOther), isOther || isSound) else { return false }
      try rows.advance(in: self)
    }
    return true
  }

  /// Number and bytes of the events after a seq, by lane.
  public func amounts(after seq: Int64) throws(StoreError) -> ByLane<LaneAmount> {
    var found = ByLane(all: LaneAmount())
    guard seq < lastSeq else { return found }
    try translating { () throws(SQLiteError) in
      try database.every(
        "SELECT kind, count(*), sum(length(body)) FROM journal WHERE seq > ? AND seq <= ? GROUP BY kind",
        [.integer(seq), .integer(lastSeq)]
      ) { row in
        let lane = Lane(kind: row.text(0))
        found[lane].events &+= row.integer(1)
        found[lane].bytes &+= row.integer(2)
      }
      let messages = try messageAmount(after: seq, through: lastSeq)
      found[EventKind.message.lane].events &+= messages.events
      found[EventKind.message.lane].bytes &+= messages.bytes
    }
    return found
  }

  /// For events after a cursor: the oldest, and when it was written; and how many were deleted unsent.
  public func backlog(
    after cursor: ByLane<Int64>
  ) throws(StoreError) -> (oldest: (seq: Int64, at: Moment)?, lost: Int64) {
    var (oldest, lost): ((seq: Int64, at: Moment)?, Int64) = (nil, 0)
    for lane in Lane.allCases {
      lost &+= try trims(of: lane, after: cursor[lane]).reduce(0) { $0 &+ $1.count }
      guard cursor[lane] < newestSeq[lane] else { continue }
      try translating { () throws(SQLiteError) in
        let next: (seq: Int64, at: Moment)? = try database.first(
          "SELECT seq, at, trusted FROM journal WHERE seq > ? AND \(lane.condition) ORDER BY seq LIMIT 1",
          [.integer(cursor[lane])]
        ) { ($0.integer(0), Moment(milliseconds: $0.integer(1), trusted: $0.integer(2) != 0)) }
        let message = lane == EventKind.message.lane ? try firstMessageTime(after: cursor[lane]) : nil
        for case let found? in [next, message] where found.seq < oldest?.seq ?? .max { oldest = found }
      }
    }
    return (oldest, lost)
  }

  /// The bytes of the journal, and its oldest seq.
  public var journalSize: (bytes: Int64, oldest: Int64) { (journalState.open.bytes, journalState.open.oldest) }
}
