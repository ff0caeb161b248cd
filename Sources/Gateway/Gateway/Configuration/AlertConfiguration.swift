// SPDX-License-Identifier: MIT

import Alerts
import TOML

/// `[alerts]`: the active rules, and their times. See docs/alerts.md.
public struct AlertConfiguration: Equatable, Sendable {
  public var rules = AlertSettings(AlertRule.ofGateways)
  /// The watched nodes, by name or by the beginning of a key, and the tag that also selects nodes.
  public var nodes: [String] = []
  public var tag = "watch"
  /// The minimum of free bytes on the database's file system; 0: no minimum.
  public var diskFree: Int64 = 100 << 20
  public var care = CareSettings()

  static let maxNodes = 256
  /// The length of a node's name, of its key in hex, or of a tag: an empty one would select every node without a name.
  private static let nameBytes = 1...64

  init() {}

  init(reading table: inout TOMLReader) {
    nodes = table.strings("nodes")
    if nodes.count > Self.maxNodes { table.note("nodes", "more than \(Self.maxNodes)") }
    if !nodes.allSatisfy({ Self.nameBytes.contains($0.utf8.count) }) {
      table.note(
        "nodes", "expected names or keys, each of \(Self.nameBytes.lowerBound) to \(Self.nameBytes.upperBound) bytes")
    }
    if let short = nodes.first(where: { Self.isShortKey($0) }) {
      table.note(
        "nodes", "\"\(short)\": the beginning of a key has 8 digits or more; a node with this name is named by its key")
    }
    tag = table.string("tag") ?? tag
    if !Self.nameBytes.contains(tag.utf8.count) {
      table.note("tag", "expected \(Self.nameBytes.lowerBound) to \(Self.nameBytes.upperBound) bytes")
    }
    diskFree = table.size("disk_free", in: 0...(1 << 50), default: diskFree)
    care = Self.care(&table)
    rules = AlertSettings(AlertRule.ofGateways, reading: &table)
  }

  /// Looks like the beginning of a key, and would never be one: nobody would hear of a node that is silent.
  private static func isShortKey(_ text: String) -> Bool {
    (1...7).contains(text.utf8.count) && text.utf8.allSatisfy { "0123456789abcdef".utf8.contains($0) }
  }

  private static func care(_ table: inout TOMLReader) -> CareSettings {
    var care = CareSettings()
    let scope = table.choice("care", of: CareSettings.Scope.allCases.map(\.rawValue), default: care.scope.rawValue)
    care.scope = CareSettings.Scope(rawValue: scope) ?? care.scope
    care.batteryLow = UInt16(
      clamping: table.integer("node_battery_mv", in: 1000...60_000, default: Int64(care.batteryLow)))
    care.fallDays = Int(table.integer("node_battery_fall_days", in: 2...14, default: Int64(care.fallDays)))
    care.fall = UInt16(clamping: table.integer("node_battery_fall_mv", in: 20...10_000, default: Int64(care.fall)))
    care.noise = Int16(clamping: table.integer("node_noise_dbm", in: -140...(-20), default: Int64(care.noise)))
    care.clock = table.integer("node_clock_off_s", in: 60...31_536_000, default: care.clock)
    care.unanswered = Int(table.integer("node_unanswered_polls", in: 2...100, default: Int64(care.unanswered)))
    return care
  }
}
