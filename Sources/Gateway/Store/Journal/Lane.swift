// SPDX-License-Identifier: MIT

import JSON

/// A part of the journal with its own order and acknowledgements. The first lane here is sent first. The names are part
/// of the hub protocol. Source: docs/hub-protocol.md.
public enum Lane: String, Sendable, CaseIterable {
  /// Messages of people and their states; commands' results, documents, alerts.
  case messages
  /// Contacts, adverts, readings, and the ways of messages, which inform only.
  case nodes
  case packets

  /// Made once: it is asked for at each turn of the loop.
  public static let allCases: [Lane] = [.messages, .nodes, .packets]

  /// The lane of a kind of event; unknown kinds belong to the first lane, so that nothing delays them.
  public init(kind: String) { self = EventKind(rawValue: kind)?.lane ?? .messages }

  /// The lane of an event; of a gap, the lane of the missing events.
  public init(of event: JournalEvent) {
    self.init(kind: event.kind)
    guard event.kind == EventKind.gap.rawValue,
      // `try?`: a damaged gap belongs to the first lane.
      let lane = (try? JSONValue(parsing: event.body))?["lane"]?.string.flatMap(Lane.init(rawValue:))
    else { return }
    self = lane
  }

  /// Whether the other lane is sent first.
  public func isBelow(_ other: Lane) -> Bool {
    switch (other, self) {
    case (.messages, .nodes), (.messages, .packets), (.nodes, .packets): true
    default: false
    }
  }

  /// SQL that is true for the kinds of this lane.
  var condition: String {
    let kinds = { (lane: Lane) in
      EventKind.allCases.filter { $0.lane == lane }.map { "'\($0.rawValue)'" }.joined(separator: ", ")
    }
    return self == .messages ? "kind NOT IN (\(kinds(.nodes)), \(kinds(.packets)))" : "kind IN (\(kinds(self)))"
  }

  /// The key in `meta` of the lane's last deleted seq.
  var deletedName: String { "deleted:\(rawValue)" }

  /// SQL: the lane's cursor in a row of `cursors`.
  var cursorColumn: String { self == .messages ? "seq" : "ifnull(\(rawValue), seq)" }

  /// As `cursorColumn`, qualified by a table, for statements with another `seq`.
  func cursor(of table: String) -> String {
    self == .messages ? "\(table).seq" : "ifnull(\(table).\(rawValue), \(table).seq)"
  }
}

extension EventKind {
  public var lane: Lane {
    switch self {
    case .message, .outgoing, .reaction, .command, .document, .bucketGap, .radioGap, .power, .radio, .channel,
      .allowance,
      .alert, .deletion, .gap:
      .messages
    case .contact, .contactRemoved, .advert, .telemetry, .status, .ways, .route, .neighbours, .clock, .owner, .snapshot:
      .nodes
    case .packet: .packets
    }
  }
}

/// A value for each lane.
public struct ByLane<Value> {
  public var messages: Value
  public var nodes: Value
  public var packets: Value

  public init(messages: Value, nodes: Value, packets: Value) {
    (self.messages, self.nodes, self.packets) = (messages, nodes, packets)
  }

  public init(all value: Value) { self.init(messages: value, nodes: value, packets: value) }

  /// Each lane's value.
  public init(of value: (Lane) -> Value) {
    self.init(messages: value(.messages), nodes: value(.nodes), packets: value(.packets))
  }

  public func map<Other>(_ change: (Value) -> Other) -> ByLane<Other> {
    ByLane<Other>(messages: change(messages), nodes: change(nodes), packets: change(packets))
  }

  public subscript(lane: Lane) -> Value {
    get {
      switch lane {
      case .messages: messages
      case .nodes: nodes
      case .packets: packets
      }
    }
    set {
      switch lane {
      case .messages: messages = newValue
      case .nodes: nodes = newValue
      case .packets: packets = newValue
      }
    }
  }
}

extension ByLane: Sendable where Value: Sendable {}
extension ByLane: Equatable where Value: Equatable {}

extension ByLane where Value == Bool {
  /// The lanes in which both are true.
  public func and(_ other: Self) -> Self {
    Self(messages: messages && other.messages, nodes: nodes && other.nodes, packets: packets && other.packets)
  }
}

extension ByLane where Value: Comparable {
  public var lowest: Value { min(messages, nodes, packets) }
  public var highest: Value { max(messages, nodes, packets) }
}

/// The number of a lane's events, and the bytes of their bodies.
public struct LaneAmount: Equatable, Sendable {
  public var events: Int64 = 0
  public var bytes: Int64 = 0

  public init(events: Int64 = 0, bytes: Int64 = 0) { (self.events, self.bytes) = (events, bytes) }
}
