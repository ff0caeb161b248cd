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

  static let maxNodes = 256
  /// The length of a node's name, of its key in hex, or of a tag: an empty one would select every node without a name.
  private static let nameBytes = 1...64
  private static let longest: Int64 = 366 * 86_400

  init() {}

  init(reading table: inout TOMLReader) {
    nodes = table.strings("nodes")
    if nodes.count > Self.maxNodes { table.note("nodes", "more than \(Self.maxNodes)") }
    if !nodes.allSatisfy({ Self.nameBytes.contains($0.utf8.count) }) {
      table.note(
        "nodes", "expected names or keys, each of \(Self.nameBytes.lowerBound) to \(Self.nameBytes.upperBound) bytes")
    }
    tag = table.string("tag") ?? tag
    if !Self.nameBytes.contains(tag.utf8.count) {
      table.note("tag", "expected \(Self.nameBytes.lowerBound) to \(Self.nameBytes.upperBound) bytes")
    }
    diskFree = table.size("disk_free", in: 0...(1 << 50), default: diskFree)
    rules = Self.rules(AlertRule.ofGateways, &table)
  }

  /// `RULE = false`, `RULE_after_s` and `RULE_ends_after_s` of each rule.
  static func rules(_ all: [AlertRule], _ table: inout TOMLReader) -> AlertSettings {
    var settings = AlertSettings(all)
    for rule in all {
      let (name, usual) = (rule.rawValue, rule.usual)
      let begins = table.integer(
        "\(name)_after_s", in: rule.leastSeconds...longest, default: usual.begins.components.seconds)
      let ends = table.integer(
        "\(name)_ends_after_s", formerly: "\(name)_over_s", in: 0...longest,
        default: usual.ends.components.seconds)
      let isOn = table.bool(name, default: true)
      settings.times[rule] = isOn ? AlertTimes(begins: .seconds(begins), ends: .seconds(ends)) : nil
    }
    return settings
  }
}
