// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

/// An event as a gateway sends it. Source: docs/hub-protocol.md.
public struct HubEvent: Sendable, Equatable {
  public var seq: Int64
  public var at: Int64
  public var trusted: Bool
  public var kind: String
  public var body: JSONValue
}

/// A batch of a gateway's journal, decoded from the network. Total.
public struct EventBatch: Sendable, Equatable {
  /// Larger batches are refused with 413.
  public static let maxEvents = 1000

  /// Events of a lane are sent and acknowledged in order; between lanes there is no order. The names are columns of `epochs`.
  public enum Lane: String, CaseIterable, Sendable { case messages, nodes, packets }

  public var epoch: String
  /// `nil`: the batch is in the order of the whole journal, as in version 1.
  public var lane: Lane?
  /// The epoch in which the events got their numbers, if the gateway has begun another one since.
  public var before: String?
  /// The previous event of its lane, which the sender takes for acknowledged.
  public var after: Int64?
  public var events: [HubEvent]

  /// Why a batch is refused.
  public enum Refusal: Error, Equatable, Sendable {
    /// 400: invalid JSON, or not a batch.
    case malformed(String)
    case tooLarge
    /// 422: an invalid event; `seq` if it could be read.
    case badEvent(seq: Int64?, reason: String)

    var status: Int {
      switch self {
      case .malformed: 400
      case .tooLarge: 413
      case .badEvent: 422
      }
    }

    var message: String {
      switch self {
      case .malformed(let reason), .badEvent(_, let reason): reason
      case .tooLarge: "a batch may have at most \(EventBatch.maxEvents) events"
      }
    }

    var seq: Int64? { if case .badEvent(let seq, _) = self { seq } else { nil } }
  }

  /// `epoch`: the epoch of a batch without one.
  public init(parsing bytes: [UInt8], epoch: String? = nil) throws(Refusal) {
    let json: JSONValue
    do {
      json = try JSONValue(parsing: bytes)
    } catch {
      throw .malformed("\(error)")
    }
    try self.init(json, epoch: epoch)
  }

  /// `epoch`: the epoch of the link or the key, whose batches have none.
  init(_ json: JSONValue, epoch known: String? = nil) throws(Refusal) {
    guard let epoch = json["epoch"]?.string ?? known, Name.isAllowed(epoch) else {
      throw .malformed("epoch is missing")
    }
    guard let list = json["events"]?.array else { throw .malformed("events is missing") }
    guard list.count <= Self.maxEvents else { throw .tooLarge }
    if let name = json["lane"] {
      guard let lane = name.string.flatMap(Lane.init) else { throw .malformed("lane is unknown") }
      self.lane = lane
    }
    self.epoch = epoch
    guard json["before"].map({ $0.string != nil }) ?? true else { throw .malformed("before is not a text") }
    before = Self.before(json)
    if let after = json["after"] {
      // Taken for absent, it would store a batch without the events before it.
      guard let seq = after.count else { throw .malformed("after is not a whole number") }
      self.after = seq
    }
    var previous: Int64 = 0
    var events: [HubEvent] = []
    for value in list {
      let event = try Self.event(value)
      guard event.seq > previous else { throw .badEvent(seq: event.seq, reason: "seq does not increase") }
      previous = event.seq
      events.append(event)
    }
    self.events = events
  }

  /// This epoch or the previous one: the events may be stored under any epoch. An invalid name is ignored.
  static func before(_ json: JSONValue) -> String? {
    json["before"]?.string.flatMap { Name.isAllowed($0) ? $0 : nil }
  }

  static func event(_ value: JSONValue) throws(Refusal) -> HubEvent {
    guard let seq = value["seq"]?.count, seq > 0 else { throw .badEvent(seq: nil, reason: "seq is missing") }
    guard let at = value["at"]?.integer else { throw .badEvent(seq: seq, reason: "at is missing") }
    guard let kind = value["kind"]?.string, Name.isAllowed(kind) else {
      throw .badEvent(seq: seq, reason: "kind is missing")
    }
    guard let body = value["body"], body.fields != nil else {
      throw .badEvent(seq: seq, reason: "body is not an object")
    }
    guard let trusted = (value["trusted"] ?? .bool(false)).bool else {
      throw .badEvent(seq: seq, reason: "trusted is not true or false")
    }
    return HubEvent(seq: seq, at: at, trusted: trusted, kind: kind, body: body)
  }
}

/// The kinds of events that gateways of this version send, as in docs/hub-protocol.md. Kinds of newer gateways are stored, too.
public enum KnownKinds {
  private static let ofMessages = [
    "radio", "message", "channel", "gap", "outgoing", "reaction", "command", "document", "bucket_gap", "radio_gap",
    "power", "allowance", "alert", "deletion",
  ]
  private static let ofNodes = [
    "contact", "contact_removed", "advert", "telemetry", "node_status", "ways", "route", "node_neighbours",
    "node_clock", "node_owner", "snapshot",
  ]
  private static let ofPackets = ["packet"]

  public static let all = ofMessages + ofNodes + ofPackets

  /// The lane of a kind, for retention only: batches name their lane. Unknown kinds belong to the first one.
  static func lane(of kind: String) -> EventBatch.Lane {
    ofNodes.contains(kind) ? .nodes : ofPackets.contains(kind) ? .packets : .messages
  }

  public static let allowed = all.joined(separator: ", ")
}

/// Ids of gateways and epochs, and kinds of events.
public enum Name {
  public static let allowed = "1 to 64 letters, digits, `.`, `_` and `-`, and not `.` or `..`"

  /// The same for a name that a person chooses now.
  public static let allowedNew = "\(allowed), and not begin with `-`"

  public static func isAllowed(_ name: String) -> Bool { RelayMark.isGateway(name) }

  /// A name that begins with `-` would be an option of the next command.
  public static func isAllowedNew(_ name: String) -> Bool { isAllowed(name) && name.utf8.first != UInt8(ascii: "-") }
}
