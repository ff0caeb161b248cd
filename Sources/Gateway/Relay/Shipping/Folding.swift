// SPDX-License-Identifier: MIT

import JSON
import Store

/// Which old states of nodes need not be sent, as a newer one waits behind them: the newest goes, and says for how many it stands.
///
/// It looks over a stretch of the backlog that ends where the backlog ended when it began. What comes later folds nothing in it:
/// a node that is heard all the time would never be told of.
struct Folding {
  /// Events of the lane that a stretch has at most; of nodes and kinds, that are kept in memory (64 KiB).
  static let maxEvents = 16_384
  static let maxKeys = 1500
  /// Rows of the journal that are looked at before a batch.
  static let step = 2000
  static let lane = Lane.nodes

  private struct Newest {
    var seq: Int64
    /// Older ones in the stretch.
    var folded: Int64
  }

  let epoch: String
  /// The stretch begins behind this event.
  let after: Int64
  private let end: Int64
  /// Looked at up to here.
  private(set) var through: Int64
  private(set) var isComplete = false
  private var newest: [Key: Newest] = [:]
  private var events = 0

  init(after: Int64, end: Int64, epoch: String) {
    (self.after, self.end, self.epoch) = (after, end, epoch)
    through = after
  }

  /// What is read on from there can be folded by this, now or when more was looked at.
  func isUsable(after cursor: Int64, epoch: String) -> Bool {
    after <= cursor && (cursor < through || !isComplete && cursor == through) && self.epoch == epoch
  }

  /// Looks at some more. `cursor`: what is up to there was sent, or another one stands for it. `passes`: what does not pass, or is
  /// damaged, folds nothing.
  mutating func lookAhead(
    in store: Store, from cursor: Int64, passes: (JournalEvent) throws(StoreError) -> Bool
  ) throws(StoreError) {
    guard !isComplete else { return }
    var (rows, failure): (Int, StoreError?) = (0, nil)
    try store.readJournal(after: through, limit: Self.step, lane: Self.lane) { event, isSound in
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

  /// False: enough.
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
    /// A newer one stands for it.
    case folded
    /// The event stands for so many older ones.
    case newest(of: Int64)
  }

  /// What becomes of an event of the stretch.
  func place(of event: JournalEvent) -> Place {
    guard let key = Key(event), let newest = newest[key] else { return .newest(of: 0) }
    if newest.seq > event.seq { return .folded }
    return .newest(of: newest.seq == event.seq ? newest.folded : 0)
  }

  /// A body that says for how many events it stands.
  static func body(_ body: [UInt8], standingFor folded: Int64) -> [UInt8] {
    guard folded > 0, body.last == UInt8(ascii: "}") else { return body }
    return body.dropLast() + Array(",\"folded\":\(folded)}".utf8)
  }
}

extension Folding {
  /// What an event tells the state of: a node's record, as heard or as changed; or its readings, of that hour and those sensors.
  /// Readings make a history, which keeps one an hour.
  struct Key: Hashable {
    /// 12 bytes of the node's key: nobody makes himself a key with those of another node.
    private let node: UInt64
    private let rest: UInt32
    private let tag: UInt32

    /// `nil`: it is not folded. The bodies are our own, in which the key is first; other ones are not folded.
    init?(_ event: JournalEvent) {
      let kind = EventKind(rawValue: event.kind)
      let field: StaticString
      switch kind {
      case .advert, .contact: field = "{\"key\":\""
      case .telemetry, .status: field = "{\"node\":\""
      // That a node was removed is no state of its own: it belongs to the record before it.
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

  /// FNV-1a, 32 bit: tells apart what one node says.
  private struct Checksum {
    private(set) var value: UInt32 = 0x811C_9DC5

    mutating func add(_ bytes: some Sequence<UInt8>) {
      for byte in bytes { value = (value ^ UInt32(byte)) &* 0x0100_0193 }
    }

    /// Which sensors' readings there are. False: that cannot be told.
    mutating func add(sensors body: [UInt8]) -> Bool {
      // `try?`: what is damaged is not folded.
      guard let readings = (try? JSONValue(parsing: body))?["readings"]?.array else { return false }
      for reading in readings {
        add("\(reading["channel"]?.integer ?? -1)/\(reading["type"]?.string ?? "");".utf8)
      }
      return true
    }
  }
}
