// SPDX-License-Identifier: MIT

import JSON
import Store

/// Finds old states of nodes that need not be sent because a newer one waits: only the newest is sent, with the number of states that it replaces.
///
/// It covers a stretch of the backlog, up to the backlog's end when the stretch began. Later events fold nothing in it: otherwise a node that is
/// heard all the time would never be reported.
struct Folding {
  /// The largest stretch: events of the lane; and nodes with their kinds, which are kept in memory (64 KiB).
  static let maxEvents = 16_384
  static let maxKeys = 1500
  /// Rows of the journal that are read ahead before a batch.
  static let step = 2000
  static let lane = Lane.nodes

  private struct Newest {
    var seq: Int64
    /// The number of older states in the stretch.
    var folded: Int64
  }

  let epoch: String
  /// The stretch begins after this event.
  let after: Int64
  private let end: Int64
  /// The journal has been read ahead up to here.
  private(set) var through: Int64
  private(set) var isComplete = false
  private var newest: [Key: Newest] = [:]
  private var events = 0

  init(after: Int64, end: Int64, epoch: String) {
    (self.after, self.end, self.epoch) = (after, end, epoch)
    through = after
  }

  /// Whether a batch after `cursor` lies in this stretch.
  func isUsable(after cursor: Int64, epoch: String) -> Bool {
    after <= cursor && (cursor < through || !isComplete && cursor == through) && self.epoch == epoch
  }

  /// Reads further ahead. Events up to `cursor` were sent or folded. Events that `passes` excludes, or that are damaged, fold nothing.
  mutating func lookAhead(
    in store: Store, from cursor: Int64, passes: (JournalEvent) throws(StoreError) -> Bool
  ) throws(StoreError) {
    guard !isComplete else { return }
    var (rows, failure): (Int, StoreError?) = (0, nil)
    try store.readJournal(after: through, limit: Self.step, lane: Self.lane, withWays: false) {
      event, isSound in
      rows += 1
      do throws(StoreError) {
        return try take(event, isSound, cursor, passes)
      } catch {
        failure = error
        return false
      }
    }
    if let failure { throw failure }
    if rows < Self.step, !isComplete { (isComplete, through) = (true, end) }
  }

  /// False: stop reading.
  private mutating func take(
    _ event: JournalEvent, _ isSound: Bool, _ cursor: Int64, _ passes: (JournalEvent) throws(StoreError) -> Bool
  ) throws(StoreError) -> Bool {
    guard event.seq <= end else {
      (isComplete, through) = (true, end)
      return false
    }
    if isSound, let key = Key(event), try passes(event) {
      let known = newest[key]
      guard known != nil || newest.count < Self.maxKeys else {
        isComplete = true
        return false
      }
      let waiting = known.flatMap { $0.seq > cursor ? $0.folded + 1 : nil }
      newest[key] = Newest(seq: event.seq, folded: waiting ?? 0)
    }
    through = event.seq
    if Lane(kind: event.kind) == Self.lane { events += 1 }
    isComplete = events >= Self.maxEvents
    return !isComplete
  }

  enum Place: Equatable {
    /// A newer event replaces it.
    case folded
    /// The event replaces this many older ones.
    case newest(of: Int64)
  }

  /// Whether an event of the stretch is sent.
  func place(of event: JournalEvent) -> Place {
    guard let key = Key(event), let newest = newest[key] else { return .newest(of: 0) }
    if newest.seq > event.seq { return .folded }
    return .newest(of: newest.seq == event.seq ? newest.folded : 0)
  }

  /// Adds to a body the number of events that it replaces.
  static func body(_ body: [UInt8], standingFor folded: Int64) -> [UInt8] {
    guard folded > 0, body.last == UInt8(ascii: "}") else { return body }
    return body.dropLast() + Array(",\"folded\":\(folded)}".utf8)
  }
}

extension Folding {
  /// The subject of an event: a node's record, as heard or as changed; or its readings, of one hour and one set of sensors. Readings make a history,
  /// which keeps one an hour.
  struct Key: Hashable {
    /// 12 bytes of the node's key: too many for anybody to make a key that shares them with another node's.
    private let node: UInt64
    private let rest: UInt32
    private let tag: UInt32

    /// `nil`: the event is not folded. The gateway's own bodies begin with the key; other bodies are not folded.
    init?(_ event: JournalEvent) {
      let kind = EventKind(rawValue: event.kind)
      let field: StaticString
      switch kind {
      case .advert, .contact: field = "{\"key\":\""
      case .telemetry, .status, .neighbours, .clock, .owner: field = "{\"node\":\""
      // The removal of a node is not a state: it belongs to the record before it.
      default: return nil
      }
      let start = field.utf8CodeUnitCount
      guard event.body.count > start + 64, event.body[start + 64] == UInt8(ascii: "\""),
        field.withUTF8Buffer({ event.body.starts(with: $0) }),
        let node = Self.number(event.body[start..<start + 16]),
        let rest = Self.number(event.body[start + 16..<start + 24])
      else { return nil }
      var tag = Checksum()
      tag.add(event.kind.utf8)
      if field.utf8CodeUnitCount == 9 {
        withUnsafeBytes(of: (event.at / 3_600_000).littleEndian) { tag.add($0) }
        guard kind != .telemetry || tag.add(sensors: event.body) else { return nil }
      }
      (self.node, self.rest, self.tag) = (node, UInt32(truncatingIfNeeded: rest), tag.value)
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? {
      var value: UInt64 = 0
      for digit in digits {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(digit - UInt8(ascii: "0"))
        case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(digit - UInt8(ascii: "a") + 10)
        default: return nil
        }
      }
      return value
    }
  }

  /// FNV-1a, 32 bit: distinguishes the events of one node.
  private struct Checksum {
    private(set) var value: UInt32 = 0x811C_9DC5

    mutating func add(_ bytes: some Sequence<UInt8>) {
      for byte in bytes { value = (value ^ UInt32(byte)) &* 0x0100_0193 }
    }

    /// Adds the sensors of the readings. False: the body is damaged.
    mutating func add(sensors body: [UInt8]) -> Bool {
      // `try?`: a damaged body is not folded.
      guard let readings = (try? JSONValue(parsing: body))?["readings"]?.array else { return false }
      for reading in readings {
        add("\(reading["channel"]?.integer ?? -1)/\(reading["type"]?.string ?? "");".utf8)
      }
      return true
    }
  }
}
