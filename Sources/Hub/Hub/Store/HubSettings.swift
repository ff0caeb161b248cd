// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

/// The settings of the fleet's nodes, by their newest snapshots.
public struct FleetSettings: Sendable {
  /// The nodes with one value of a setting.
  public struct Value: Sendable {
    public var value: String
    public var nodes: [String]
  }

  /// A setting, and its values; those of most nodes first.
  public struct Setting: Sendable {
    public var name: String
    public var values: [Value]
  }

  public var nodes: Int
  public var settings: [Setting]
  /// Snapshots that are too large, or of too many nodes.
  public var leftOut = 0

  /// Settings in which nodes differ. The name and the position of a node are its own.
  public var differing: [Setting] {
    settings.filter { $0.values.count > 1 && !["name", "lat", "lon"].contains($0.name) }
  }
}

/// The newest snapshot of each node. Pure.
///
/// Of one gateway the one that came last is the newest, whatever its clock said. Between gateways times decide, and a time that is ahead, or of a clock
/// that was not synchronised, is none.
struct NewestSnapshots {
  /// The most nodes, and bytes of a snapshot.
  static let (mostNodes, mostBytes): (Int, Int64) = (10_000, 8192)

  private struct Rank: Comparable {
    /// `nil`: unknown, and older than any known one.
    var at: Int64?
    var id: Int64

    static func < (one: Rank, other: Rank) -> Bool { (one.at ?? .min, one.id) < (other.at ?? .min, other.id) }
  }

  let now: Int64
  private var newest: [ExactText: (rank: Rank, body: JSONValue)] = [:]
  private var seen: Set<ExactText> = []
  private(set) var leftOut = 0

  init(now: Int64) { self.now = now }

  var bodies: [(node: String, body: JSONValue)] {
    newest.map { ($0.key.string, $0.value.body) }.sorted { $0.node < $1.node }
  }

  /// The rows of another gateway follow, the newest first.
  mutating func nextGateway() { seen = [] }

  /// `body` nil: it is too large.
  mutating func take(id: Int64, at: Int64, trusted: Bool, body: String?) {
    // `try?`: stored values were valid JSON when they arrived.
    guard let body = body.flatMap({ try? JSONValue(parsing: $0) }), let node = body["node"]?.string else {
      return leftOut += 1
    }
    let key = ExactText(node)
    guard node.utf8.count == 64, seen.insert(key).inserted else { return }
    let rank = Rank(at: trusted && at <= now ? at : nil, id: id)
    if let known = newest[key] {
      if known.rank < rank { newest[key] = (rank, body) }
    } else if newest.count < Self.mostNodes {
      newest[key] = (rank, body)
    } else {
      leftOut += 1
    }
  }
}

/// A text as a key of dictionaries, by its bytes.
private struct ExactText: Hashable {
  let string: String

  init(_ string: String) { self.string = string }

  static func == (one: ExactText, other: ExactText) -> Bool { one.string.isExactly(other.string) }
  func hash(into hasher: inout Hasher) { for byte in string.utf8 { hasher.combine(byte) } }
}

extension HubStore {
  /// Snapshots of a gateway that are read, the newest.
  private static let ofGateway = 1000

  /// The newest snapshot of each node, whichever gateway took it.
  public func fleetSettings(now: Int64) throws(HubDatabaseError) -> FleetSettings {
    var (gateways, newest): ([String], NewestSnapshots) = ([], NewestSnapshots(now: now))
    try database.every("SELECT id FROM gateways ORDER BY id LIMIT 100000") { gateways.append($0.text(0)) }
    let isShort = "\(bytes("body")) <= \(NewestSnapshots.mostBytes)"
    for gateway in gateways {
      newest.nextGateway()
      try database.every(
        """
        SELECT id, at, trusted, CASE WHEN \(isShort) THEN body END FROM events
          WHERE gateway = ?1 AND kind = 'snapshot' ORDER BY id DESC LIMIT \(Self.ofGateway)
        """, [gateway]
      ) { row in
        newest.take(id: row.integer(0), at: row.integer(1), trusted: row.integer(2) != 0, body: row.textIfAny(3))
      }
    }
    var found = Self.settings(newest.bodies)
    found.leftOut = newest.leftOut
    return found
  }

  private static func settings(_ snapshots: [(node: String, body: JSONValue)]) -> FleetSettings {
    var (order, found): ([String], [ExactText: [ExactText: [String]]]) = ([], [:])
    for (key, body) in snapshots {
      let name = HubBounds.cut(body["name"]?.string, HubBounds.nameBytes) ?? ""
      let shown = name.isEmpty ? String(key.prefix(12)) : name
      for (setting, value) in body["settings"]?.fields?.prefix(100) ?? [] {
        guard let value = value.string else { continue }
        if found[ExactText(setting)] == nil { order.append(setting) }
        found[ExactText(setting), default: [:]][ExactText(value), default: []].append(shown)
      }
    }
    let settings = order.map { setting in
      let values = (found[ExactText(setting)] ?? [:]).map {
        FleetSettings.Value(value: $0.key.string, nodes: $0.value.sorted())
      }
      return FleetSettings.Setting(
        name: setting, values: values.sorted { ($1.nodes.count, $0.value) < ($0.nodes.count, $1.value) })
    }
    return FleetSettings(nodes: snapshots.count, settings: settings)
  }
}

extension FleetSettings {
  public var json: [UInt8] {
    JSONWriter.object([
      "nodes": nodes,
      "left_out": leftOut == 0 ? nil : leftOut,
      "settings": settings.map { setting -> JSONObject in
        [
          "setting": setting.name,
          "values": setting.values.map { value -> JSONObject in ["value": value.value, "nodes": value.nodes] },
        ]
      },
    ])
  }
}
