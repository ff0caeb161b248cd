// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// The event of a received message. It is not in `journal`: it is made from the message's row when it is read, so that
/// a message is written only once. Ids and seqs of messages grow together.
struct MessageEvent {
  var message: StoredMessage
  var seq: Int64
  /// The sum of the sizes of all such events before this one.
  var start: Int64
  /// The channel's name when the message was received.
  var channelName: Text?
  /// The radio that the event names; `nil`: none.
  var radio: Int64?

  /// The approximate bytes of the body: making it only to count them would take a third of the time that storing a
  /// message takes.
  var size: Int {
    let texts = [message.senderName, message.authorName, channelName].reduce(0) { $0 + ($1?.bytes.count ?? 0) }
    return 150 + texts + (message.kind == .cli ? 0 : message.text.bytes.count) + (message.channel?.utf8.count ?? 0)
  }

  /// Columns of `messages` that follow `Store.messageColumns`.
  static let columns = "seq, event_start, channel_name, author_name, event_radio, checksum"

  /// The checksum of everything in the event. Copies, and radios that have received the message later, are not part of
  /// it.
  var checksum: Int64 {
    var sum = RowChecksum()
    for number in [seq, start, message.received.milliseconds, message.received.trusted ? 1 : 0, message.id] {
      sum.add(number)
    }
    sum.add(message.kind.rawValue.utf8)
    for text in [message.sender?.bytes, message.senderName?.bytes, message.author, message.authorName?.bytes] {
      sum.add(optional: text)
    }
    sum.add(optional: channelName?.bytes)
    sum.add(optional: message.channel.map { Array($0.utf8) })
    sum.add(optional: message.text.bytes)
    sum.add(Int64(message.textType.rawValue))
    sum.add(Int64(message.path.raw))
    for number in [
      message.slot.map(Int64.init), message.senderTime.map(Int64.init), message.snr.map { Int64($0.quarters) },
      message.dataType.map(Int64.init), message.wait.column, message.age, radio,
    ] {
      sum.add(optional: number)
    }
    return sum.bits
  }
}

extension RowChecksum {
  fileprivate mutating func add(_ number: Int64) { withUnsafeBytes(of: number.littleEndian) { add($0) } }

  fileprivate mutating func add(optional number: Int64?) {
    add(CollectionOfOne(number == nil ? 0 : 1))
    if let number { add(number) }
  }

  /// Adds the length first, so that the end of one text is not taken for the beginning of the next.
  fileprivate mutating func add(optional bytes: [UInt8]?) {
    add(Int64(bytes?.count ?? -1))
    if let bytes { bytes.withUnsafeBytes { add($0) } }
  }
}

extension Store {
  static func messageEvent(_ row: Statement) -> (event: MessageEvent, isSound: Bool) {
    var event = MessageEvent(
      message: message(row), seq: row.integer(19), start: row.integer(20),
      channelName: row.blobIfAny(21).map { Text(bytes: $0) }, radio: row.integerIfAny(23))
    event.message.authorName = row.blobIfAny(22).map { Text(bytes: $0) }
    return (event, event.checksum == row.bits(24))
  }

  func body(of event: MessageEvent) -> [UInt8] {
    guard event.message.kind != .deleted else { return Tombstone.body }
    return EventBody.message(
      event.message, channelName: event.channelName, radio: event.radio.flatMap { mark(ofRadio: $0) })
  }

  func journalEvent(_ event: MessageEvent, withBody: Bool = true) -> JournalEvent {
    JournalEvent(
      seq: event.seq, at: event.message.received.milliseconds, trusted: event.message.received.trusted,
      kind: (event.message.kind == .deleted ? EventKind.deletion : .message).rawValue,
      body: withBody ? body(of: event) : [], size: event.size)
  }

  /// Call it when the store is opened, after reading the ends of the journal.
  func loadMessageEvents() throws(SQLiteError) {
    let newest = journalState.open.lastMessage
    var (last, bytes): (Int64, Int64) = (0, 0)
    // Damaged rows at the end: each had a seq, which must not be used again.
    var damaged: Int64 = 0
    var id = newest
    while id > journalState.beforeEvents, let (event, isSound) = try messageEvent(id: id) {
      if isSound {
        (last, bytes) = (event.seq, event.start &+ Int64(event.size))
        break
      }
      damaged += 1
      id -= 1
    }
    if damaged > 0 { last = max(last, journalState.open.last) + damaged }
    // Even if the stored start of these events is wrong, the newest message keeps its seq.
    last = max(last, try database.value("SELECT seq FROM messages WHERE id = ?", .integer(newest))?.integer ?? 0)
    // A real seq is never that large: a bit has flipped, and further numbers would be ambiguous.
    guard last < Statement.bound, journalState.open.last < Statement.bound else {
      throw SQLiteError(code: 11, message: "impossible seq \(max(last, journalState.open.last))")
    }
    journalState.found(LaneAmount(), last: last, bytes: bytes)
    journalState.found(try messageAmount(after: 0, through: last), last: last, bytes: bytes)
  }

  // MARK: Positions

  /// The first message whose event comes after `seq`; `nil`: there is none.
  ///
  /// A binary search. A damaged row may lead to itself, but never beyond, so the rows right before the result are
  /// checked, too.
  func firstMessage(after seq: Int64) throws(SQLiteError) -> (id: Int64, start: Int64)? {
    let (newest, beginning) = (journalState.open.lastMessage, journalState.beforeEvents)
    guard newest > beginning, seq < journalState.open.last else { return nil }
    let (span, isFar) = journalState.open.last.subtractingReportingOverflow(max(seq, 0))
    var low = max(beginning + 1, isFar ? 0 : newest - min(span, newest) + 1)
    var high = newest + 1
    while low < high {
      let middle = low + (high - low) / 2
      let found = try database.value("SELECT seq FROM messages WHERE id >= ? ORDER BY id LIMIT 1", .integer(middle))
      if let found = found?.integer, found <= seq { low = middle + 1 } else { high = middle }
    }
    let behind = low - 1
    while low > beginning + 1 {
      if let known = knownDamage, known.contains(low - 1) {
        low = max(known.lowerBound, beginning + 1)
      } else if let before = try messageEvent(id: low - 1), !before.isSound {
        low -= 1
      } else {
        break
      }
    }
    if low <= behind { foundDamaged(low...behind) }
    return try database.first(
      "SELECT id, event_start FROM messages WHERE id >= ? ORDER BY id LIMIT 1", [.integer(low)]
    ) { ($0.integer(0), $0.integer(1)) }
  }

  func messageEvent(id: Int64) throws(SQLiteError) -> (event: MessageEvent, isSound: Bool)? {
    try database.first(
      "SELECT \(Self.messageColumns), \(MessageEvent.columns) FROM messages WHERE id = ?", [.integer(id)]
    ) { Self.messageEvent($0) }
  }

  /// Number and bytes of events that are rows of `messages`, after one seq and up to another, without deleted ones.
  func messageAmount(after seq: Int64, through last: Int64) throws(SQLiteError) -> LaneAmount {
    let after = max(seq, journalState.open.oldest - 1)
    guard last > after, let first = try firstMessage(after: after) else { return LaneAmount() }
    let end = try firstMessage(after: last) ?? (journalState.open.lastMessage + 1, journalState.open.messageBytes)
    return LaneAmount(events: max(0, end.id - first.id), bytes: max(0, end.start - first.start))
  }

  /// The first and last seq of these events; `nil`: there are none.
  func messageSeqs(after seq: Int64, through last: Int64) throws(SQLiteError) -> (first: Int64, last: Int64)? {
    let after = max(seq, journalState.open.oldest - 1)
    guard last > after, let first = try firstMessage(after: after)?.id else { return nil }
    let end = try firstMessage(after: last)?.id ?? journalState.open.lastMessage + 1
    guard end > first else { return nil }
    // The seq of a damaged row can be anything.
    let lowest = min(max(try messageEvent(id: first)?.event.seq ?? 0, after + 1), last)
    return (lowest, min(max(try messageEvent(id: end - 1)?.event.seq ?? 0, lowest), last))
  }

  /// The seq of the first undamaged row after this damaged one; `nil`: there is none. Rows that were looked at are not read again: a reader of
  /// many damaged rows asks at each.
  func soundSeq(behind damaged: Int64) throws(SQLiteError) -> Int64? {
    var last = foundDamaged(damaged...damaged).upperBound
    var seq: Int64?
    try database.each(
      "SELECT \(Self.messageColumns), \(MessageEvent.columns) FROM messages WHERE id > ? ORDER BY id", [.integer(last)]
    ) { (row) throws(SQLiteError) in
      let (event, isSound) = Self.messageEvent(row)
      if isSound { seq = event.seq } else { last = event.message.id }
      return !isSound
    }
    foundDamaged(damaged...last)
    return seq
  }

  private var knownDamage: ClosedRange<Int64>? {
    journalState.damagedMessages.flatMap { $0.changes == database.changes ? $0.ids : nil }
  }

  /// All messages of these ids are damaged. Returns them with those beside them that are known to be.
  @discardableResult private func foundDamaged(_ ids: ClosedRange<Int64>) -> ClosedRange<Int64> {
    var all = ids
    if let known = knownDamage, ids.lowerBound - 1 <= known.upperBound, known.lowerBound - 1 <= ids.upperBound {
      all = min(ids.lowerBound, known.lowerBound)...max(ids.upperBound, known.upperBound)
    }
    journalState.damagedMessages = (all, database.changes)
    return all
  }

  /// These events after one seq and up to another; call `advance` for the first.
  func messageEvents(after seq: Int64, through last: Int64) throws(SQLiteError) -> MessageEventRows {
    let after = max(seq, journalState.open.oldest - 1)
    let first = last > after ? try firstMessage(after: after)?.id : nil
    let rows = try database.rows(
      "SELECT \(Self.messageColumns), \(MessageEvent.columns) FROM messages WHERE id >= ? ORDER BY id",
      [.integer(first ?? .max)])
    return MessageEventRows(rows, after: after, through: last)
  }

  /// When the first message after `seq` was received (`nil`: the clock was not trusted), and its seq.
  func firstMessageTime(after seq: Int64) throws(SQLiteError) -> (seq: Int64, at: Moment)? {
    guard let first = try firstMessage(after: max(seq, journalState.open.oldest - 1))?.id else { return nil }
    return try messageEvent(id: first).map { found in
      (found.event.seq, found.event.message.received)
    }
  }

  // MARK: Deletion

  /// Call it within a `write`, before deleting these messages: events that the journal still needs become rows of
  /// `journal`.
  func journalMessages(upTo id: Int64) throws(SQLiteError) {
    guard let first = try firstMessage(after: journalState.open.oldest - 1)?.id, first <= id else { return }
    let events: [JournalEvent] = try database.rows(
      """
      SELECT \(Self.messageColumns), \(MessageEvent.columns) FROM messages WHERE id >= ? AND id <= ? ORDER BY id
      """, [.integer(first), .integer(id)]
    ) { row in
      let (event, isSound) = Self.messageEvent(row)
      // The event of a damaged row is unknown: readers learn that one is missing.
      return isSound ? journalEvent(event) : nil
    }
    for event in events {
      try insert(event)
      journalState.recount(Int64(event.body.count - event.size), EventKind.message.lane)
    }
  }
}

/// Events of messages, in order.
struct MessageEventRows: ~Copyable {
  private let rows: Rows
  private let last: Int64
  private var previous: Int64
  /// The current event, and whether its checksum is right; `nil`: there are no more.
  private(set) var next: (event: MessageEvent, isSound: Bool)?

  /// Reads nothing before `advance`.
  init(_ rows: consuming Rows, after: Int64, through last: Int64) {
    self.rows = rows
    (self.last, previous) = (last, after)
  }

  /// Skips a damaged row whose seq is impossible: readers learn that one is missing.
  mutating func advance(in store: Store) throws(SQLiteError) {
    next = nil
    while try rows.next() {
      let found = Store.messageEvent(rows.row)
      if found.isSound {
        // Later events are not on disk yet.
        guard found.event.seq <= last else { return }
      } else {
        let following = try store.soundSeq(behind: found.event.message.id) ?? last + 1
        guard found.event.seq < following else { continue }
      }
      guard found.event.seq > previous, found.event.seq <= last else { continue }
      (previous, next) = (found.event.seq, found)
      return
    }
  }
}
